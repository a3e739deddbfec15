//! What a worker counts besides drops: where packets went, and how its connections fare.

use crate::directory::{Directory, TargetId};
use hotloop::stage::Counter;
use serde_json::{Value, json};
use std::fmt;

/// What one worker counts: it alone writes, anybody may read.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounts {
    /// Connections remembered now.
    pub connections: Counter,
    /// Connections that were new.
    pub admitted: Counter,
    /// New connections that were balanced without being remembered: the table was full, or they came
    /// too fast.
    pub stateless: Counter,
    /// Packets that were unwrapped and sent on to clients.
    pub to_clients: Counter,
    /// Those of them that are replies of connections which this worker remembers.
    pub replies_known: Counter,
    /// Packets that were answered by ICMP.
    pub answered: Counter,
    /// By slot.
    targets: Box<[TargetCounts]>,
}

/// What a worker counts of a target.
#[derive(Debug, Default)]
pub struct TargetCounts {
    /// Packets sent to it.
    pub packets: Counter,
    /// Connections that the worker remembers of it now.
    pub connections: Counter,
}

impl WorkerCounts {
    /// Counts for targets in `slot_capacity` slots.
    #[must_use]
    pub fn new(slot_capacity: usize) -> Self {
        Self {
            connections: Counter::default(),
            admitted: Counter::default(),
            stateless: Counter::default(),
            to_clients: Counter::default(),
            replies_known: Counter::default(),
            answered: Counter::default(),
            targets: (0..slot_capacity).map(|_| TargetCounts::default()).collect(),
        }
    }

    /// What is counted of a target.
    ///
    /// # Panics
    /// When there is no such slot.
    #[inline]
    #[must_use]
    pub fn target(&self, target: TargetId) -> &TargetCounts {
        &self.targets[target.slot()]
    }

    /// Starts a slot's counts over, for whoever has it next. Nobody may be counting there.
    pub fn clear(&self, slot: usize) {
        self.targets[slot].packets.set(0);
        self.targets[slot].connections.set(0);
    }
}

/// What all workers counted. It prints for people.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// Whose backends are counted.
    pub directory: &'a Directory,
    /// The workers' counts.
    pub workers: &'a [WorkerCounts],
}

/// What all workers together counted of a backend of a service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TargetSums {
    /// Packets sent to it.
    pub packets: u64,
    /// Connections remembered of it now.
    pub connections: u64,
}

impl Summary<'_> {
    fn sum(&self, counter: impl Fn(&WorkerCounts) -> &Counter) -> u64 {
        self.workers.iter().map(|worker| counter(worker).count()).sum()
    }

    /// What was counted of a target.
    #[must_use]
    pub fn target(&self, target: TargetId) -> TargetSums {
        TargetSums {
            packets: self.sum(|worker| &worker.target(target).packets),
            connections: self.sum(|worker| &worker.target(target).connections),
        }
    }

    /// Each backend's service, address and packets, in the order of the services.
    fn backends(&self) -> Vec<(&str, std::net::IpAddr, u64)> {
        let targets = self.directory.targets().iter().enumerate();
        let mut taken: Vec<_> = targets
            .filter_map(|(slot, target)| Some((target.service?, slot, target, target.id(slot)?)))
            .collect();
        taken.sort_by_key(|(service, slot, ..)| (*service, *slot));
        let services = self.directory.services();
        taken
            .into_iter()
            .map(|(service, _, target, id)| {
                let name = services[service as usize].name.as_str();
                (name, target.address, self.target(id).packets)
            })
            .collect()
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "admitted": self.sum(|it| &it.admitted),
            "stateless": self.sum(|it| &it.stateless),
            "to_clients": self.sum(|it| &it.to_clients),
            "replies_known": self.sum(|it| &it.replies_known),
            "answered": self.sum(|it| &it.answered),
            "connections": self.workers.iter().map(|it| it.connections.count()).collect::<Vec<_>>(),
            "backends": self.backends().iter().map(|(service, address, packets)| json!({
                "service": service,
                "address": address.to_string(),
                "packets": packets,
            })).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (service, address, packets) in self.backends() {
            writeln!(f, "service {service}: backend {address}: {packets} packets")?;
        }
        writeln!(f, "to clients: {} packets", self.sum(|it| &it.to_clients))?;
        writeln!(f, "answered by ICMP: {} packets", self.sum(|it| &it.answered))?;
        let (admitted, stateless) = (self.sum(|it| &it.admitted), self.sum(|it| &it.stateless));
        writeln!(f, "connections: {admitted} new, {stateless} of them not remembered")?;
        for (index, worker) in self.workers.iter().enumerate() {
            writeln!(f, "  worker {index} remembers {}", worker.connections.count())?;
        }
        Ok(())
    }
}
