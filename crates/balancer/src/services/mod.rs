//! The service table: the configuration, compiled for the packet path. Control builds it with locks
//! and allocations; workers only read it. A table never changes after it is published.
//!
//! For every change, control builds a new [`ServiceTable`] off the packet path and publishes it to
//! the workers, which switch to it between two bursts. A backend that stays keeps its [`TargetId`],
//! so that its connections stay valid.

mod build;
mod digest;
mod maglevs;
mod reference;
mod refresh;
mod slots;
mod target;

pub use build::{Builder, Removal, RemovedTarget, Standing, TargetName};
pub use maglevs::Maglevs;
pub use reference::{ServicesOfFlow, is_echo};
pub use slots::{SLOTS_SPARE, TooManyTargets};
pub use target::{Found, Target, TargetId};

use crate::hashes::Hashes;
use crate::limits::{Refused, ServiceLimit, SourceLimit};
use crate::maglev::Maglev;
use crate::rules::Rules;
use crate::spec::{IcmpEcho, Scheduler};
use hotloop::flow::CLASS_COUNT;
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4};
use hotloop::packet::ip::protocol;
use hotloop::packet::prefix::Prefix;
use hotloop::packet::prefix::PrefixSet;
use hotloop::stage::Instant;
use reference::Reference;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A snapshot of the configuration, compiled for the packet path. A clone shares the choices and
/// Maglev tables of the services.
#[derive(Clone, Debug)]
pub struct ServiceTable {
    /// See [`serial`](Self::serial).
    serial: u64,
    /// See [`digest`](Self::digest).
    digest: u64,
    /// See [`targets_serial`](Self::targets_serial).
    targets_serial: u64,
    rules: Rules,
    /// The services, in the order of the configuration.
    services: Vec<Service>,
    /// The target in each slot; unused slots are vacant.
    targets: Vec<Target>,
    /// Source addresses of IPv4 tunnels: a mask, and the addresses under it. Each new connection is
    /// compared.
    source_v4: [u32; 2],
    /// Source addresses of IPv6 tunnels.
    source_v6: Option<Prefix>,
    /// Own tunnel addresses, sorted.
    own: Vec<IpAddr>,
    /// The IPv4 addresses among them.
    own_v4: Vec<u32>,
    /// The backends' addresses, sorted.
    backends: Vec<IpAddr>,
    peers: Vec<Prefix>,
    /// Prefixes whose packets to services are dropped; `None` if there are no blocks.
    blocked: Option<Arc<PrefixSet>>,
    /// Source addresses of probes through tunnels: two at most.
    probe_sources: Vec<IpAddr>,
    /// The limit on new connections from each prefix.
    source_limit: Option<SourceLimit>,
    /// Whether there is a limit on new connections.
    has_limits: bool,
    /// See [`reference`](Self::reference) and [`other_reference`](Self::other_reference).
    references: [Option<Reference>; 2],
    /// Settings for all services.
    pub settings: Settings,
}

/// Settings for all services.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The hashes that choose a flow's worker and backend.
    pub hashes: Hashes,
    /// Longest IP packet on the path to the backends, in bytes.
    pub mtu_bytes: u16,
    /// Treatment of echo requests to a service's address.
    pub icmp_echo: IcmpEcho,
    /// Whether SYN-ACKs of the return path get an MSS that fits the tunnel.
    pub clamp_mss: bool,
    /// Maximum number of connections that a worker enters into its table in a second.
    pub new_connections_per_second_max: u32,
    /// Time until a silent connection is removed, for each
    /// [`State`](crate::state::State).
    pub idle_ns: [u64; CLASS_COUNT],
    /// Time within which workers examine all connections after a change, in nanoseconds.
    pub prepare_ns_max: u64,
    /// The longest persistence of any service: how long clients keep their backends.
    pub persistence_ns_max: u64,
}

/// A service, in the form for the packet path.
#[derive(Clone, Debug)]
pub struct Service {
    /// The service's number, which stays the same while a service of this name and address is
    /// configured.
    pub id: u32,
    /// The service's name.
    pub name: Arc<str>,
    /// The scheduler, which chooses the backend of a new connection.
    pub scheduler: Scheduler,
    /// Time for which a client keeps its backend after its last new connection.
    pub persistence_ns: u64,
    /// The limit on new connections to the service.
    limit: Option<ServiceLimit>,
    /// The targets for new connections, in the order of the configuration.
    pub choices: Arc<[Choice]>,
    /// The targets of all its backends that were not removed, in the order of the configuration.
    targets: Arc<[TargetId]>,
    /// Digest of the values that a refresh doesn't change, and digest of all values.
    configured_digest: u64,
    digest: u64,
    /// The Maglev table of [`choices`](Self::choices), shared by all services with the same
    /// choices.
    maglev: Arc<Maglev>,
    /// Whether all reference tables choose alike.
    is_reference: bool,
}

/// A target for new connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Choice {
    /// The target.
    pub target: TargetId,
    /// The target's weight, above 0.
    pub weight: u32,
}

