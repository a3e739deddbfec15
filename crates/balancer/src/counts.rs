//! A worker's counters besides drops: packets per target, and connections. Only the worker writes
//! its counters, and it takes no lock. All packets to backends are in some target's count, also
//! after the target is removed.

mod event;
mod removed_counts;

pub use removed_counts::{REMOVED_MAX, RemovedCounts};

use crate::services::{ServiceTable, TargetId, TargetName};
use event::Event;
use hotloop::arena::Obtained;
use hotloop::stage::Counter;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;

/// The counters of one worker: only that worker writes them, any thread may read.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounts {
    /// Connections remembered now: of IPv4, and of IPv6.
    pub connections: [Counter; 2],
    /// Connections that were new.
    pub admitted: Counter,
    /// New connections that were balanced without being remembered: the table was full, or they came
    /// too fast.
    pub stateless: Counter,
    /// Packets that were unwrapped and sent on to clients.
    pub to_clients: Counter,
    /// The subset of these that are replies on connections which this worker remembers.
    pub replies_known: Counter,
    /// Packets that were answered by ICMP.
    pub answered: Counter,
    /// The kind of memory that each of the worker's tables got: set once, as it starts.
    pub tables: OnceLock<[(&'static str, Obtained); 2]>,
    unknown_tunnel_sources: Event,
    cut_frames: Event,
    /// The counters of the target in each slot.
    targets: Box<[TargetCounts]>,
}

/// A worker's counters for a target.
#[derive(Debug, Default)]
pub struct TargetCounts {
    /// Packets sent to the target.
    pub packets: Counter,
    /// Connections to the target that the worker remembers now.
    pub connections: Counter,
}

impl WorkerCounts {
    /// Counters for targets in `slot_capacity` slots.
    #[must_use]
    pub fn new(slot_capacity: usize) -> Self {
        Self {
            connections: Default::default(),
            admitted: Counter::default(),
            stateless: Counter::default(),
            to_clients: Counter::default(),
            replies_known: Counter::default(),
            answered: Counter::default(),
            tables: OnceLock::new(),
            unknown_tunnel_sources: Event::default(),
            cut_frames: Event::default(),
            targets: (0..slot_capacity).map(|_| TargetCounts::default()).collect(),
        }
    }

    /// Number of connections remembered now.
    #[must_use]
    pub fn connection_count(&self) -> u64 {
        self.connections.iter().map(Counter::count).sum()
    }

    /// Counts a tunnel packet from an address that is neither a backend's nor a peer's. Only the worker may call it.
    pub fn note_unknown_tunnel_source(&self, source: IpAddr) {
        let address = match source {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        self.unknown_tunnel_sources.note(address.to_bits());
    }

    /// The number of tunnel packets from addresses that are neither a backend's nor a peer's, and the
    /// address of the last one. `None` before the first, and while the worker writes one.
    #[must_use]
    pub fn unknown_tunnel_sources(&self) -> Option<(u64, IpAddr)> {
        let (count, address) = self.unknown_tunnel_sources.last()?;
        Some((count, Ipv6Addr::from_bits(address).to_canonical()))
    }

    /// Counts a frame that the device of a port has cut to this many bytes. Only the worker may call it.
    pub fn note_cut_frame(&self, port: u16, bytes: u16) {
        self.cut_frames.note(u128::from(port) << 16 | u128::from(bytes));
    }

    /// The port of the last frame that its device has cut, and to how many bytes. `None` before the first,
    /// and while the worker writes one.
    #[must_use]
    pub fn last_cut_frame(&self) -> Option<(u16, u16)> {
        let (_, cut) = self.cut_frames.last()?;
        Some(((cut >> 16) as u16, cut as u16))
    }

    /// The counters of a target.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline]
    #[must_use]
    pub fn target(&self, target: TargetId) -> &TargetCounts {
        &self.targets[target.slot()]
    }

    /// The counters of all slots.
    #[inline]
    #[must_use]
    pub fn targets(&self) -> &[TargetCounts] {
        &self.targets
    }

    /// Number of packets sent to the target in a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub fn packets(&self, slot: usize) -> u64 {
        self.targets[slot].packets.count()
    }

    /// Resets a slot's counters, for the next target in it. No worker may be counting there.
    pub fn clear(&self, slot: usize) {
        self.targets[slot].packets.set(0);
        self.targets[slot].connections.set(0);
    }
}

/// The counters of all workers. Its `Display` form is for people.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// The service table with the counted backends.
    pub services: &'a ServiceTable,
    /// The workers' counts.
    pub workers: &'a [WorkerCounts],
    /// The counts of removed backends, if backends can be removed.
    pub removed: Option<&'a RemovedCounts>,
}

/// The sums of all workers for a backend of a service.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct TargetSums {
    /// Packets sent to the backend.
    pub packets: u64,
    /// Connections to the backend that are remembered now.
    pub connections: u64,
}

