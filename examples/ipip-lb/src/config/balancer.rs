//! `[balancer]`.

use super::document::{Section, Value};
use super::store::OPERATOR_FILE;
use super::{
    CONNECTIONS_MAX, ConfigError, MAGLEV_SLOTS_MAX, MAGLEV_SLOTS_MIN, MTU_MIN, TIMEOUT_S_MAX,
};
use hotloop::packet::prefix::{Prefix, PrefixError};
use hotloop_balancer::maglev::{is_prime, prime_from};
use hotloop_balancer::spec::{Balancer, IcmpEcho, Timeouts};
use std::net::{IpAddr, Ipv4Addr};

const KEYS: &[&str] = &[
    "source_v4",
    "source_v6",
    "mtu",
    "decapsulate",
    "tunnel_peers",
    "connections_max",
    "icmp_echo",
    "clamp_mss",
    "maglev_slots",
    "new_connections_per_second_max",
    "timeouts_s",
    "hash_key",
    "nested_backends",
    OPERATOR_FILE,
];

pub fn balancer(section: &Section<'_>) -> Result<Balancer, ConfigError> {
    section.allow_only(KEYS)?;
    let source_v4 = section.required("source_v4", "\"192.0.2.1\"")?;
    let source_v6 =
        |value: &_| source(value, "an IPv6 address or prefix", "2001:db8::1 or 2001:db8::/64");
    let mtu = section.required("mtu", "1500")?;
    section.required("decapsulate", "[]")?;
    let source_v4 = source(&source_v4, "an IPv4 address or prefix", "192.0.2.1 or 192.0.2.0/26")?;
    let default = Balancer::new(source_v4, 0);
    Ok(Balancer {
        source_v6: section.read("source_v6", source_v6)?,
        hash_key: section.read("hash_key", Value::secret)?,
        mtu: mtu.integer(MTU_MIN..=u16::MAX)?,
        decapsulate: section.list("decapsulate", host_address)?,
        tunnel_peers: section.list("tunnel_peers", prefix)?,
        connections_max: section.integer_or(
            "connections_max",
            1..=CONNECTIONS_MAX as usize,
            default.connections_max,
        )?,
        icmp_echo: section.choice_or(
            "icmp_echo",
            "what becomes of echo requests",
            IcmpEcho::WORDS,
            default.icmp_echo,
        )?,
        clamp_mss: section.boolean_or("clamp_mss", default.clamp_mss)?,
        maglev_slots: section.read("maglev_slots", maglev_slots)?.unwrap_or(default.maglev_slots),
        new_connections_per_second_max: section.integer_or(
            "new_connections_per_second_max",
            0..=u32::MAX,
            default.new_connections_per_second_max,
        )?,
        timeouts: match section.section("timeouts_s")? {
            Some(section) => timeouts(&section)?,
            None => default.timeouts,
        },
        ..default
    })
}

/// Reads the backends that may be addresses of services.
pub fn nested_backends(section: &Section<'_>) -> Result<Vec<IpAddr>, ConfigError> {
    section.list("nested_backends", host_address)
}

fn timeouts(section: &Section<'_>) -> Result<Timeouts, ConfigError> {
    section.allow_only(&["tcp_opening", "tcp_established", "tcp_closing", "udp", "other"])?;
    let seconds = |key, default| section.integer_or(key, 1..=TIMEOUT_S_MAX, default);
    let default = Timeouts::default();
    Ok(Timeouts {
        tcp_opening_s: seconds("tcp_opening", default.tcp_opening_s)?,
        tcp_established_s: seconds("tcp_established", default.tcp_established_s)?,
        tcp_closing_s: seconds("tcp_closing", default.tcp_closing_s)?,
        udp_s: seconds("udp", default.udp_s)?,
        other_s: seconds("other", default.other_s)?,
    })
}

fn maglev_slots(value: &Value<'_>) -> Result<u32, ConfigError> {
    let slots = value.integer(MAGLEV_SLOTS_MIN..=MAGLEV_SLOTS_MAX)?;
    if is_prime(slots) {
        return Ok(slots);
    }
    Err(value.error(format!("{slots} is not a prime; write {}", prime_from(slots))))
}

/// Reads an outer source, of the address family of `what` and `example`.
fn source(value: &Value<'_>, what: &str, example: &str) -> Result<Prefix, ConfigError> {
    let is_v6 = example.contains(':');
    let of_family = |text: &str| {
        let address = text.split('/').next().unwrap_or_default().parse::<IpAddr>().ok()?;
        (address.is_ipv6() == is_v6).then(|| text.to_owned())
    };
    let text = value.parsed(what, example, of_family)?;
    let prefix: Prefix = value.parsed_by(|_| text.parse())?;
    if is_hosts(prefix) { Ok(prefix) } else { Err(not_a_host(value, example)) }
}

/// Whether any address of the prefix may belong to one host: it is neither unspecified, nor
/// multicast, nor broadcast.
fn is_hosts(prefix: Prefix) -> bool {
    let group: IpAddr = match prefix.network() {
        IpAddr::V4(_) => Ipv4Addr::new(224, 0, 0, 0).into(),
        IpAddr::V6(_) => "ff00::".parse().expect("an address"),
    };
    let network = prefix.network();
    !prefix.contains(group)
        && !network.is_multicast()
        && !network.is_unspecified()
        && !prefix.contains(Ipv4Addr::BROADCAST.into())
}

fn not_a_host(value: &Value<'_>, example: &str) -> ConfigError {
    value.error(format!("not the address of one host; write one that is, such as {example}"))
}

/// Parses the address of one host.
pub fn host_address(value: &Value<'_>) -> Result<IpAddr, ConfigError> {
    let example = "10.0.0.1 or 2001:db8::1";
    let address = value.parsed("an IP address", example, |text| text.parse().ok())?;
    if let Some(plain) = Prefix::host(address).unmapped() {
        return Err(
            value.error(PrefixError::Mapped { text: address.to_string(), plain }.to_string())
        );
    }
    if is_hosts(Prefix::host(address)) { Ok(address) } else { Err(not_a_host(value, example)) }
}

pub fn prefix(value: &Value<'_>) -> Result<Prefix, ConfigError> {
    value.parsed_by(str::parse)
}