/// The next serial of tables, and of their targets.
static NEXT_SERIAL: AtomicU64 = AtomicU64::new(ServiceTable::NO_TARGETS + 1);

fn next_serial() -> u64 {
    NEXT_SERIAL.fetch_add(1, Relaxed)
}

impl ServiceTable {
    /// A number that distinguishes all tables that this process makes: a clone keeps the number of
    /// its original, any other table gets a new one.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// The serial of the table's set of targets. Tables with the same number have the same targets
    /// in the same slots, with the same tunnels. They may differ in weights, health, blocks and the
    /// [reference](Self::reference) tables.
    #[inline(always)]
    #[must_use]
    pub const fn targets_serial(&self) -> u64 {
        self.targets_serial
    }

    /// The [serial](Self::targets_serial) of no set of targets.
    pub const NO_TARGETS: u64 = 0;

    /// A digest of everything that decides the backends of new connections: the services, and the backends
    /// and weights in use. Nodes with the same digest choose alike.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// The target with this backend, for a flow from a client: in the flow's service if that has
    /// the backend, else in any; `None` if the backend has no service.
    #[must_use]
    pub fn target_at(&self, key: &FlowKey, backend: IpAddr) -> Option<TargetId> {
        if !self.is_backend(backend) {
            return None;
        }
        let of_service = self.service_of_flow(key).map_or(&[][..], |service| &service.targets);
        let found = of_service.iter().copied().find(|id| self.is_at(*id, backend));
        found.or_else(|| {
            // The flow's service has lost the backend since, or the flow belongs to one of many
            // protocols.
            let all = self.targets.iter().enumerate();
            all.filter_map(|(slot, target)| target.id(slot)).find(|id| self.is_at(*id, backend))
        })
    }

    /// The service for packets to `address`: see [`Rules::find`].
    #[inline(always)]
    #[must_use]
    pub fn service_of(&self, address: IpAddr, protocol: u8, port: u16) -> Option<&Service> {
        self.index_of(address, protocol, port).map(|index| &self.services[index])
    }

    #[inline(always)]
    fn index_of(&self, address: IpAddr, protocol: u8, port: u16) -> Option<usize> {
        let has_ports = protocol == protocol::TCP || protocol == protocol::UDP;
        self.rules.find(address, protocol, has_ports.then_some(port))
    }

    /// The service of a flow from a client.
    #[must_use]
    pub fn service_of_flow(&self, key: &FlowKey) -> Option<&Service> {
        self.service_of(key.destination(), key.protocol(), key.destination_port())
    }

    /// The service of a flow of TCP or UDP in IPv4 from a client.
    #[inline(always)]
    pub(crate) fn service_of_v4(&self, key: &FlowKeyV4) -> Option<&Service> {
        let (address, protocol, port) = (key.destination(), key.protocol(), key.destination_port());
        match self.rules.find_exact(address, protocol, port) {
            Some(index) => self.services.get(index),
            None => self.service_of_any_v4(address, protocol, port),
        }
    }

    /// Separate from [`service_of_v4`](Self::service_of_v4), which must stay small because it is
    /// inlined.
    #[cold]
    #[inline(never)]
    fn service_of_any_v4(&self, address: Ipv4Addr, protocol: u8, port: u16) -> Option<&Service> {
        self.services.get(self.rules.find_any_v4(address, protocol, port)?)
    }

    /// The most specific service of the longest prefix that contains `address`, whatever its
    /// protocol and ports.
    #[must_use]
    pub fn any_service_of(&self, address: IpAddr) -> Option<&Service> {
        self.rules.any_of(address).map(|index| &self.services[index])
    }

    /// Whether `address` belongs to a service.
    #[inline]
    #[must_use]
    pub fn is_vip(&self, address: IpAddr) -> bool {
        self.rules.is_vip(address)
    }

    /// Prefixes whose packets to services are dropped; `None` if there are no blocks.
    #[inline(always)]
    #[must_use]
    pub fn blocked(&self) -> Option<&PrefixSet> {
        self.blocked.as_deref()
    }

    /// Whether packets to `address` are replies to probes.
    #[must_use]
    pub fn is_probe_source(&self, address: IpAddr) -> bool {
        self.probe_sources.contains(&address)
    }

    /// Whether there is a limit on new connections.
    #[inline(always)]
    #[must_use]
    pub const fn has_limits(&self) -> bool {
        self.has_limits
    }

    /// Counts a connection that begins now.
    ///
    /// # Errors
    /// Returns the limit that refuses the connection. The client's limit comes first, so that a
    /// client's excess connections take nothing from the service's limit.
    pub fn admit(&self, service: &Service, client: IpAddr, now: Instant) -> Result<(), Refused> {
        if self.source_limit.as_ref().is_some_and(|limit| !limit.admits(client, now)) {
            return Err(Refused::Source);
        }
        match &service.limit {
            Some(limit) if !limit.admits(now) => Err(Refused::Service),
            _ => Ok(()),
        }
    }

