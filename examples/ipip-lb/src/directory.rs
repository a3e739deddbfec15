//! What every worker knows: the configuration, compiled for the packet path. Read-only and shared.

use crate::config::{Balancer, Config};
use crate::maglev::Maglev;
use crate::prefix::Prefix;
use crate::rules::Rules;
use hotloop::packet::ip::protocol;
use hotloop::packet::ipip::Tunnel;
use std::net::IpAddr;

/// The configuration, compiled for the packet path.
#[derive(Debug)]
pub struct Directory {
    rules: Rules,
    /// In the order of the configuration.
    services: Vec<Service>,
    /// The backends of all services, one service's behind another's.
    targets: Vec<Target>,
    /// Own tunnel addresses, sorted.
    own: Vec<IpAddr>,
    /// The backends' addresses, sorted.
    backends: Vec<IpAddr>,
    peers: Vec<Prefix>,
    mtu_bytes: usize,
    connections_max: usize,
}

#[derive(Debug)]
struct Service {
    maglev: Maglev,
    /// Where its backends begin among the targets.
    first_target: usize,
}

/// A backend of a service, by its place among those of all services.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TargetIndex(u32);

impl TargetIndex {
    /// Its place among the backends of all services, from 0 in the order of the configuration.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A backend of a service, with the tunnel that leads to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The service's name.
    pub service: String,
    /// The backend's address.
    pub address: IpAddr,
    /// The outer header of packets to it.
    pub tunnel: Tunnel,
}

impl Directory {
    /// What `config` says.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let Balancer { decapsulate, tunnel_peers, mtu, connections_max, .. } = &config.balancer;
        let (mut services, mut targets) = (Vec::new(), Vec::new());
        for service in &config.services {
            let weights: Vec<_> =
                service.backends.iter().map(|it| (it.address, it.weight)).collect();
            services.push(Service { maglev: Maglev::new(&weights), first_target: targets.len() });
            targets.extend(service.backends.iter().map(|backend| Target {
                service: service.name.clone(),
                address: backend.address,
                tunnel: tunnel(&config.balancer, backend.address),
            }));
        }
        let mut backends: Vec<_> = targets.iter().map(|target| target.address).collect();
        backends.sort_unstable();
        backends.dedup();
        let mut own = decapsulate.clone();
        own.sort_unstable();
        Self {
            rules: Rules::new(&config.services),
            services,
            targets,
            own,
            backends,
            peers: tunnel_peers.clone(),
            mtu_bytes: usize::from(*mtu),
            connections_max: *connections_max,
        }
    }

    /// The service for packets to `address`: see [`Rules::find`].
    #[inline]
    #[must_use]
    pub fn service(&self, address: IpAddr, protocol: u8, port: u16) -> Option<usize> {
        let has_ports = protocol == protocol::TCP || protocol == protocol::UDP;
        self.rules.find(address, protocol, has_ports.then_some(port))
    }

    /// Whether `address` is one of some service's.
    #[must_use]
    pub fn is_vip(&self, address: IpAddr) -> bool {
        self.rules.is_vip(address)
    }

    /// The backend of a service for flows of this hash; none where no backend has a weight.
    #[inline]
    #[must_use]
    pub fn backend(&self, service: usize, hash: u32) -> Option<TargetIndex> {
        let Service { maglev, first_target } = &self.services[service];
        maglev.backend(hash).map(|index| TargetIndex((first_target + index) as u32))
    }

    /// The backend at this place.
    #[inline]
    #[must_use]
    pub fn target(&self, index: TargetIndex) -> &Target {
        &self.targets[index.index()]
    }

    /// The backends of all services, in the order of the configuration.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Whether tunnels to `address` end here.
    #[inline]
    #[must_use]
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.own.binary_search(&address).is_ok()
    }

    /// Whether tunnels from `address` are unwrapped: a backend's or a peer's.
    #[inline]
    #[must_use]
    pub fn may_tunnel(&self, address: IpAddr) -> bool {
        self.backends.binary_search(&address).is_ok()
            || self.peers.iter().any(|peer| peer.contains(address))
    }

    /// Longest IP packet on the path to the backends, in bytes.
    #[inline]
    #[must_use]
    pub const fn mtu_bytes(&self) -> usize {
        self.mtu_bytes
    }

    /// How many connections each worker remembers.
    #[must_use]
    pub const fn connections_max(&self) -> usize {
        self.connections_max
    }
}

fn tunnel(balancer: &Balancer, backend: IpAddr) -> Tunnel {
    let source = match backend {
        IpAddr::V4(_) => balancer.source_v4.network(),
        IpAddr::V6(_) => balancer.source_v6.network(),
    };
    Tunnel::new(source, backend).expect("both ends are of the backend's family")
}
