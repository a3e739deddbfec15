//! Chooses the backend of a new connection. Uses the service table, this worker's loads and its
//! table of clients. Never chooses the client itself; the consistent choice depends on the
//! configuration only, so all workers and nodes agree on it.

use super::BalanceDrop;
use crate::address::bits;
use crate::connections::new_table;
use crate::counts::{TargetCounts, WorkerCounts};
use crate::services::{Choice, Found, Service, ServiceTable, ServicesOfFlow, TargetId};
use crate::spec::Scheduler;
use hotloop::arena::{Arena, Obtained, Request};
use hotloop::flow::{Classes, Config, Full, Hint, Table};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::protocol;
use hotloop::stage::{Error, Instant};
use std::net::IpAddr;

/// Usual value of [`BalancerConfig::clients_max`](super::BalancerConfig::clients_max).
pub const CLIENTS_MAX: usize = 65_536;

/// A worker's state for choosing backends.
#[derive(Debug)]
pub struct Schedule {
    /// The load of the target in each slot.
    loads: Box<[Load]>,
    clients: Table<[u64; 3], StickyTarget>,
    obtained: Obtained,
}

/// The load of a target. It belongs to one generation: the next one begins at zero.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    generation: u32,
    connection_count: u32,
    /// Grows by the weight in each turn of the service. A connection costs the sum of all weights.
    credit: i64,
}

/// The target of a client's earlier connections.
#[derive(Clone, Copy, Debug)]
struct StickyTarget {
    target: TargetId,
    since: Instant,
}

impl Schedule {
    /// Makes the state for targets in `slot_capacity` slots and for the backends of `clients_max` clients, in
    /// memory of `node` if that is known.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(
        slot_capacity: usize,
        clients_max: usize,
        node: Option<u32>,
        table_seed: Option<u64>,
    ) -> Result<Self, Error> {
        let bytes = Table::<[u64; 3], StickyTarget>::bytes(clients_max)
            .ok_or_else(|| Error::message(format!("{clients_max} clients: too many")))?;
        let (arena, obtained) = Arena::new(Request { node, ..Request::new(bytes) })?;
        let full = Full::Evict(Classes::ALL);
        let config = Config { full, ..Config::new(clients_max, 0) };
        let clients = new_table(arena, config, table_seed)?;
        Ok(Self { loads: vec![Load::default(); slot_capacity].into(), clients, obtained })
    }

    /// The kind of memory that the table of clients got.
    pub const fn obtained(&self) -> Obtained {
        self.obtained
    }

    /// Sets the maximum time for which clients keep their backends.
    pub fn set_persistence_ns(&mut self, persistence_ns_max: u64) {
        self.clients.set_idle_ns([persistence_ns_max; hotloop::flow::CLASS_COUNT]);
    }

    /// The target that the service's scheduler chooses for a new connection: never the client
    /// itself.
    pub fn choose(
        &mut self,
        services: &ServiceTable,
        service: &Service,
        client: IpAddr,
        hash: u32,
        now: Instant,
    ) -> Result<TargetId, BalanceDrop> {
        let target = match service.scheduler {
            Scheduler::Maglev => service.by_hash(hash),
            Scheduler::RoundRobin => self.next_in_turn(&service.choices),
            Scheduler::LeastConnections => self.least_busy(&service.choices),
            Scheduler::Source => {
                let target = self.consistent(services, service, client, hash, now)?;
                if service.persistence_ns > 0 {
                    let sticky = StickyTarget { target, since: now };
                    // If there is no slot for the client, the hash continues to choose.
                    let key = client_key(service, client);
                    let _ = self.clients.insert(key, sticky, now, &mut |_, _| ());
                }
                return Ok(target);
            }
        };
        let target = target.ok_or(BalanceDrop::NoBackend)?;
        services.other_than_client(service, target, client, hash).ok_or(BalanceDrop::TunnelLoop)
    }

    /// The target that depends on no knowledge of this worker only, except for a client that keeps
    /// its backend: never the client itself.
    pub fn consistent(
        &self,
        services: &ServiceTable,
        service: &Service,
        client: IpAddr,
        hash: u32,
        now: Instant,
    ) -> Result<TargetId, BalanceDrop> {
        let is_by_client = service.scheduler == Scheduler::Source;
        let hash = if is_by_client { services.settings.hashes.of_client(client) } else { hash };
        let sticky =
            if is_by_client { self.sticky_target(services, service, client, now) } else { None };
        let target = sticky.or_else(|| service.by_hash(hash)).ok_or(BalanceDrop::NoBackend)?;
        services.other_than_client(service, target, client, hash).ok_or(BalanceDrop::TunnelLoop)
    }

    /// The backend that a client keeps, if it still takes connections.
    fn sticky_target(
        &self,
        services: &ServiceTable,
        service: &Service,
        client: IpAddr,
        now: Instant,
    ) -> Option<TargetId> {
        if service.persistence_ns == 0 {
            return None;
        }
        let key = client_key(service, client);
        let (handle, _) = self.clients.peek(&key, Hint::NONE, now).ok()?;
        let StickyTarget { target, since } = self.clients[handle];
        let is_usable =
            matches!(services.target(target), Found::Active(target) if target.is_usable);
        (is_usable && now.ns_since(since) < service.persistence_ns).then_some(target)
    }

    /// Weighted turns, spread evenly: each backend gains its weight, and the one with the highest
    /// credit pays for all.
    fn next_in_turn(&mut self, choices: &[Choice]) -> Option<TargetId> {
        let mut winner: Option<(TargetId, i64)> = None;
        let mut sum = 0;
        for choice in choices {
            let load = self.load(choice.target)?;
            load.credit += i64::from(choice.weight);
            sum += i64::from(choice.weight);
            if winner.is_none_or(|(_, most)| load.credit > most) {
                winner = Some((choice.target, load.credit));
            }
        }
        let (target, _) = winner?;
        self.load(target)?.credit -= sum;
        Some(target)
    }

    fn least_busy(&mut self, choices: &[Choice]) -> Option<TargetId> {
        let mut winner: Option<(Choice, u64)> = None;
        for choice in choices {
            let count = u64::from(self.load(choice.target)?.connection_count);
            // Compares the counts divided by the weights, without a division.
            let is_less = winner.is_none_or(|(other, other_count)| {
                count * u64::from(other.weight) < other_count * u64::from(choice.weight)
            });
            if is_less {
                winner = Some((*choice, count));
            }
        }
        winner.map(|(choice, _)| choice.target)
    }

    /// Counts a connection that was added to this target. `counts` are the target's.
    #[inline(always)]
    pub fn connection_added(&mut self, target: TargetId, counts: &TargetCounts) {
        if let Some(load) = self.load(target) {
            load.connection_count += 1;
            counts.connections.set(u64::from(load.connection_count));
        }
    }

    /// Counts a connection that was removed from this target.
    #[inline]
    pub fn connection_removed(&mut self, target: TargetId, counts: &WorkerCounts) {
        let load = self.loads.get_mut(target.slot());
        if let Some(load) = load.filter(|load| load.generation == target.generation) {
            load.connection_count = load.connection_count.saturating_sub(1);
            counts.target(target).connections.set(u64::from(load.connection_count));
        }
    }

    #[inline]
    fn load(&mut self, target: TargetId) -> Option<&mut Load> {
        let load = self.loads.get_mut(target.slot())?;
        if load.generation != target.generation {
            *load = Load { generation: target.generation, ..Load::default() };
        }
        Some(load)
    }
}

