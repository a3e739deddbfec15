//! What a worker counts besides drops: where packets went, and how its connections fare.

use crate::directory::{Directory, TargetIndex};
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
    /// New connections that were balanced without being remembered: the table was full.
    pub stateless: Counter,
    /// Packets that were unwrapped and sent on to clients.
    pub to_clients: Counter,
    /// Those of them that are replies of connections which this worker remembers.
    pub replies_known: Counter,
    /// Packets to each backend, by [`TargetIndex`].
    to_backends: Box<[Counter]>,
}

impl WorkerCounts {
    /// Counts for the backends of `directory`.
    #[must_use]
    pub fn new(directory: &Directory) -> Self {
        Self {
            connections: Counter::default(),
            admitted: Counter::default(),
            stateless: Counter::default(),
            to_clients: Counter::default(),
            replies_known: Counter::default(),
            to_backends: directory.targets().iter().map(|_| Counter::default()).collect(),
        }
    }

    /// Packets to the backend.
    #[inline]
    #[must_use]
    pub fn to_backend(&self, target: TargetIndex) -> &Counter {
        &self.to_backends[target.index()]
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

impl Summary<'_> {
    fn sum(&self, counter: impl Fn(&WorkerCounts) -> &Counter) -> u64 {
        self.workers.iter().map(|worker| counter(worker).count()).sum()
    }

    /// Each backend's service, address and packets.
    fn backends(&self) -> impl Iterator<Item = (&str, std::net::IpAddr, u64)> {
        self.directory.targets().iter().enumerate().map(|(index, target)| {
            let packets = self.sum(|worker| &worker.to_backends[index]);
            (target.service.as_str(), target.address, packets)
        })
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "admitted": self.sum(|it| &it.admitted),
            "stateless": self.sum(|it| &it.stateless),
            "to_clients": self.sum(|it| &it.to_clients),
            "replies_known": self.sum(|it| &it.replies_known),
            "connections": self.workers.iter().map(|it| it.connections.count()).collect::<Vec<_>>(),
            "backends": self.backends().map(|(service, address, packets)| json!({
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
        let (admitted, stateless) = (self.sum(|it| &it.admitted), self.sum(|it| &it.stateless));
        writeln!(f, "connections: {admitted} new, {stateless} of them not remembered")?;
        for (index, worker) in self.workers.iter().enumerate() {
            writeln!(f, "  worker {index} remembers {}", worker.connections.count())?;
        }
        Ok(())
    }
}
