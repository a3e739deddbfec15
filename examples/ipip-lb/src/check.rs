//! `ipip-lb check`: what a configuration was understood to say.

use crate::config::{Backend, Config, DeploymentKind, Service};
use crate::maglev::{Maglev, SLOT_COUNT};
use serde_json::{Value, json};
use std::fmt::{self, Display};

/// A configuration as it was understood. It prints for people.
#[derive(Clone, Copy, Debug)]
pub struct Understood<'a>(pub &'a Config);

impl Understood<'_> {
    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Config { engine, balancer, ports, services } = self.0;
        let texts = |texts: &[String]| json!(texts);
        json!({
            "engine": {
                "deployment": engine.deployment.to_string(),
                "dispatchers": engine.dispatchers,
                "workers": engine.workers,
            },
            "balancer": {
                "source_v4": balancer.source_v4.to_string(),
                "source_v6": balancer.source_v6.to_string(),
                "mtu": balancer.mtu,
                "decapsulate": texts(&strings(&balancer.decapsulate)),
                "tunnel_peers": texts(&strings(&balancer.tunnel_peers)),
                "connections_max": balancer.connections_max,
            },
            "ports": ports.iter().map(|port| json!({
                "name": port.name,
                "device": port.device,
                "next_hop_mac": mac(port.next_hop_mac),
                "side": port.side.to_string(),
            })).collect::<Vec<_>>(),
            "services": services.iter().map(|service| json!({
                "name": service.name,
                "address": service.address.to_string(),
                "protocol": service.protocol.to_string(),
                "ports": service.ports.to_string(),
                "scheduler": "maglev",
                "backends": shares(service).map(|(backend, share)| json!({
                    "address": backend.address.to_string(),
                    "weight": backend.weight,
                    "share": share,
                })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        })
    }
}

impl Display for Understood<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { engine, balancer, ports, services } = self.0;
        match engine.deployment {
            DeploymentKind::RunToCompletion => {
                writeln!(f, "engine: run-to-completion on {} workers", engine.workers)?;
            }
            DeploymentKind::Pipeline => {
                let (dispatchers, workers) = (engine.dispatchers, engine.workers);
                writeln!(f, "engine: pipeline of {dispatchers} dispatchers and {workers} workers")?;
            }
        }
        let (v4, v6) = (balancer.source_v4, balancer.source_v6);
        writeln!(f, "balancer: tunnels from {v4} and {v6}, path MTU {} bytes", balancer.mtu)?;
        writeln!(f, "  unwraps tunnels to {}", listed(&balancer.decapsulate))?;
        writeln!(f, "  from the backends and {}", listed(&balancer.tunnel_peers))?;
        writeln!(f, "  remembers {} connections a worker", balancer.connections_max)?;
        for port in ports {
            let (mac, side) = (mac(port.next_hop_mac), port.side);
            writeln!(f, "port {}: {}, next hop {mac}, side {side}", port.name, port.device)?;
        }
        for service in services {
            let Service { name, address, protocol, ports, .. } = service;
            writeln!(f, "service {name}: {address}, protocol {protocol}, ports {ports}, maglev")?;
            for (Backend { address, weight }, share) in shares(service) {
                writeln!(
                    f,
                    "  backend {address}: weight {weight}, {:.1} % of flows",
                    share * 100.0
                )?;
            }
            if service.backends.iter().all(|backend| backend.weight == 0) {
                writeln!(f, "  no backend of weight above 0: new flows are dropped as no_backend")?;
            }
        }
        Ok(())
    }
}

/// The backends, each with its share of new flows, from 0 to 1.
fn shares(service: &Service) -> impl Iterator<Item = (Backend, f64)> {
    let weights: Vec<_> = service.backends.iter().map(|it| (it.address, it.weight)).collect();
    let maglev = Maglev::new(&weights);
    let share = move |index| maglev.slot_count(index) as f64 / SLOT_COUNT as f64;
    service.backends.iter().enumerate().map(move |(index, backend)| (*backend, share(index)))
}

fn strings<T: Display>(items: &[T]) -> Vec<String> {
    items.iter().map(T::to_string).collect()
}

fn listed<T: Display>(items: &[T]) -> String {
    if items.is_empty() { "nobody".to_owned() } else { strings(items).join(", ") }
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