/// The services for a connection, and the hash of its flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placement<'d> {
    of: ServicesOfFlow<'d>,
    hash: u32,
}

impl<'d> Placement<'d> {
    /// The services for a connection.
    #[inline(always)]
    pub fn new(services: &'d ServiceTable, key: &FlowKey, hash: u32) -> Self {
        Self { of: services.services_of_flow(key), hash }
    }

    /// Prefetches the memory that [`is_exception`](Self::is_exception) reads.
    #[inline]
    pub fn prefetch(&self, services: &ServiceTable, key: &FlowKey) {
        for service in [self.of.reference, self.of.other].into_iter().flatten() {
            service.prefetch(hash_for(services, service, key, self.hash));
        }
    }

    /// Whether a connection with this target is an exception: a node that doesn't know it might send
    /// its packets to another backend, by one of the reference tables.
    pub fn is_exception(&self, services: &ServiceTable, key: &FlowKey, target: TargetId) -> bool {
        let differs =
            |table: &ServiceTable, service| is_elsewhere(table, service, key, self.hash, target);
        differs(services.reference(), self.of.reference)
            || services.other_reference().is_some_and(|other| differs(other, self.of.other))
    }

    /// The target of a connection that the nodes of a cluster don't know: that of the reference table
    /// in use, if the backend still has its service. For other protocols than TCP it must also be up, as
    /// the packet may begin a flow.
    pub fn of_unknown(&self, services: &ServiceTable, key: &FlowKey) -> Option<TargetId> {
        if !services.has_reference() {
            return None;
        }
        let id = by_configuration(services.reference(), self.of.reference?, key, self.hash)?;
        let target = services.active(id).filter(|target| target.service.is_some())?;
        (key.protocol() == protocol::TCP || target.is_up).then_some(id)
    }
}

/// Whether a table might place a connection elsewhere.
fn is_elsewhere(
    services: &ServiceTable,
    service: Option<&Service>,
    key: &FlowKey,
    hash: u32,
    target: TargetId,
) -> bool {
    let Some(service) = service else { return true };
    // A packet in the midst of TCP goes by its hash, whatever the scheduler; packets of other
    // protocols are never in the midst.
    let is_scheduled_anew = key.protocol() != protocol::TCP
        && matches!(service.scheduler, Scheduler::RoundRobin | Scheduler::LeastConnections);
    is_scheduled_anew || by_configuration(services, service, key, hash) != Some(target)
}

/// The target that depends only on the configuration.
#[inline]
fn by_configuration(
    services: &ServiceTable,
    service: &Service,
    key: &FlowKey,
    hash: u32,
) -> Option<TargetId> {
    let hash = hash_for(services, service, key, hash);
    let target = service.by_hash(hash)?;
    // A branch for each family, as in `services_of_flow`.
    let is_client = match key {
        FlowKey::V4(key) => services.is_at(target, key.source().into()),
        FlowKey::V6(key) => services.is_at(target, key.source().into()),
    };
    if is_client {
        services.other_than_client(service, target, key.source(), hash)
    } else {
        Some(target)
    }
}

/// The hash that a service uses to choose for the client of a flow with this hash.
#[inline(always)]
fn hash_for(services: &ServiceTable, service: &Service, key: &FlowKey, hash: u32) -> u32 {
    let is_by_client = service.scheduler == Scheduler::Source;
    if is_by_client { services.settings.hashes.of_client(key.source()) } else { hash }
}

fn client_key(service: &Service, client: IpAddr) -> [u64; 3] {
    let (family, bits) = (u64::from(client.is_ipv6()) << 32, bits(client));
    [(bits >> 64) as u64, bits as u64, family | u64::from(service.id)]
}
