//! `[[service]]` and its backends.

use super::Health;
use super::balancer::{host_address, prefix};
use super::document::Section;
use super::health::{CaFiles, health};
use super::parse::name;
use super::{BACKENDS_MAX, ConfigError, TIMEOUT_S_MAX, WEIGHT_MAX};
use hotloop::packet::port_range::PortRange;
use hotloop::packet::prefix::Prefix;
use hotloop_balancer::limits::LIMIT_MAX;
use hotloop_balancer::maglev::slots_for;
use hotloop_balancer::spec::{
    AllDown, Backend, Balancer, Ports, Protocol, SERVICES_MAX, Scheduler, ServiceSpec,
};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Reads the services, and their health checks by the name of the service.
pub fn services(
    root: &Section<'_>,
    balancer: &Balancer,
    nested_backends: &[IpAddr],
    ca_files: &mut CaFiles,
) -> Result<(Vec<ServiceSpec>, HashMap<String, Health>), ConfigError> {
    let sections = root.sections("service")?;
    if sections.is_empty() {
        return Err(root.missing("service", "at least one [[service]]"));
    }
    if let Some(surplus) = sections.get(SERVICES_MAX) {
        return Err(surplus.wrong(format!("too many; write at most {SERVICES_MAX}")));
    }
    let mut names = HashSet::new();
    let mut seen: HashMap<(Prefix, u8, (u16, u16)), usize> = HashMap::new();
    let mut services: Vec<ServiceSpec> = Vec::with_capacity(sections.len());
    let mut healths = HashMap::new();
    for mut section in sections {
        let (service, health) = service(&mut section, balancer, ca_files)?;
        if !names.insert(service.name.clone()) {
            let problem = format!("\"{}\" names another service too; write another", service.name);
            return Err(section.error("name", problem));
        }
        let what = (service.address, service.protocol as u8, service.ports.bounds());
        if let Some(other) = seen.insert(what, services.len()) {
            let problem = format!(
                "{} {} {} is service {}'s too; change the address, protocol or ports of one",
                service.address, service.protocol, service.ports, services[other].name
            );
            return Err(section.error_at("address", problem));
        }
        healths.extend(health.map(|health| (service.name.clone(), health)));
        services.push(service);
    }
    check_nesting(root, &services, nested_backends)?;
    Ok((services, healths))
}

/// Checks that no backend is an address of a service: tunnels to it would come back to this
/// balancer, which would wrap them again. A prefix of length 0 contains every address, so it
/// doesn't count.
fn check_nesting(
    root: &Section<'_>,
    services: &[ServiceSpec],
    nested_backends: &[IpAddr],
) -> Result<(), ConfigError> {
    let mut by_len: HashMap<(bool, u8), HashMap<Prefix, &str>> = HashMap::new();
    for ServiceSpec { address, name, .. } in
        services.iter().filter(|service| service.address.len() > 0)
    {
        let of_len = by_len.entry((address.network().is_ipv6(), address.len())).or_default();
        of_len.entry(*address).or_insert(name);
    }
    let holding = |address: IpAddr| {
        let of_family = by_len.iter().filter(|((is_v6, _), _)| *is_v6 == address.is_ipv6());
        let mut found = of_family
            .filter_map(|((_, len), of_len)| of_len.get(&Prefix::of(address, *len)).copied());
        found.next().filter(|_| !nested_backends.contains(&address))
    };
    let mut checked = HashSet::new();
    for (index, service) in services.iter().enumerate() {
        for (place, backend) in service.backends.iter().enumerate() {
            let address = backend.address;
            let Some(name) =
                Some(address).filter(|address| checked.insert(*address)).and_then(holding)
            else {
                continue;
            };
            let mut section = root.sections("service")?.swap_remove(index);
            section.set_path(format!("service.{}", service.name));
            let section = section.sections("backend")?.swap_remove(place);
            let problem = format!(
                "{address} is service {name}'s address: its tunnels would come back to this \
                 balancer; write another, or nested_backends = [\"{address}\"] in [balancer]"
            );
            return Err(section.error_at("address", problem));
        }
    }
    Ok(())
}

