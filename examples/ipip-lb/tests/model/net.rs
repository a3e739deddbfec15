//! The configuration, evaluated simply: every lookup goes through all services.

use super::wire::{TCP, UDP};
use hotloop::packet::ipip::Tunnel;
use hotloop::packet::prefix::Prefix;
use hotloop::packet::seed::Seed;
use hotloop::testing::Rng;
use hotloop_balancer::maglev::Maglev;
use hotloop_balancer::spec::{AllDown, Balancer, Ports, Protocol, Scheduler, ServiceSpec};
use ipip_lb::config::Config;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// A backend of a service, for as long as it belongs to the service: one that comes back is
/// another.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Target {
    pub service: ServiceId,
    pub address: IpAddr,
    pub coming: u32,
}

/// A service's name, as a number, and the number of times that it was configured anew.
pub type ServiceId = (u32, u32);

/// Changes by operators and health checks.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Backends with failing probes, with the service's number.
    pub down: HashSet<(u32, IpAddr)>,
    pub weights: HashMap<(u32, IpAddr), u32>,
    /// Removed backends; true if their connections end with them.
    pub removed: HashMap<(u32, IpAddr), bool>,
}

/// A service in its current state.
#[derive(Debug)]
pub struct Standed {
    pub id: ServiceId,
    pub config: ServiceSpec,
    /// Its backends with their current weights, in the order of the configuration.
    pub targets: Vec<(Target, u32)>,
    /// The backends for new connections.
    pub usable: Vec<(Target, u32)>,
    /// Whether none of the backends with a weight is up.
    pub is_all_down: bool,
    maglev: Maglev,
}

#[derive(Debug)]
pub struct Net {
    pub balancer: Balancer,
    pub services: Vec<Standed>,
    pub flushed: HashSet<Target>,
    comings: HashMap<(ServiceId, IpAddr), u32>,
    service_comings: HashMap<u32, u32>,
}

/// The number in a service's name: `s7` is 7.
pub fn number(service: &ServiceSpec) -> u32 {
    service.name[1..].parse().expect("s and a number")
}

impl Net {
    pub fn new(config: &Config) -> Self {
        let mut net = Self {
            balancer: config.balancer.clone(),
            services: Vec::new(),
            flushed: HashSet::new(),
            comings: HashMap::new(),
            service_comings: HashMap::new(),
        };
        net.renew(config, &Standing::default());
        net
    }

    /// Switches to another configuration or standing.
    pub fn renew(&mut self, config: &Config, standing: &Standing) {
        self.balancer = config.balancer.clone();
        let before: Vec<Standed> = std::mem::take(&mut self.services);
        for service in &config.services {
            let number = number(service);
            // With another address it is another service.
            let is_same = |it: &Standed| it.id.0 == number && it.config.address == service.address;
            let is_new = !before.iter().any(is_same);
            *self.service_comings.entry(number).or_default() += u32::from(is_new);
            let id = (number, self.service_comings[&number]);
            let (mut targets, mut is_down) = (Vec::new(), Vec::new());
            for backend in &service.backends {
                let name = (number, backend.address);
                if standing.removed.contains_key(&name) {
                    continue;
                }
                let was = before.iter().filter(|it| it.id == id).flat_map(|it| &it.targets);
                let stays = was.clone().any(|(target, _)| target.address == backend.address);
                let coming = self.comings.entry((id, backend.address)).or_default();
                *coming += u32::from(!stays);
                let target = Target { service: id, address: backend.address, coming: *coming };
                targets.push((target, *standing.weights.get(&name).unwrap_or(&backend.weight)));
                is_down.push(
                    config.health.contains_key(&service.name) && standing.down.contains(&name),
                );
            }
            let weighted: Vec<_> =
                targets.iter().zip(&is_down).filter(|((_, weight), _)| *weight > 0).collect();
            let is_all_down = !weighted.is_empty() && weighted.iter().all(|(_, is_down)| **is_down);
            let any_will_do = is_all_down && service.all_down == AllDown::Forward;
            let usable: Vec<_> = weighted
                .iter()
                .filter(|(_, is_down)| any_will_do || !**is_down)
                .map(|(it, _)| **it)
                .collect();
            let shares: Vec<_> = usable.iter().map(|(it, weight)| (it.address, *weight)).collect();
            let maglev = Maglev::new(&shares, self.balancer.maglev_slots as usize);
            self.services.push(Standed {
                id,
                config: service.clone(),
                targets,
                usable,
                is_all_down,
                maglev,
            });
        }
        for (target, _) in before.iter().flat_map(|it| &it.targets) {
            if standing.removed.get(&(target.service.0, target.address)) == Some(&true)
                && !self.exists(*target)
            {
                self.flushed.insert(*target);
            }
        }
    }

    pub fn exists(&self, target: Target) -> bool {
        self.services.iter().any(|it| it.targets.iter().any(|(other, _)| *other == target))
    }

    pub fn is_usable(&self, target: Target) -> bool {
        self.services.iter().any(|it| it.usable.iter().any(|(other, _)| *other == target))
    }

