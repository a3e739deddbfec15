//! Builds a service table from a configuration and the later changes. Runs on control's thread
//! only. A service or backend that stays keeps its number and its slot.

use super::digest;
use super::refresh::{Arranged, Member, View};
use super::slots::{Owner, Slots};
use super::{Maglevs, SLOTS_SPARE, Service, ServiceTable, Settings, Target, TooManyTargets};
use crate::hashes::Hashes;
use crate::limits::{Buckets, SourceLimit};
use crate::rules::{Bits, Rules};
use crate::spec::{Backend, Balancer, ServiceSpec, Spec, Timeouts};
use crate::state::State;
use hotloop::flow::CLASS_COUNT;
use hotloop::packet::ipip::Tunnel;
use hotloop::packet::prefix::Prefix;
use hotloop::packet::prefix::PrefixSet;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Changes since the configuration was read. The next read resets them, except health and blocks.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Backends that are down.
    pub down: HashSet<TargetName>,
    /// Prefixes whose packets to services are dropped; `None` if there are no blocks.
    pub blocked: Option<Arc<PrefixSet>>,
    /// Weights other than the configuration's.
    pub weights: HashMap<TargetName, u32>,
    /// Backends taken out of their services.
    pub removed: HashMap<TargetName, Removal>,
}

/// A backend of a service, by the names that operators use.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TargetName {
    /// The service's name.
    pub service: String,
    /// The backend's address.
    pub address: IpAddr,
}

impl TargetName {
    /// The name of a service's backend.
    #[must_use]
    pub fn new(service: &str, address: IpAddr) -> Self {
        Self { service: service.to_owned(), address }
    }
}

/// A backend that was removed from its service, and the slot that still has its counts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RemovedTarget {
    /// The slot of the backend.
    pub slot: usize,
    /// The backend's name.
    pub name: TargetName,
}

/// Treatment of the connections of a backend that is taken out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Removal {
    /// The connections go to other backends.
    Rebalance,
    /// The connections end: TCP packets are dropped until a SYN comes, and other flows begin anew.
    Flush,
}

/// Builds service tables. A clone builds like the original: only one of the two may continue.
#[derive(Clone, Debug)]
pub struct Builder {
    slots: Slots,
    /// The number of each name and address, kept for ever: a service that comes back gets its old
    /// number.
    service_ids: HashMap<(String, Prefix), u32>,
    /// The name of each service number.
    service_names: Vec<Arc<str>>,
    removed: Vec<RemovedTarget>,
    maglevs: Maglevs,
    buckets: Buckets,
}

impl Builder {
    /// A builder with room for twice the backends of `services`, and [`SLOTS_SPARE`] more.
    #[must_use]
    pub fn new(services: &[ServiceSpec]) -> Self {
        let target_count: usize = services.iter().map(|service| service.backends.len()).sum();
        Self {
            slots: Slots::new(2 * target_count + SLOTS_SPARE),
            service_ids: HashMap::new(),
            service_names: Vec::new(),
            removed: Vec::new(),
            maglevs: Maglevs::default(),
            buckets: Buckets::default(),
        }
    }

    /// Uses buckets of limits that are the same in every run, for replays.
    #[must_use]
    pub fn repeatable(self) -> Self {
        Self { buckets: Buckets::repeatable(), ..self }
    }

    /// Maximum number of targets at once, for callers with a value for each.
    #[must_use]
    pub const fn slot_capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// The Maglev tables in use, for [`ServiceTable::refreshed`].
    #[must_use]
    pub const fn maglevs(&self) -> &Maglevs {
        &self.maglevs
    }

