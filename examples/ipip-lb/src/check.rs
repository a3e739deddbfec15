//! `ipip-lb check`: what a configuration was understood to say, how much memory it takes, and what of
//! it works but may surprise.

mod json;
mod notes;
mod text;

use crate::config::{Backend, Config, Scheduler, Service};
use crate::connections::Connections;
use crate::maglev;
use crate::rules::Rules;
use std::collections::HashSet;
use std::net::IpAddr;

/// A configuration as it was understood. It prints for people.
#[derive(Clone, Copy, Debug)]
pub struct Understood<'a>(pub &'a Config);

/// The memory that a configuration takes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// One worker's connection tables, of both IP versions.
    connections_bytes: usize,
    /// How many Maglev tables there are: services with the same backends share one.
    maglev_count: usize,
    /// All Maglev tables, while every backend is up.
    maglev_bytes: usize,
    /// How many slots would do for the backends of any service.
    maglev_slots_wanted: u32,
    /// What finds the service of a packet.
    rules_bytes: usize,
}

impl Memory {
    fn of(config: &Config, rules: &Rules) -> Self {
        let slot_count = config.balancer.maglev_slots;
        let tables: HashSet<_> = config.services.iter().map(usable).collect();
        let bytes = tables.iter().map(|backends| maglev::memory_bytes(backends.len(), slot_count));
        let connections_max = config.balancer.connections_max;
        Self {
            // The bound of connections_max is far below what can't be addressed.
            connections_bytes: Connections::bytes(connections_max).unwrap_or(usize::MAX),
            maglev_count: tables.len(),
            maglev_bytes: bytes.sum(),
            maglev_slots_wanted: maglev::slots_for(tables.iter().map(Vec::len).max().unwrap_or(0)),
            rules_bytes: rules.memory_bytes(),
        }
    }
}

/// The backends that get new connections, with their weights.
fn usable(service: &Service) -> Vec<(IpAddr, u32)> {
    let usable = service.backends.iter().filter(|backend| backend.weight > 0);
    usable.map(|backend| (backend.address, backend.weight)).collect()
}

/// The backends, each with its share of new connections, from 0 to 1: by the slots of a Maglev table
/// where that decides, else by the weights.
fn shares(service: &Service, slot_count: u32) -> Vec<(Backend, f64)> {
    let backends = &service.backends;
    let shares = match service.scheduler {
        Scheduler::Maglev | Scheduler::Source => {
            let weights: Vec<_> = backends.iter().map(|it| (it.address, it.weight)).collect();
            maglev::shares(&weights, slot_count as usize)
        }
        Scheduler::RoundRobin | Scheduler::LeastConnections => {
            let sum: u64 = backends.iter().map(|it| u64::from(it.weight)).sum();
            backends.iter().map(|it| f64::from(it.weight) / sum.max(1) as f64).collect()
        }
    };
    backends.iter().copied().zip(shares).collect()
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