const KEYS: &[&str] = &[
    "name",
    "address",
    "protocol",
    "ports",
    "scheduler",
    "persistence_s",
    "all_down",
    "new_connections_per_second_max",
    "health",
    "backend",
];

fn service(
    section: &mut Section<'_>,
    balancer: &Balancer,
    ca_files: &mut CaFiles,
) -> Result<(ServiceSpec, Option<Health>), ConfigError> {
    let name_value = section.required("name", "\"web\"")?;
    let name = name(&name_value)?;
    section.set_path(format!("service.{name}"));
    section.allow_only(KEYS)?;
    let address = section.required("address", "\"203.0.113.10\"")?;
    let address = prefix(&address)?;
    let protocol = section.required("protocol", "\"tcp\"")?;
    let ports = section.required("ports", "\"80\"")?;
    let example = "\"80\", \"8000-8999\" or \"any\", with ports from 1 to 65535, the lower first";
    let ports = ports.parsed("a port, a range or any", example, port_range)?;
    let scheduler =
        section.choice_or("scheduler", "a scheduler", Scheduler::WORDS, Scheduler::Maglev)?;
    let all_down = "what becomes of new connections when all backends are down";
    let service = ServiceSpec {
        address,
        protocol: protocol.choice("a protocol", Protocol::WORDS)?,
        ports,
        scheduler,
        persistence_s: persistence_s(section, scheduler)?,
        all_down: section.choice_or("all_down", all_down, AllDown::WORDS, AllDown::Forward)?,
        new_connections_per_second_max: section
            .integer("new_connections_per_second_max", 1..=LIMIT_MAX)?,
        backends: Vec::new(),
        name,
    };
    let health = match section.section("health")? {
        Some(section) => Some(health(&section, address, ports, balancer, ca_files)?),
        None => None,
    };
    Ok((ServiceSpec { backends: backends(section, balancer)?, ..service }, health))
}

fn persistence_s(section: &Section<'_>, scheduler: Scheduler) -> Result<u32, ConfigError> {
    let Some(value) = section.optional("persistence_s") else { return Ok(0) };
    let seconds = value.integer(0..=TIMEOUT_S_MAX)?;
    if seconds > 0 && scheduler != Scheduler::Source {
        let problem = format!("{scheduler} keeps no clients; write scheduler = \"source\", or 0");
        return Err(value.error(problem));
    }
    Ok(seconds)
}

fn port_range(text: &str) -> Option<Ports> {
    if text == "any" {
        return Some(Ports::Any);
    }
    let range: PortRange = text.parse().ok()?;
    Some(Ports::Range { first: range.first(), last: range.last() })
}

fn backends(section: &Section<'_>, balancer: &Balancer) -> Result<Vec<Backend>, ConfigError> {
    let sections = section.sections("backend")?;
    if let Some(surplus) = sections.get(BACKENDS_MAX) {
        return Err(surplus.wrong(format!("too many; write at most {BACKENDS_MAX}")));
    }
    let slots = balancer.maglev_slots;
    if sections.len() > 1 && sections.len() >= slots as usize {
        let problem = format!(
            "{} backends are too many for tables of {slots} slots; write maglev_slots = {} in [balancer]",
            sections.len(),
            slots_for(sections.len()),
        );
        return Err(section.error("backend", problem));
    }
    let mut seen = HashSet::new();
    let mut backends = Vec::new();
    for section in sections {
        section.allow_only(&["address", "weight"])?;
        let value = section.required("address", "\"10.0.0.1\"")?;
        let address = host_address(&value)?;
        if balancer.sources().any(|own| own.contains(address))
            || balancer.decapsulate.contains(&address)
        {
            let problem = format!("{address} is the balancer's own; write the backend's address");
            return Err(value.error(problem));
        }
        if !seen.insert(address) {
            let problem = format!("{address} is in the service already; write it once");
            return Err(value.error(problem));
        }
        let weight = section.integer_or("weight", 0..=WEIGHT_MAX, 1)?;
        backends.push(Backend { address, weight });
    }
    Ok(backends)
}