    /// Builds the service table of `spec` and `standing`.
    ///
    /// # Errors
    /// If there are more backends than slots; the previous table stays valid.
    pub fn build(
        &mut self,
        spec: &Spec<'_>,
        standing: &Standing,
    ) -> Result<ServiceTable, TooManyTargets> {
        let ids: Vec<_> = spec.services.iter().map(|service| self.service_id(service)).collect();
        let view = View::new(standing);
        let staying = staying(spec, &ids, &view);
        let newcomer_count = staying.iter().filter(|owner| !self.slots.has(owner)).count();
        self.slots.check_room(newcomer_count)?;
        self.vacate(&staying, spec, &ids, standing);
        self.maglevs.forget();

        let mut services = Vec::with_capacity(spec.services.len());
        let mut arranged_services = Vec::with_capacity(spec.services.len());
        for (service, &id) in spec.services.iter().zip(&ids) {
            let stays = |backend: &&Backend| !view.is_removed(service, backend.address);
            let members = service.backends.iter().filter(stays).map(|backend| {
                let (address, (weight, is_up)) = (backend.address, view.of(service, backend));
                Member { target: self.slots.take((id, address)), address, weight, is_up }
            });
            let members: Vec<_> = members.collect();
            let slot_count = spec.balancer.maglev_slots;
            let arranged = Arranged::new(service, &members, &self.maglevs, slot_count);
            let limit = service.new_connections_per_second_max.or(spec.limits.service_max);
            services.push(Service {
                id,
                name: Arc::clone(&self.service_names[id as usize]),
                scheduler: service.scheduler,
                persistence_ns: u64::from(service.persistence_s) * 1_000_000_000,
                limit: limit.map(|limit| self.buckets.service(id, limit)),
                choices: Arc::clone(&arranged.choices),
                targets: members.iter().map(|member| member.target).collect(),
                maglev: Arc::clone(&arranged.maglev),
                configured_digest: digest::of_configured(service),
                digest: 0,
                is_reference: true,
            });
            arranged_services.push((members, arranged));
        }
        let source_limit = self.buckets.sources(spec.limits);
        let blocked = standing.blocked.clone();
        Ok(self.table(spec, services, arranged_services, source_limit, blocked))
    }

    /// Tells the builder that all workers use the last service table. Returns the slots that are free
    /// again: control may clear their counters now.
    pub fn settle(&mut self) -> Vec<u32> {
        self.slots.settle()
    }

    /// Takes the targets that were removed since the last call.
    pub fn take_removed(&mut self) -> Vec<RemovedTarget> {
        std::mem::take(&mut self.removed)
    }

    /// The number of a service.
    fn service_id(&mut self, service: &ServiceSpec) -> u32 {
        let next_id = self.service_names.len() as u32;
        let id = *self.service_ids.entry(service_key(service)).or_insert(next_id);
        if id == next_id {
            self.service_names.push(service.name.as_str().into());
        }
        id
    }

    /// Frees the slots of backends that don't stay.
    fn vacate(
        &mut self,
        staying: &HashSet<Owner>,
        spec: &Spec<'_>,
        ids: &[u32],
        standing: &Standing,
    ) {
        let flushes = standing.removed.iter().filter(|(_, how)| **how == Removal::Flush);
        let flushed: HashSet<_> = flushes.map(|(name, _)| (&*name.service, name.address)).collect();
        let mut flushed_owners = HashSet::new();
        if !flushed.is_empty() {
            for (service, &id) in spec.services.iter().zip(ids) {
                let backends = service.backends.iter().map(|backend| backend.address);
                let backends =
                    backends.filter(|address| flushed.contains(&(&*service.name, *address)));
                flushed_owners.extend(backends.map(|address| (id, address)));
            }
        }
        let (removed, names) = (&mut self.removed, &self.service_names);
        self.slots.retain(
            |owner| staying.contains(owner),
            |owner, slot| {
                let name = TargetName::new(&names[owner.0 as usize], owner.1);
                removed.push(RemovedTarget { slot: slot as usize, name });
                flushed_owners.contains(owner)
            },
        );
    }

