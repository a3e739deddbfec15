//! Finds the service of a packet. Compiled from the services once, then immutable; a lookup
//! allocates nothing. A lookup returns the same service as a linear search for the most specific
//! one.
//!
//! The most specific service wins: a longer prefix comes before a shorter one, then one protocol
//! before any, then a narrower range of ports before a wider one, then the order in the
//! configuration. A prefix without a service that fits yields to the next shorter one.
//!
//! All of that is decided when the rules are made. A lookup then does this for each existing length
//! of prefix, longest first:
//!
//! 1. one probe of a hash table for the address under its mask;
//! 2. if the prefix exists, a search for the service of the port: in the one range that a service
//!    has, in one of at most 16 pieces into which the services divide all ports, or else with two
//!    loads, by the halves of the port.
//!
//! So a lookup takes as long with 100,000 services as with ten, as far as they stay in the caches:
//! a hit reads two of the cache lines that the services share, three if an address has many ranges.

mod exact;
mod ports;
mod prefix_level;

use crate::spec::{Ports, Protocol, ServiceSpec};
use exact::Exact;
use hotloop::packet::prefix::Prefix;
use ports::{PortTables, ServiceIndex};
pub(crate) use prefix_level::Bits;
use prefix_level::{Level, Vip};
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr};

/// IP's protocol numbers of TCP and UDP.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The services, compiled for looking them up.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// The levels of IPv4, longest prefixes first.
    v4: Vec<Level<u32>>,
    v6: Vec<Level<u128>>,
    ports: PortTables,
    /// The services that one probe finds.
    exact: Exact,
}

/// A service among the services of its prefix.
#[derive(Clone, Copy, Debug)]
struct Rule {
    protocol: Protocol,
    ports: Ports,
    service: ServiceIndex,
}

impl Rules {
    /// Compiles the rules of these services. [`find`](Self::find) returns indices into them.
    ///
    /// # Panics
    /// If there are more services than [`SERVICES_MAX`](crate::spec::SERVICES_MAX).
    #[must_use]
    pub fn new(services: &[ServiceSpec]) -> Self {
        assert!(services.len() <= crate::spec::SERVICES_MAX, "{} services", services.len());
        // Groups the services of a prefix, longer prefixes before shorter ones; the sort is stable,
        // so the order of the configuration decides ties.
        let mut order: Vec<usize> = (0..services.len()).collect();
        let place = |prefix: Prefix| (prefix.network().is_ipv6(), Reverse(prefix.len()));
        order.sort_by_key(|&index| {
            let prefix = services[index].address;
            (place(prefix), prefix.network())
        });
        let mut rules = Self::default();
        for of_level in
            order.chunk_by(|&a, &b| place(services[a].address) == place(services[b].address))
        {
            let vips = of_level.chunk_by(|&a, &b| services[a].address == services[b].address);
            let vips = vips.map(|of_vip| rules.ports.vip(services, of_vip)).collect::<Vec<_>>();
            let len = services[of_level[0]].address.len();
            match services[of_level[0]].address.network() {
                IpAddr::V4(_) => rules.v4.push(Level::new(len, &vips)),
                IpAddr::V6(_) => rules.v6.push(Level::new(len, &vips)),
            }
        }
        rules.exact = Exact::new(services, &order);
        rules
    }

    /// [`find`](Self::find) for a TCP or UDP packet in IPv4, among services of one address, one
    /// protocol and one port. If it finds no service, [`find_any_v4`](Self::find_any_v4) still may.
    #[inline(always)]
    #[must_use]
    pub fn find_exact(&self, address: Ipv4Addr, protocol: u8, port: u16) -> Option<usize> {
        self.exact.find(address, protocol, port)
    }

    /// [`find`](Self::find) for a TCP or UDP packet in IPv4.
    #[must_use]
    pub fn find_any_v4(&self, address: Ipv4Addr, protocol: u8, port: u16) -> Option<usize> {
        self.find_in(&self.v4, address.to_bits(), protocol, Some(port))
    }

    /// The index of the service for packets to `address`, with `protocol` (IP's number) and, if the
    /// protocol has ports, to `port`.
    #[inline(always)]
    #[must_use]
    pub fn find(&self, address: IpAddr, protocol: u8, port: Option<u16>) -> Option<usize> {
        match address {
            IpAddr::V4(address) => self.find_in(&self.v4, address.to_bits(), protocol, port),
            IpAddr::V6(address) => self.find_in(&self.v6, address.to_bits(), protocol, port),
        }
    }

