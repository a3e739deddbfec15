//! `ipip-lb check`: the understood configuration, its memory, and notes on settings that work but
//! may surprise.

mod json;
mod notes;
mod text;

use crate::config::Config;
use hotloop_balancer::connections::Connections;
use hotloop_balancer::maglev;
use hotloop_balancer::rules::Rules;
use hotloop_balancer::spec::{Backend, Scheduler, ServiceSpec};
use serde::Serialize;
use std::collections::HashSet;
use std::net::IpAddr;

/// Shown for a configuration without a key.
pub const PUBLIC_HASHES: &str = "hashes of flows are public: whoever chooses ports can choose backend \
                                 and worker; balancer.hash_key, which ipip-lb keygen prints, makes \
                                 them secret";

/// Shown for a configuration with a key.
pub const SECRET_HASHES: &str = "hashes of flows are secret, by balancer.hash_key";

/// A configuration as understood by the program. Its `Display` form is for people.
#[derive(Clone, Copy, Debug)]
pub struct Understood<'a>(pub &'a Config);

/// Maximum number of notes to log at startup.
const NOTES_MAX: usize = 20;

impl Understood<'_> {
    /// Notes on settings that work, but may surprise: the first twenty, and the number of further
    /// ones.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let services = &self.0.services;
        let notes = notes::Notes::of(self.0, &Rules::new(services));
        let about = services.iter().enumerate().flat_map(|(index, service)| {
            let notes = notes.about(index).iter();
            notes.map(move |note| format!("service {}: {note}", service.name))
        });
        let mut all: Vec<_> = notes.general().iter().cloned().chain(about).collect();
        let more_count = all.len().saturating_sub(NOTES_MAX);
        if more_count > 0 {
            all.truncate(NOTES_MAX);
            all.push(format!("{more_count} more notes: ipip-lb check prints all"));
        }
        all
    }
}

/// The memory for a configuration.
#[derive(Clone, Copy, Debug, Serialize)]
struct Memory {
    /// One worker's connection tables, of both IP versions.
    connections_bytes_per_worker: usize,
    /// All workers' connection tables.
    connections_bytes: usize,
    /// Number of Maglev tables: services with the same backends share one.
    maglev_tables: usize,
    /// All Maglev tables, while every backend is up.
    maglev_bytes: usize,
    /// Number of slots that would suffice for the backends of any service.
    #[serde(skip)]
    maglev_slots_wanted: u32,
    /// The tables that find the service of a packet.
    rules_bytes: usize,
}

impl Memory {
    fn of(config: &Config, rules: &Rules) -> Self {
        let slot_count = config.balancer.maglev_slots;
        let tables: HashSet<_> = config.services.iter().map(usable).collect();
        let bytes = tables.iter().map(|backends| maglev::memory_bytes(backends.len(), slot_count));
        // The limit of connections_max is far below the size that can't be addressed.
        let connections_bytes_per_worker =
            Connections::bytes(config.balancer.connections_max).unwrap_or(usize::MAX);
        Self {
            connections_bytes_per_worker,
            connections_bytes: connections_bytes_per_worker.saturating_mul(config.engine.workers),
            maglev_tables: tables.len(),
            maglev_bytes: bytes.sum(),
            maglev_slots_wanted: maglev::slots_for(tables.iter().map(Vec::len).max().unwrap_or(0)),
            rules_bytes: rules.memory_bytes(),
        }
    }
}

/// The backends that get new connections, with their weights.
fn usable(service: &ServiceSpec) -> Vec<(IpAddr, u32)> {
    let usable = service.backends.iter().filter(|backend| backend.weight > 0);
    usable.map(|backend| (backend.address, backend.weight)).collect()
}

/// The backends, each with its share of new connections, from 0 to 1: by the slots of a Maglev
/// table if the scheduler uses one, else by the weights.
fn shares(service: &ServiceSpec, slot_count: u32) -> Vec<(Backend, f64)> {
    let backends = &service.backends;
    let shares = match service.scheduler {
        Scheduler::Maglev | Scheduler::Source => {
            let weights: Vec<_> =
                backends.iter().map(|backend| (backend.address, backend.weight)).collect();
            maglev::shares(&weights, slot_count as usize)
        }
        Scheduler::RoundRobin | Scheduler::LeastConnections => {
            let sum: u64 = backends.iter().map(|backend| u64::from(backend.weight)).sum();
            backends.iter().map(|backend| f64::from(backend.weight) / sum.max(1) as f64).collect()
        }
    };
    backends.iter().copied().zip(shares).collect()
}