    fn table(
        &self,
        spec: &Spec<'_>,
        services: Vec<Service>,
        arranged_services: Vec<(Vec<Member>, Arranged)>,
        source_limit: Option<SourceLimit>,
        blocked: Option<Arc<PrefixSet>>,
    ) -> ServiceTable {
        let balancer = &spec.balancer;
        let members = || arranged_services.iter().flat_map(|(members, _)| members);
        let mut targets: Vec<_> = self.slots.states().iter().map(vacant).collect();
        for (index, (members, _)) in (0..).zip(&arranged_services) {
            for member in members {
                let target = &mut targets[member.target.slot()];
                target.tunnel = tunnel(balancer, member.address);
                let outer_bytes = target.tunnel.outer_header_bytes() as u16;
                target.packet_bytes_max = balancer.mtu.saturating_sub(outer_bytes);
                target.service = Some(index);
            }
        }
        let sorted = |mut addresses: Vec<IpAddr>| {
            addresses.sort_unstable();
            addresses.dedup();
            addresses
        };
        let mut table = ServiceTable {
            serial: super::next_serial(),
            digest: 0,
            targets_serial: super::next_serial(),
            rules: Rules::new(spec.services),
            has_limits: source_limit.is_some()
                || services.iter().any(|service| service.limit.is_some()),
            references: [None, None],
            source_limit,
            blocked,
            probe_sources: balancer.probe_sources.clone(),
            services,
            targets,
            source_v4: mask_and_network(balancer.source_v4),
            source_v6: balancer.source_v6,
            own: sorted(balancer.decapsulate.clone()),
            own_v4: balancer.decapsulate.iter().filter_map(|address| u32::of(*address)).collect(),
            backends: sorted(members().map(|member| member.address).collect()),
            peers: balancer.tunnel_peers.clone(),
            settings: settings(spec),
        };
        for (index, (members, arranged)) in arranged_services.into_iter().enumerate() {
            table.arrange(index, &members, arranged);
        }
        table
    }
}

/// The backends that were not taken out.
fn staying(spec: &Spec<'_>, ids: &[u32], view: &View<'_>) -> HashSet<Owner> {
    let mut staying = HashSet::new();
    for (service, &id) in spec.services.iter().zip(ids) {
        let addresses = service.backends.iter().map(|backend| backend.address);
        let addresses = addresses.filter(|address| !view.is_removed(service, *address));
        staying.extend(addresses.map(|address| (id, address)));
    }
    staying
}

/// The mask and the first address of an IPv4 prefix as numbers: it contains an address if the address
/// under the mask equals the first one. For an IPv6 prefix, no address matches.
fn mask_and_network(prefix: Prefix) -> [u32; 2] {
    match (prefix.network(), prefix.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            [!(first.to_bits() ^ last.to_bits()), first.to_bits()]
        }
        _ => [0, 1],
    }
}

/// The identity of a service. With another address, it is another service: connections to the old
/// one end.
fn service_key(service: &ServiceSpec) -> (String, Prefix) {
    (service.name.clone(), service.address)
}

fn vacant(state: &super::slots::SlotState) -> Target {
    let nowhere = Ipv4Addr::UNSPECIFIED;
    Target {
        generation: state.generation,
        flushed: state.flushed,
        tunnel: Tunnel::new(nowhere, nowhere).expect("both ends are of one family"),
        packet_bytes_max: 0,
        is_usable: false,
        service: None,
        weight: 0,
        is_up: false,
    }
}

fn tunnel(balancer: &Balancer, backend: IpAddr) -> Tunnel {
    let source = match backend {
        IpAddr::V4(_) => Some(balancer.source_v4),
        IpAddr::V6(_) => balancer.source_v6,
    };
    // Only a reference table may have a backend of IPv6 without it: that one wraps nothing.
    let source = source.unwrap_or_else(|| Prefix::host(backend));
    let source = (source.network(), source.len());
    Tunnel::spread(source, backend).expect("both ends are of the backend's family")
}

fn settings(spec: &Spec<'_>) -> Settings {
    let balancer = &spec.balancer;
    let persistence_s = spec.services.iter().map(|service| service.persistence_s).max();
    Settings {
        hashes: Hashes::new(balancer.hash_key),
        mtu_bytes: balancer.mtu,
        icmp_echo: balancer.icmp_echo,
        clamp_mss: balancer.clamp_mss,
        new_connections_per_second_max: balancer.new_connections_per_second_max,
        idle_ns: idle_ns(&balancer.timeouts),
        prepare_ns_max: u64::from(spec.prepare_ms_max) * 1_000_000,
        persistence_ns_max: u64::from(persistence_s.unwrap_or(0)) * 1_000_000_000,
    }
}

/// The idle timeout of each [`State`].
fn idle_ns(timeouts: &Timeouts) -> [u64; CLASS_COUNT] {
    let mut idle_ns = [0; CLASS_COUNT];
    for (state, seconds) in [
        (State::Opening, timeouts.tcp_opening_s),
        (State::Established, timeouts.tcp_established_s),
        (State::Closing, timeouts.tcp_closing_s),
        (State::Udp, timeouts.udp_s),
        (State::Other, timeouts.other_s),
    ] {
        idle_ns[state as usize] = u64::from(seconds) * 1_000_000_000;
    }
    idle_ns
}
