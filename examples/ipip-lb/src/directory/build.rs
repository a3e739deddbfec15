//! From a configuration, and what changed since it was read, to a directory.

use super::slots::{Owner, Slots};
use super::{Choice, Directory, SLOTS_SPARE, Service, Settings, Target, TargetId, TooManyTargets};
use crate::config::{self, AllDown, Balancer, Config, Health, Timeouts};
use crate::connection::State;
use crate::hashes::Hashes;
use crate::maglev::Maglev;
use crate::prefix::Prefix;
use crate::rules::Rules;
use hotloop::flow::CLASS_COUNT;
use hotloop::packet::ipip::Tunnel;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};

/// What changed since the configuration was read, until it is read again; but for health, which
/// outlasts that.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Backends that fail their probes.
    pub down: HashSet<(IpAddr, Health)>,
    /// Weights other than the configuration's.
    pub weights: HashMap<TargetName, u32>,
    /// Backends taken out of their services.
    pub removed: HashMap<TargetName, Removal>,
}

/// A backend of a service, as operators call it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TargetName {
    /// The service's name.
    pub service: String,
    /// The backend's address.
    pub address: IpAddr,
}

/// What becomes of the connections of a backend that is taken out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Removal {
    /// They go to other backends.
    Rebalance,
    /// They end: TCP's packets are dropped until a SYN comes, and other flows begin anew.
    Flush,
}

/// Builds one directory after the other. It belongs to control.
#[derive(Debug)]
pub struct Builder {
    slots: Slots,
    /// By name and address, for ever: a service that comes back is the one that it was.
    service_ids: HashMap<(String, Prefix), u32>,
    /// Those that directories have, by what they were made of.
    maglevs: HashMap<Vec<(IpAddr, u32)>, Weak<Maglev>>,
    maglev_slots: u32,
}

impl Builder {
    /// A builder with room for the backends of `config`, as many again, and [`SLOTS_SPARE`] more.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let target_count: usize = config.services.iter().map(|it| it.backends.len()).sum();
        Self {
            slots: Slots::new(2 * target_count + SLOTS_SPARE),
            service_ids: HashMap::new(),
            maglevs: HashMap::new(),
            maglev_slots: config.balancer.maglev_slots,
        }
    }

    /// How many targets there may be at once, for whoever keeps something for each.
    #[must_use]
    pub const fn slot_capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// The directory of `config` as things stand.
    ///
    /// # Errors
    /// There are more backends than there is room for; what there was goes on being so.
    pub fn build(
        &mut self,
        config: &Config,
        standing: &Standing,
    ) -> Result<Directory, TooManyTargets> {
        let members = self.members(config, standing);
        let newcomer_count =
            members.iter().flatten().filter(|it| !self.slots.has(&it.owner)).count();
        self.slots.check_room(newcomer_count)?;
        self.vacate(&members, config, standing);
        self.forget_maglevs(config.balancer.maglev_slots);

        let mut services = Vec::with_capacity(config.services.len());
        let mut seats = Vec::new();
        for (index, (service, members)) in config.services.iter().zip(&members).enumerate() {
            let any_up = members.iter().any(|it| it.weight > 0 && it.is_up);
            let all_down_forwards = !any_up && service.all_down == AllDown::Forward;
            let mut choices = Vec::new();
            let mut weights = Vec::new();
            for member in members {
                let target = self.slots.take(member.owner);
                let is_usable = member.weight > 0 && (member.is_up || all_down_forwards);
                if is_usable {
                    choices.push(Choice { target, weight: member.weight });
                    weights.push((member.owner.1, member.weight));
                }
                seats.push(Seat { target, service: index as u32, is_usable, member: *member });
            }
            services.push(Service {
                id: self.service_ids[&service_key(service)],
                name: service.name.clone(),
                scheduler: service.scheduler,
                persistence_ns: u64::from(service.persistence_s) * 1_000_000_000,
                choices,
                maglev: self.maglev(weights),
            });
        }
        Ok(self.directory(config, services, &seats))
    }

    /// All workers know the last directory and no earlier one. Returns the slots that are free
    /// again, whose counters control may clear now.
    pub fn settle(&mut self) -> Vec<u32> {
        self.slots.settle()
    }

    /// Each service's backends but those taken out, as they stand.
    fn members(&mut self, config: &Config, standing: &Standing) -> Vec<Vec<Member>> {
        let mut all = Vec::with_capacity(config.services.len());
        for service in &config.services {
            let next_id = self.service_ids.len() as u32;
            let id = *self.service_ids.entry(service_key(service)).or_insert(next_id);
            let backends = service.backends.iter();
            let members = backends.filter_map(|it| member(service, id, it, standing));
            all.push(members.collect());
        }
        all
    }

    /// Takes their slots from those that are no longer there.
    fn vacate(&mut self, members: &[Vec<Member>], config: &Config, standing: &Standing) {
        let staying: HashSet<_> = members.iter().flatten().map(|it| it.owner).collect();
        let flushed: HashSet<Owner> = standing
            .removed
            .iter()
            .filter(|(_, removal)| **removal == Removal::Flush)
            .filter_map(|(name, _)| {
                let service = config.services.iter().find(|it| it.name == name.service)?;
                Some((self.service_ids[&service_key(service)], name.address))
            })
            .collect();
        self.slots.retain(|owner| staying.contains(owner), |owner| flushed.contains(owner));
    }

    /// Forgets tables that no directory has, and all where they are to be of another size.
    fn forget_maglevs(&mut self, slots: u32) {
        if std::mem::replace(&mut self.maglev_slots, slots) != slots {
            self.maglevs.clear();
        }
        self.maglevs.retain(|_, maglev| maglev.strong_count() > 0);
    }

    fn maglev(&mut self, weights: Vec<(IpAddr, u32)>) -> Arc<Maglev> {
        if let Some(maglev) = self.maglevs.get(&weights).and_then(Weak::upgrade) {
            return maglev;
        }
        let maglev = Arc::new(Maglev::new(&weights, self.maglev_slots as usize));
        self.maglevs.insert(weights, Arc::downgrade(&maglev));
        maglev
    }

    fn directory(&self, config: &Config, services: Vec<Service>, seats: &[Seat]) -> Directory {
        let balancer = &config.balancer;
        let mut targets: Vec<_> = self.slots.states().iter().map(vacant).collect();
        for seat in seats {
            let target = &mut targets[seat.target.slot()];
            let Member { owner: (_, address), weight, is_up } = seat.member;
            target.tunnel = tunnel(balancer, address);
            target.is_usable = seat.is_usable;
            target.service = Some(seat.service);
            (target.address, target.weight, target.is_up) = (address, weight, is_up);
        }
        let sorted = |mut addresses: Vec<IpAddr>| {
            addresses.sort_unstable();
            addresses.dedup();
            addresses
        };
        Directory {
            rules: Rules::new(&config.services),
            services,
            targets,
            own: sorted(balancer.decapsulate.clone()),
            backends: sorted(seats.iter().map(|seat| seat.member.owner.1).collect()),
            peers: balancer.tunnel_peers.clone(),
            settings: settings(config),
        }
    }
}

