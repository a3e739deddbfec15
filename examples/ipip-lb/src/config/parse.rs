//! From a document to the types that hold what it says.

use super::document::{Origin, Section, Value};
use super::{
    AllDown, BACKENDS_MAX, Backend, Balancer, CONNECTIONS_MAX, CORES_MAX, Config, ConfigError,
    DeploymentKind, Engine, IcmpEcho, MTU_MIN, MTU_MIN_V6, Port, Ports, Protocol, SERVICES_MAX,
    Scheduler, Service, Side, Timeouts, WEIGHT_MAX,
};
use crate::prefix::Prefix;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use toml::de::DeTable;

const CONNECTIONS_DEFAULT: usize = 65_536;

const ADDRESS_EXAMPLE: &str = "10.0.0.1 or 2001:db8::1";

pub fn config(origin: Origin<'_>, table: &DeTable<'_>) -> Result<Config, ConfigError> {
    let root = Section::root(origin, table);
    root.allow_only(&["engine", "balancer", "port", "service"])?;
    let engine = root.section("engine")?.map_or(Ok(ENGINE_DEFAULT), |it| engine(&it))?;
    let Some(balancer_section) = root.section("balancer")? else {
        return Err(root.error("balancer", "missing; write [balancer] with source_v4 and the rest"));
    };
    let balancer = balancer(&balancer_section)?;
    let ports = ports(&root)?;
    let services = services(&root, &balancer)?;
    let over_v6 = services.iter().flat_map(|it| &it.backends).any(|it| it.address.is_ipv6());
    if over_v6 && balancer.mtu < MTU_MIN_V6 {
        let mtu = balancer_section.required("mtu", "mtu = 1500")?;
        let problem = format!(
            "{} is too small for the IPv6 backends; write {MTU_MIN_V6} or more",
            balancer.mtu
        );
        return Err(mtu.error(problem));
    }
    Ok(Config { engine, balancer, ports, services })
}

const ENGINE_DEFAULT: Engine =
    Engine { deployment: DeploymentKind::RunToCompletion, dispatchers: 1, workers: 2 };

fn engine(section: &Section<'_>) -> Result<Engine, ConfigError> {
    section.allow_only(&["deployment", "dispatchers", "workers"])?;
    let mut engine = ENGINE_DEFAULT;
    if let Some(value) = section.optional("deployment") {
        let example = "\"run-to-completion\" or \"pipeline\"";
        engine.deployment = value.parsed("a deployment", example, |text| match text {
            "run-to-completion" => Some(DeploymentKind::RunToCompletion),
            "pipeline" => Some(DeploymentKind::Pipeline),
            _ => None,
        })?;
    }
    if let Some(value) = section.optional("dispatchers") {
        engine.dispatchers = value.integer(1..=CORES_MAX)? as usize;
    }
    if let Some(value) = section.optional("workers") {
        engine.workers = value.integer(1..=CORES_MAX)? as usize;
    }
    Ok(engine)
}

fn balancer(section: &Section<'_>) -> Result<Balancer, ConfigError> {
    section.allow_only(&[
        "source_v4",
        "source_v6",
        "mtu",
        "decapsulate",
        "tunnel_peers",
        "connections_max",
    ])?;
    let source_v4 = section.required("source_v4", "source_v4 = \"192.0.2.1\"")?;
    let source_v6 = section.required("source_v6", "source_v6 = \"2001:db8::1\"")?;
    let mtu = section.required("mtu", "mtu = 1500")?;
    let decapsulate = section.required("decapsulate", "decapsulate = []")?;
    Ok(Balancer {
        source_v4: Prefix::host(
            source_address(&source_v4, "an IPv4 address", "192.0.2.1", Ipv4Addr::is_host)?.into(),
        ),
        source_v6: Prefix::host(
            source_address(&source_v6, "an IPv6 address", "2001:db8::1", Ipv6Addr::is_host)?.into(),
        ),
        mtu: mtu.integer(u32::from(MTU_MIN)..=u32::from(u16::MAX))? as u16,
        decapsulate: decapsulate.items()?.iter().map(host_address).collect::<Result<_, _>>()?,
        tunnel_peers: match section.optional("tunnel_peers") {
            Some(value) => value.items()?.iter().map(prefix).collect::<Result<_, _>>()?,
            None => Vec::new(),
        },
        connections_max: match section.optional("connections_max") {
            Some(value) => value.integer(1..=CONNECTIONS_MAX)? as usize,
            None => CONNECTIONS_DEFAULT,
        },
        icmp_echo: IcmpEcho::Reply,
        clamp_mss: false,
        maglev_slots: 65_537,
        new_connections_per_second_max: 5_000_000,
        timeouts: Timeouts {
            tcp_opening_s: 10,
            tcp_established_s: 900,
            tcp_closing_s: 20,
            udp_s: 60,
            other_s: 60,
        },
    })
}