    pub fn is_vip(&self, address: IpAddr) -> bool {
        self.services.iter().any(|it| holds(it.config.address, address))
    }

    pub fn is_own(&self, address: IpAddr) -> bool {
        self.balancer.decapsulate.contains(&address)
    }

    /// Whether tunnels begin or end at this address here.
    pub fn is_entry(&self, address: IpAddr) -> bool {
        let mut sources = self.balancer.sources();
        sources.any(|prefix| holds(prefix, address)) || self.is_own(address)
    }

    pub fn may_tunnel(&self, source: IpAddr) -> bool {
        self.services.iter().any(|it| it.targets.iter().any(|(other, _)| other.address == source))
            || self.balancer.tunnel_peers.iter().any(|peer| holds(*peer, source))
    }

    /// The service for packets of this protocol, and port if it has any.
    pub fn service(&self, address: IpAddr, protocol: u8, port: u16) -> Option<usize> {
        let port = matches!(protocol, TCP | UDP).then_some(port);
        let takes = |it: &ServiceSpec| {
            let is_any = it.ports == Ports::Any;
            let has_protocol = match it.protocol {
                Protocol::Tcp => protocol == TCP,
                Protocol::Udp => protocol == UDP,
                Protocol::Any => is_any || port.is_some(),
            };
            let has_port = match (it.ports, port) {
                (Ports::Any, _) => true,
                (Ports::Range { first, last }, Some(port)) => (first..=last).contains(&port),
                (Ports::Range { .. }, None) => false,
            };
            has_protocol && has_port
        };
        self.most_specific(address, takes)
    }

    /// The most specific service of the longest prefix that contains the address.
    pub fn any_of(&self, address: IpAddr) -> Option<usize> {
        self.most_specific(address, |_| true)
    }

    fn most_specific(
        &self,
        address: IpAddr,
        takes: impl Fn(&ServiceSpec) -> bool,
    ) -> Option<usize> {
        let all = self.services.iter().map(|it| &it.config).enumerate();
        let fitting = all.filter(|(_, it)| holds(it.address, address) && takes(it));
        let best = fitting.min_by_key(|(index, it)| {
            let port_count = match it.ports {
                Ports::Any => 65_536,
                Ports::Range { first, last } => u32::from(last - first) + 1,
            };
            (Reverse(it.address.len()), it.protocol == Protocol::Any, port_count, *index)
        });
        best.map(|(index, _)| index)
    }

    /// The backend for a hash in the Maglev table of a service.
    pub fn by_hash(&self, service: usize, hash: u32) -> Option<Target> {
        let service = &self.services[service];
        service.maglev.backend(hash).map(|index| service.usable[index].0)
    }

    pub fn scheduler(&self, service: usize) -> Scheduler {
        self.services[service].config.scheduler
    }
}

/// Whether the prefix contains the address.
pub fn holds(prefix: Prefix, address: IpAddr) -> bool {
    let first_bits = |address: IpAddr| match address {
        IpAddr::V4(address) => first_bits(u128::from(address.to_bits()) << 96, prefix.len()),
        IpAddr::V6(address) => first_bits(address.to_bits(), prefix.len()),
    };
    let network = prefix.network();
    network.is_ipv4() == address.is_ipv4() && first_bits(network) == first_bits(address)
}

fn first_bits(bits: u128, count: u8) -> u128 {
    if count == 0 { 0 } else { bits >> (128 - u32::from(count)) }
}

/// The source of a flow's tunnel packets: an address of the prefix with host bits from the packet
/// crate, which also computes the flow's hash.
pub fn tunnel_source(prefix: Prefix, destination: IpAddr, flow_hash: u32) -> IpAddr {
    let tunnel = Tunnel::spread((prefix.network(), prefix.len()), destination);
    let source = tunnel.expect("both of one family").source(flow_hash);
    assert!(holds(prefix, source), "{source} is not in {prefix}");
    source
}

/// The secret, if there is one.
fn key(balancer: &Balancer) -> Option<u128> {
    balancer.hash_key.map(|key| u128::from_str_radix(&key.to_hex(), 16).expect("hexadecimal"))
}

/// The seed of flows' hashes, which the packet crate makes from the secret, or from the public
/// value.
pub fn seed(balancer: &Balancer) -> Seed {
    key(balancer).map_or(Seed::new(0x6970_6970_2D6C_6200), Seed::from_key)
}

/// The hash of a client's address for scheduler `source`: its two halves (an IPv4 address is the
/// lower one), in sequence, through SplitMix64's output function, each changed by a number made
/// from the secret; by none without a secret.
pub fn client_hash(balancer: &Balancer, client: IpAddr) -> u32 {
    let spread = |number: u64| Rng::seeded(number).next_u64();
    let (first, second) = key(balancer).map_or((0, 0), |key| {
        let (high, low) = ((key >> 64) as u64, key as u64);
        (spread(spread(low) ^ high), spread(spread(high) ^ low))
    });
    let bits: u128 = match client {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    };
    let upper = spread((bits >> 64) as u64 ^ first);
    (spread(upper ^ bits as u64 ^ second) >> 32) as u32
}