/// A backend of a service, as it stands.
#[derive(Clone, Copy, Debug)]
struct Member {
    owner: Owner,
    weight: u32,
    is_up: bool,
}

/// A backend with its slot.
struct Seat {
    target: TargetId,
    service: u32,
    is_usable: bool,
    member: Member,
}

/// What a service is known by. Of another address, it is another: connections to the old one end.
fn service_key(service: &config::Service) -> (String, Prefix) {
    (service.name.clone(), service.address)
}

/// How a backend stands; none where it was taken out.
fn member(
    service: &config::Service,
    service_id: u32,
    backend: &config::Backend,
    standing: &Standing,
) -> Option<Member> {
    let name = TargetName { service: service.name.clone(), address: backend.address };
    if standing.removed.contains_key(&name) {
        return None;
    }
    let health = service.health.as_ref();
    let is_down =
        health.is_some_and(|health| standing.down.contains(&(backend.address, health.clone())));
    Some(Member {
        owner: (service_id, backend.address),
        weight: standing.weights.get(&name).copied().unwrap_or(backend.weight),
        is_up: !is_down,
    })
}

fn vacant(state: &super::slots::SlotState) -> Target {
    let nowhere = Ipv4Addr::UNSPECIFIED;
    Target {
        generation: state.generation,
        flushed: state.flushed,
        tunnel: Tunnel::new(nowhere, nowhere).expect("both ends are of one family"),
        is_usable: false,
        service: None,
        address: nowhere.into(),
        weight: 0,
        is_up: false,
    }
}

fn tunnel(balancer: &Balancer, backend: IpAddr) -> Tunnel {
    let source = match backend {
        IpAddr::V4(_) => balancer.source_v4,
        IpAddr::V6(_) => balancer.source_v6,
    };
    let source = (source.network(), source.len());
    Tunnel::spread(source, backend).expect("both ends are of the backend's family")
}

fn settings(config: &Config) -> Settings {
    let balancer = &config.balancer;
    let persistence_s = config.services.iter().map(|it| it.persistence_s).max();
    Settings {
        hashes: Hashes::new(balancer.hash_key),
        mtu_bytes: balancer.mtu,
        icmp_echo: balancer.icmp_echo,
        clamp_mss: balancer.clamp_mss,
        new_connections_per_second_max: balancer.new_connections_per_second_max,
        idle_ns: idle_ns(&balancer.timeouts),
        persistence_ns_max: u64::from(persistence_s.unwrap_or(0)) * 1_000_000_000,
    }
}

/// The idle times by [`State`].
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