/// What can be the address of one host: neither unspecified, nor multicast, nor broadcast.
trait HostAddress {
    fn is_host(&self) -> bool;
}

impl HostAddress for Ipv4Addr {
    fn is_host(&self) -> bool {
        !self.is_unspecified() && !self.is_multicast() && !self.is_broadcast()
    }
}

impl HostAddress for Ipv6Addr {
    fn is_host(&self) -> bool {
        !self.is_unspecified() && !self.is_multicast()
    }
}

impl HostAddress for IpAddr {
    fn is_host(&self) -> bool {
        match self {
            Self::V4(address) => address.is_host(),
            Self::V6(address) => address.is_host(),
        }
    }
}

fn source_address<A: std::str::FromStr>(
    value: &Value<'_>,
    what: &str,
    example: &str,
    is_host: impl Fn(&A) -> bool,
) -> Result<A, ConfigError> {
    let address: A = value.parsed(what, example, |text| text.parse().ok())?;
    if is_host(&address) { Ok(address) } else { Err(not_a_host(value, example)) }
}

fn not_a_host(value: &Value<'_>, example: &str) -> ConfigError {
    value.error(format!("not the address of one host; write one that is, such as {example}"))
}

fn host_address(value: &Value<'_>) -> Result<IpAddr, ConfigError> {
    source_address(value, "an IP address", ADDRESS_EXAMPLE, IpAddr::is_host)
}

fn prefix(value: &Value<'_>) -> Result<Prefix, ConfigError> {
    value.parsed_by(str::parse)
}

/// A name, which stands in reports and in the paths of keys.
fn name(value: &Value<'_>) -> Result<String, ConfigError> {
    let example = "1 to 63 letters, digits, '-' and '_'";
    value.parsed("a name", example, |text| {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        ((1..=63).contains(&text.len()) && text.bytes().all(sound)).then(|| text.to_owned())
    })
}

fn ports(root: &Section<'_>) -> Result<Vec<Port>, ConfigError> {
    let sections = root.sections("port")?;
    if sections.is_empty() {
        return Err(root.error("port", "missing; write at least one [[port]]"));
    }
    let (mut names, mut devices) = (HashSet::new(), HashSet::new());
    let mut ports = Vec::new();
    for mut section in sections {
        let port = port(&mut section)?;
        if !names.insert(port.name.clone()) {
            let problem = format!("\"{}\" names another port too; write another", port.name);
            return Err(section.error("name", problem));
        }
        if !devices.insert(port.device.clone()) {
            let problem = format!("\"{}\" is another port's too; write another", port.device);
            return Err(section.required("device", "device = \"net_null0\"")?.error(problem));
        }
        ports.push(port);
    }
    for (whom, reached) in [
        ("clients", ports.iter().any(|port| port.side.has_clients())),
        ("backends", ports.iter().any(|port| port.side.has_backends())),
    ] {
        if !reached {
            let problem = format!("no port leads to {whom}; write side = \"both\" for one");
            return Err(root.error("port", problem));
        }
    }
    Ok(ports)
}

fn port(section: &mut Section<'_>) -> Result<Port, ConfigError> {
    let name_value = section.required("name", "name = \"uplink\"")?;
    let name = name(&name_value)?;
    section.set_path(format!("port.{name}"));
    section.allow_only(&["name", "device", "next_hop_mac", "side"])?;
    let device = section.required("device", "device = \"net_null0\"")?;
    let mac = section.required("next_hop_mac", "next_hop_mac = \"02:00:00:00:00:01\"")?;
    let side = section.optional("side").map(|value| {
        let example = "\"client\", \"backend\" or \"both\"";
        value.parsed("a side", example, |text| match text {
            "client" => Some(Side::Client),
            "backend" => Some(Side::Backend),
            "both" => Some(Side::Both),
            _ => None,
        })
    });
    let what = "a device";
    let example = "DPDK's device arguments, such as net_null0, or a PCI address, 0000:01:00.0";
    let sound = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    Ok(Port {
        device_line: device.line(),
        device: device.parsed(what, example, |text| sound(text).then(|| text.to_owned()))?,
        next_hop_mac: mac.parsed(
            "the MAC address of one host",
            "02:00:00:00:00:01",
            unicast_mac,
        )?,
        side: side.unwrap_or(Ok(Side::Both))?,
        name,
    })
}