    #[inline(always)]
    fn find_in<B: Bits>(
        &self,
        levels: &[Level<B>],
        address: B,
        protocol: u8,
        port: Option<u16>,
    ) -> Option<usize> {
        for level in levels {
            let Some(vip) = level.vip(address) else { continue };
            // No range holds port 0, and a service that takes any port takes packets without one.
            let port = port.unwrap_or(0);
            let service = match protocol {
                TCP => self.ports.service(vip.tcp, port),
                UDP => self.ports.service(vip.udp, port),
                _ => vip.others,
            };
            if let Some(index) = service.index() {
                return Some(index);
            }
        }
        None
    }

    /// Whether `address` belongs to a service, whatever its protocol and ports.
    #[inline]
    #[must_use]
    pub fn is_vip(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => is_in(&self.v4, address.to_bits()),
            IpAddr::V6(address) => is_in(&self.v6, address.to_bits()),
        }
    }

    /// The index of the most specific service of the longest prefix that holds `address`, whatever
    /// its protocol and ports.
    #[must_use]
    pub fn any_of(&self, address: IpAddr) -> Option<usize> {
        let service = match address {
            IpAddr::V4(address) => first_of(&self.v4, address.to_bits()),
            IpAddr::V6(address) => first_of(&self.v6, address.to_bits()),
        };
        service.and_then(ServiceIndex::index)
    }

    /// The indices, below `service_count`, of services that no packet reaches, because others of
    /// their prefix are more specific on all of their ports.
    #[must_use]
    pub fn hidden(&self, service_count: usize) -> Vec<usize> {
        let mut is_reached = vec![false; service_count];
        let mut mark = |service: ServiceIndex| {
            if let Some(reached) = service.index().and_then(|index| is_reached.get_mut(index)) {
                *reached = true;
            }
        };
        self.ports.services().for_each(&mut mark);
        self.v4.iter().flat_map(Level::services).for_each(&mut mark);
        self.v6.iter().flat_map(Level::services).for_each(&mut mark);
        (0..service_count).filter(|index| !is_reached[*index]).collect()
    }

    /// The rules' memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let v4: usize = self.v4.iter().map(Level::memory_bytes).sum();
        let v6: usize = self.v6.iter().map(Level::memory_bytes).sum();
        v4 + v6 + self.ports.memory_bytes() + self.exact.memory_bytes()
    }
}

#[inline]
fn is_in<B: Bits>(levels: &[Level<B>], address: B) -> bool {
    levels.iter().any(|level| level.vip(address).is_some())
}

fn first_of<B: Bits>(levels: &[Level<B>], address: B) -> Option<ServiceIndex> {
    levels.iter().find_map(|level| level.first(address))
}

impl PortTables {
    /// Compiles the rules of a prefix: `of_vip` are the indices of its services, at least one.
    fn vip(&mut self, services: &[ServiceSpec], of_vip: &[usize]) -> Vip {
        let mut rules: Vec<_> = of_vip.iter().map(|index| Rule::of(services, *index)).collect();
        rules.sort_by_key(Rule::breadth);
        let ranges = |protocol: Protocol| {
            let its = |rule: &&Rule| rule.protocol == protocol || rule.protocol == Protocol::Any;
            rules.iter().filter(its).map(|rule| (rule.ports, rule.service)).collect::<Vec<_>>()
        };
        let takes_others =
            |rule: &&Rule| (rule.protocol, rule.ports) == (Protocol::Any, Ports::Any);
        Vip {
            network: services[of_vip[0]].address.network(),
            tcp: self.add(&ranges(Protocol::Tcp)),
            udp: self.add(&ranges(Protocol::Udp)),
            others: rules.iter().find(takes_others).map_or(ServiceIndex::NONE, |rule| rule.service),
            first: rules[0].service,
        }
    }
}

impl Rule {
    fn of(services: &[ServiceSpec], index: usize) -> Self {
        let ServiceSpec { protocol, ports, .. } = services[index];
        Self { protocol, ports, service: ServiceIndex::new(index) }
    }

    /// Sort key for the rules of one prefix: the less, the more specific.
    fn breadth(&self) -> (bool, u32, ServiceIndex) {
        (self.protocol == Protocol::Any, self.ports.count(), self.service)
    }
}

impl Ports {
    /// Number of ports.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::Any => 1 << 16,
            Self::Range { first, last } => last as u32 - first as u32 + 1,
        }
    }

    /// The lowest and the highest port; both 0 for any.
    #[must_use]
    pub const fn bounds(self) -> (u16, u16) {
        match self {
            Self::Any => (0, 0),
            Self::Range { first, last } => (first, last),
        }
    }
}

#[cfg(test)]
mod tests;