impl Summary<'_> {
    fn sum(&self, counter: impl Fn(&WorkerCounts) -> &Counter) -> u64 {
        self.workers.iter().map(|worker| counter(worker).count()).sum()
    }

    /// The sums for a target.
    #[must_use]
    pub fn target(&self, target: TargetId) -> TargetSums {
        TargetSums {
            packets: self.sum(|worker| &worker.target(target).packets),
            connections: self.sum(|worker| &worker.target(target).connections),
        }
    }

    /// The packets of each removed backend, and the sum of those without a count of their own.
    #[must_use]
    pub fn removed(&self) -> (HashMap<&TargetName, u64>, u64) {
        self.removed.map(|removed| removed.packets(self.workers)).unwrap_or_default()
    }

    /// Each backend's packets, in the order of the services; then those of removed backends. Their
    /// sum is the number of packets sent to backends.
    fn backends(&self) -> Vec<Sent> {
        let mut targets: Vec<_> = self.services.used_targets().collect();
        targets.sort_by_key(|(service, id, _)| (*service, id.slot()));
        let (mut removed, others) = self.removed();
        let services = self.services.all();
        let here = targets.into_iter().map(|(service, id, target)| {
            let name = TargetName::new(&services[service as usize].name, target.address());
            let before = removed.remove(&name).unwrap_or(0);
            Sent { packets: self.target(id).packets + before, name: Some(name), is_gone: false }
        });
        let mut all: Vec<_> = here.collect();
        let mut gone: Vec<_> = removed.into_iter().filter(|(_, packets)| *packets > 0).collect();
        gone.sort();
        let gone = gone.into_iter().map(|(name, packets)| (Some(name.clone()), packets));
        let others = (others > 0).then_some((None, others));
        let gone = gone.chain(others);
        all.extend(gone.map(|(name, packets)| Sent { name, packets, is_gone: true }));
        all
    }

    /// The sums of all workers without single backends.
    #[must_use]
    pub fn sums(&self) -> Sums {
        Sums {
            admitted: self.sum(|counts| &counts.admitted),
            stateless: self.sum(|counts| &counts.stateless),
            to_clients: self.sum(|counts| &counts.to_clients),
            replies_known: self.sum(|counts| &counts.replies_known),
            answered: self.sum(|counts| &counts.answered),
            connections: self.workers.iter().map(WorkerCounts::connection_count).collect(),
        }
    }

    /// The memory of each table of each worker.
    #[must_use]
    pub fn tables(&self) -> Vec<TableMemory> {
        let workers = self.workers.iter().enumerate();
        let tables = workers.flat_map(|(worker, counts)| {
            let tables = counts.tables.get().into_iter().flatten();
            tables.map(move |(table, obtained)| TableMemory {
                worker,
                table: (*table).to_owned(),
                got: obtained.to_string(),
            })
        });
        tables.collect()
    }

    /// The summary for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut json = json!(self.sums());
        json["backends"] = self.backends().iter().map(Sent::to_json).collect();
        json
    }
}

/// The sums of all workers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Sums {
    /// Connections that were new.
    pub admitted: u64,
    /// New connections that were balanced without being remembered.
    pub stateless: u64,
    /// Packets that were unwrapped and sent on to clients.
    pub to_clients: u64,
    /// The subset of these that are replies on remembered connections.
    pub replies_known: u64,
    /// Packets that were answered by ICMP.
    pub answered: u64,
    /// Connections that each worker remembers now.
    pub connections: Vec<u64>,
}

/// The memory of a worker's table.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct TableMemory {
    /// The worker's number.
    pub worker: usize,
    /// The table's name.
    pub table: String,
    /// The pages and the node that the table got.
    pub got: String,
}

/// Packets sent to a backend.
struct Sent {
    /// `None` for the sum of backends that are not remembered by name.
    name: Option<TargetName>,
    packets: u64,
    /// Whether the backend was removed from its service.
    is_gone: bool,
}

impl Sent {
    fn to_json(&self) -> Value {
        json!({
            "service": self.name.as_ref().map(|name| &name.service),
            "address": self.name.as_ref().map(|name| name.address.to_string()),
            "packets": self.packets,
            "is_gone": self.is_gone,
        })
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, packets, is_gone } = self;
        match name {
            Some(TargetName { service, address }) => {
                write!(f, "service {service}: backend {address}: {packets} packets")?;
            }
            None => write!(f, "other backends: {packets} packets")?,
        }
        f.write_str(if *is_gone { ", removed since" } else { "" })
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sent in self.backends() {
            writeln!(f, "{sent}")?;
        }
        let Sums { admitted, stateless, to_clients, answered, connections, .. } = self.sums();
        writeln!(f, "to clients: {to_clients} packets\nanswered by ICMP: {answered} packets")?;
        writeln!(f, "connections: {admitted} new, {stateless} of them not remembered")?;
        for (worker, count) in connections.iter().enumerate() {
            writeln!(f, "  worker {worker} remembers {count}")?;
        }
        Ok(())
    }
}