/// Six pairs of hexadecimal digits with colons between them, neither all zero nor a group address.
fn unicast_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut pairs = text.split(':');
    for byte in &mut mac {
        let pair = pairs.next().filter(|pair| pair.len() == 2 && !pair.starts_with('+'))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    (pairs.next().is_none() && mac != [0; 6] && mac[0] & 1 == 0).then_some(mac)
}

fn services(root: &Section<'_>, balancer: &Balancer) -> Result<Vec<Service>, ConfigError> {
    let sections = root.sections("service")?;
    if sections.is_empty() {
        return Err(root.error("service", "missing; write at least one [[service]]"));
    }
    if sections.len() > SERVICES_MAX {
        return Err(root.error("service", format!("too many; write at most {SERVICES_MAX}")));
    }
    let mut names = HashSet::new();
    let mut seen: HashMap<(Prefix, u8, (u16, u16)), String> = HashMap::new();
    let mut services = Vec::new();
    for mut section in sections {
        let service = service(&mut section, balancer)?;
        if !names.insert(service.name.clone()) {
            let problem = format!("\"{}\" names another service too; write another", service.name);
            return Err(section.error("name", problem));
        }
        let what = (service.address, service.protocol as u8, service.ports.bounds());
        if let Some(other) = seen.insert(what, service.name.clone()) {
            let problem = format!(
                "{} {} {} is service {other}'s too; change the address, protocol or ports of one",
                service.address, service.protocol, service.ports
            );
            let address = section.required("address", "address = \"203.0.113.10\"")?;
            return Err(address.error(problem));
        }
        services.push(service);
    }
    Ok(services)
}

fn service(section: &mut Section<'_>, balancer: &Balancer) -> Result<Service, ConfigError> {
    let name_value = section.required("name", "name = \"web\"")?;
    let name = name(&name_value)?;
    section.set_path(format!("service.{name}"));
    section.allow_only(&["name", "address", "protocol", "ports", "scheduler", "backend"])?;
    let address = section.required("address", "address = \"203.0.113.10\"")?;
    let protocol = section.required("protocol", "protocol = \"tcp\"")?;
    let ports = section.required("ports", "ports = \"80\"")?;
    let scheduler = section.optional("scheduler").map(|value| {
        value.parsed("a scheduler", "\"maglev\"", |text| {
            (text == "maglev").then_some(Scheduler::Maglev)
        })
    });
    Ok(Service {
        address: prefix(&address)?,
        protocol: protocol.parsed(
            "a protocol",
            "\"tcp\", \"udp\" or \"any\"",
            |text| match text {
                "tcp" => Some(Protocol::Tcp),
                "udp" => Some(Protocol::Udp),
                "any" => Some(Protocol::Any),
                _ => None,
            },
        )?,
        ports: ports.parsed(
            "a port, a range or any",
            "\"80\", \"8000-8999\" or \"any\", with ports from 1 to 65535, the lower first",
            port_range,
        )?,
        scheduler: scheduler.unwrap_or(Ok(Scheduler::Maglev))?,
        persistence_s: 0,
        all_down: AllDown::Forward,
        health: None,
        backends: backends(section, balancer)?,
        name,
    })
}

fn port_range(text: &str) -> Option<Ports> {
    let port = |text: &str| {
        let digits = (1..=5).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
        digits.then(|| text.parse::<u16>().ok()).flatten().filter(|port| *port > 0)
    };
    if text == "any" {
        return Some(Ports::Any);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    (first <= last).then_some(Ports::Range { first, last })
}

fn backends(section: &Section<'_>, balancer: &Balancer) -> Result<Vec<Backend>, ConfigError> {
    let sections = section.sections("backend")?;
    if sections.len() > BACKENDS_MAX {
        return Err(section.error("backend", format!("too many; write at most {BACKENDS_MAX}")));
    }
    let mut seen = HashSet::new();
    let mut backends = Vec::new();
    for section in sections {
        section.allow_only(&["address", "weight"])?;
        let value = section.required("address", "address = \"10.0.0.1\"")?;
        let address = host_address(&value)?;
        let own = [balancer.source_v4, balancer.source_v6];
        if own.iter().any(|own| own.contains(address)) || balancer.decapsulate.contains(&address) {
            let problem = format!("{address} is the balancer's own; write the backend's address");
            return Err(value.error(problem));
        }
        if !seen.insert(address) {
            let problem = format!("{address} is in the service already; write it once");
            return Err(value.error(problem));
        }
        let weight = section.optional("weight").map(|value| value.integer(0..=WEIGHT_MAX));
        backends.push(Backend { address, weight: weight.unwrap_or(Ok(1))? });
    }
    Ok(backends)
}