    /// The services, in the order of the configuration.
    #[must_use]
    pub fn all(&self) -> &[Service] {
        &self.services
    }

    /// All slots, vacant ones among them.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The targets that are backends of services, each with its service's index.
    pub fn used_targets(&self) -> impl Iterator<Item = (u32, TargetId, &Target)> {
        let targets = self.targets.iter().enumerate();
        targets.filter_map(|(slot, target)| Some((target.service?, target.id(slot)?, target)))
    }

    /// The table's memory, in bytes. Parts that several services share count once.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let Self { rules, services, targets, backends, .. } = self;
        let of_all = size_of_val(&**services) + size_of_val(&**targets) + size_of_val(&**backends);
        let of_each =
            |service: &Service| size_of_val(&*service.choices) + size_of_val(&*service.targets);
        let of_each: usize = services.iter().map(of_each).sum();
        let mut seen = HashSet::new();
        let maglevs = services.iter().map(|service| &service.maglev);
        let maglevs = maglevs.filter(|maglev| seen.insert(Arc::as_ptr(maglev)));
        let of_maglevs: usize = maglevs.map(|maglev| maglev.memory_bytes()).sum();
        rules.memory_bytes() + of_all + of_each + of_maglevs
    }

    /// The state of a target.
    #[inline]
    #[must_use]
    pub fn target(&self, id: TargetId) -> Found<'_> {
        match self.targets.get(id.slot()) {
            Some(target) if target.generation == id.generation => Found::Active(target),
            Some(target) if target.was_flushed(id.generation) => Found::Flushed,
            _ => Found::Removed,
        }
    }

    /// A target that is a backend of its service.
    #[inline(always)]
    #[must_use]
    pub fn active(&self, id: TargetId) -> Option<&Target> {
        self.targets.get(id.slot()).filter(|target| target.generation == id.generation)
    }

    /// Whether a target is the backend with this address.
    #[inline(always)]
    #[must_use]
    pub fn is_at(&self, target: TargetId, address: IpAddr) -> bool {
        self.active(target).is_some_and(|target| target.address() == address)
    }

    /// `target` or, if that is the client itself, another target of the service: chosen by this
    /// hash, in proportion to the weights. `None` if there is no other.
    #[inline(always)]
    #[must_use]
    pub fn other_than_client(
        &self,
        service: &Service,
        target: TargetId,
        client: IpAddr,
        hash: u32,
    ) -> Option<TargetId> {
        if self.is_at(target, client) {
            self.other_choice(service, client, hash)
        } else {
            Some(target)
        }
    }

    /// A target of the service that is not the client itself.
    #[cold]
    #[inline(never)]
    fn other_choice(&self, service: &Service, client: IpAddr, hash: u32) -> Option<TargetId> {
        let others = || service.choices.iter().filter(|choice| !self.is_at(choice.target, client));
        let sum: u64 = others().map(|choice| u64::from(choice.weight)).sum();
        let mut point = (u64::from(hash) * sum) >> 32;
        let other = others().find(|choice| {
            let is_there = point < u64::from(choice.weight);
            point = point.saturating_sub(choice.weight.into());
            is_there
        });
        other.map(|choice| choice.target)
    }

    /// Whether tunnels begin or end at `address` here.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::manual_contains, reason = "for a few addresses, a plain loop is quicker")]
    pub fn is_tunnel_source(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let ([mask, network], address) = (self.source_v4, address.to_bits());
                address & mask == network || self.own_v4.iter().any(|own| *own == address)
            }
            IpAddr::V6(_) => {
                self.source_v6.is_some_and(|source| source.contains(address))
                    || self.is_own(address)
            }
        }
    }

    /// Whether tunnels to `address` end here.
    #[inline]
    #[must_use]
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.own.binary_search(&address).is_ok()
    }

    /// Whether `address` belongs to a backend.
    #[inline]
    #[must_use]
    pub fn is_backend(&self, address: IpAddr) -> bool {
        self.backends.binary_search(&address).is_ok()
    }

    /// Whether tunnels from `address` are unwrapped: it is a backend's or a peer's.
    #[inline]
    #[must_use]
    pub fn may_tunnel(&self, address: IpAddr) -> bool {
        self.is_backend(address) || self.peers.iter().any(|peer| peer.contains(address))
    }
}

impl Service {
    /// Whether both services use the same Maglev table in memory.
    #[must_use]
    pub fn shares_table(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.maglev, &other.maglev)
    }

    /// The target that every balancer with this configuration chooses by this hash; `None` if the
    /// service has no usable target.
    #[inline(always)]
    #[must_use]
    pub fn by_hash(&self, hash: u32) -> Option<TargetId> {
        self.maglev.backend(hash).map(|index| self.choices[index].target)
    }

    /// Prefetches the memory that [`by_hash`](Self::by_hash) reads.
    #[inline(always)]
    pub fn prefetch(&self, hash: u32) {
        self.maglev.prefetch(hash);
    }
}
