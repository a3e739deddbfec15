//! A reference table as text: nodes of a cluster send it to each other.

use crate::overrides::Overrides;
use hotloop::packet::prefix::Prefix;
use hotloop_balancer::services::TargetName;
use hotloop_balancer::spec::{Backend, Ports, Protocol, Scheduler, ServiceSpec};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A service, with all that decides which backend a connection in its midst belongs to.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Service {
    name: String,
    address: String,
    protocol: String,
    /// The lowest and the highest port; `None` for all.
    ports: Option<(u16, u16)>,
    /// Whether the client's address alone chooses the backend.
    is_by_client: bool,
    /// The backends that get new connections, with their weights.
    backends: Vec<(IpAddr, u32)>,
}

/// The text of these services, with operators' weights and removals, but whatever their health.
#[must_use]
pub fn to_text(services: &[ServiceSpec], overrides: &Overrides) -> String {
    let service = |service: &ServiceSpec| Service {
        name: service.name.clone(),
        address: service.address.to_string(),
        protocol: service.protocol.to_string(),
        ports: match service.ports {
            Ports::Any => None,
            Ports::Range { first, last } => Some((first, last)),
        },
        is_by_client: service.scheduler == Scheduler::Source,
        backends: backends(service, overrides),
    };
    let services: Vec<_> = services.iter().map(service).collect();
    serde_json::to_string(&services).expect("names, numbers and addresses")
}

/// The backends that get new connections, in the order of their addresses.
fn backends(service: &ServiceSpec, overrides: &Overrides) -> Vec<(IpAddr, u32)> {
    let backend = |backend: &Backend| {
        let name = TargetName::new(&service.name, backend.address);
        let is_removed = overrides.removed.contains_key(&name);
        let weight = overrides.weights.get(&name).copied().unwrap_or(backend.weight);
        (!is_removed && weight > 0).then_some((backend.address, weight))
    };
    let mut backends: Vec<_> = service.backends.iter().filter_map(backend).collect();
    backends.sort_unstable();
    backends
}

/// The services of such a text.
///
/// # Errors
/// If it is none, with the reason.
pub fn from_text(text: &str) -> Result<Vec<ServiceSpec>, String> {
    let services: Vec<Service> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    services.into_iter().map(ServiceSpec::try_from).collect()
}

impl TryFrom<Service> for ServiceSpec {
    type Error = String;

    fn try_from(service: Service) -> Result<Self, String> {
        let Service { name, address, protocol, ports, is_by_client, backends } = service;
        let wrong = |what: &str, value: &str| format!("{name}: no {what}: {value}");
        let prefix: Prefix = address.parse().map_err(|_| wrong("address", &address))?;
        let mut words = Protocol::WORDS.iter();
        let found = words.find(|(word, _)| *word == protocol);
        let (_, protocol) = *found.ok_or_else(|| wrong("protocol", &protocol))?;
        let ports = match ports {
            None => Ports::Any,
            Some((first, last)) if (1..=last).contains(&first) => Ports::Range { first, last },
            Some(ports) => return Err(wrong("range of ports", &format!("{ports:?}"))),
        };
        let scheduler = if is_by_client { Scheduler::Source } else { Scheduler::Maglev };
        let backend = |(address, weight)| Backend { address, weight };
        let backends = backends.into_iter().map(backend).collect();
        Ok(Self { ports, scheduler, ..Self::new(&name, prefix, protocol, backends) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_balancer::services::Removal;

    fn service(scheduler: Scheduler) -> ServiceSpec {
        let backend = |last| Backend { address: [10, 0, 0, last].into(), weight: last.into() };
        let backends = [0, 1, 2, 3].map(backend).into();
        let address = "203.0.113.0/28".parse().unwrap();
        let ports = Ports::Range { first: 80, last: 88 };
        ServiceSpec {
            scheduler,
            ports,
            ..ServiceSpec::new("web", address, Protocol::Tcp, backends)
        }
    }

    #[test]
    fn a_text_has_all_that_chooses_a_backend() {
        let mut overrides = Overrides::default();
        overrides.weights.insert(TargetName::new("web", [10, 0, 0, 1].into()), 7);
        overrides.removed.insert(TargetName::new("web", [10, 0, 0, 2].into()), Removal::Flush);
        for scheduler in [Scheduler::Source, Scheduler::RoundRobin] {
            let text = to_text(&[service(scheduler)], &overrides);
            let [read] = &from_text(&text).unwrap()[..] else { panic!("{text}") };
            let weights: Vec<_> = read.backends.iter().map(|backend| backend.weight).collect();
            assert_eq!(weights, [7, 3], "{text}");
            assert_eq!(read.scheduler == Scheduler::Source, scheduler == Scheduler::Source);
            assert_eq!((read.ports, read.protocol), (service(scheduler).ports, Protocol::Tcp));
            assert_eq!(to_text(std::slice::from_ref(read), &Overrides::default()), text);
        }
    }

    #[test]
    fn another_text_is_refused_with_the_reason() {
        let text = to_text(&[service(Scheduler::Maglev)], &Overrides::default());
        for (from, to, why) in [
            ("203.0.113.0/28", "nowhere", "web: no address: nowhere"),
            ("\"tcp\"", "\"tcq\"", "web: no protocol: tcq"),
            ("[80,88]", "[88,80]", "web: no range of ports: (88, 80)"),
            ("\"name\"", "\"nome\"", "unknown field"),
        ] {
            let error = from_text(&text.replace(from, to)).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
