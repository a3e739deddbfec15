//! Which service a packet is for.

use crate::config::{Ports, Protocol, Service};
use crate::prefix::Prefix;
use std::cmp::Reverse;
use std::net::IpAddr;

/// IP's protocol numbers of TCP and UDP.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The services, compiled for looking them up: the most specific one wins. A longer prefix comes
/// before a shorter one, then one protocol before any, then a narrower range of ports before a wider
/// one, then the order in the configuration.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    v4: Vec<Level>,
    v6: Vec<Level>,
}

/// The services whose prefixes have one length, longest first among the levels.
#[derive(Clone, Debug)]
struct Level {
    len: u8,
    /// Sorted by network.
    vips: Vec<Vip>,
}

/// The services of one prefix.
#[derive(Clone, Debug)]
struct Vip {
    network: u128,
    /// The most specific first.
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    protocol: Protocol,
    ports: Ports,
    service: usize,
}

impl Rules {
    /// The rules of the services given. What [`find`](Self::find) yields are their indices.
    #[must_use]
    pub fn new(services: &[Service]) -> Self {
        let mut rules = Self::default();
        for (index, service) in services.iter().enumerate() {
            let rule = Rule { protocol: service.protocol, ports: service.ports, service: index };
            rules.insert(service.address, rule);
        }
        rules
    }

    fn insert(&mut self, prefix: Prefix, rule: Rule) {
        let levels = if prefix.network().is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        let len = prefix.len();
        let at = levels.binary_search_by_key(&Reverse(len), |level| Reverse(level.len));
        let at = at.unwrap_or_else(|at| {
            levels.insert(at, Level { len, vips: Vec::new() });
            at
        });
        let vips = &mut levels[at].vips;
        let network = bits(prefix.network());
        let at = vips.binary_search_by_key(&network, |vip| vip.network).unwrap_or_else(|at| {
            vips.insert(at, Vip { network, rules: Vec::new() });
            at
        });
        let rules = &mut vips[at].rules;
        let at = rules.partition_point(|other| other.breadth() <= rule.breadth());
        rules.insert(at, rule);
    }

    /// The index of the service for packets to `address`, of `protocol` (IP's number) and, where the
    /// protocol knows ports, to `port`.
    #[inline]
    #[must_use]
    pub fn find(&self, address: IpAddr, protocol: u8, port: Option<u16>) -> Option<usize> {
        self.vips(address).find_map(|vip| {
            let rule = vip.rules.iter().find(|rule| rule.matches(protocol, port))?;
            Some(rule.service)
        })
    }

    /// Whether `address` is one of some service's, whatever its protocol and ports.
    #[must_use]
    pub fn is_vip(&self, address: IpAddr) -> bool {
        self.vips(address).next().is_some()
    }

    /// The prefixes that `address` lies in, longest first.
    #[inline]
    fn vips(&self, address: IpAddr) -> impl Iterator<Item = &Vip> {
        let (levels, width) = match address {
            IpAddr::V4(_) => (&self.v4, 32),
            IpAddr::V6(_) => (&self.v6, 128),
        };
        let address = bits(address);
        levels.iter().filter_map(move |level| {
            let free = width - u32::from(level.len);
            let network = address & u128::MAX.checked_shl(free).unwrap_or(0);
            let at = level.vips.binary_search_by_key(&network, |vip| vip.network).ok()?;
            Some(&level.vips[at])
        })
    }
}

/// The address as a number; an IPv4 address takes the low 32 bits.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Rule {
    /// Orders the rules of one prefix: the less, the more specific.
    const fn breadth(&self) -> (bool, u32) {
        (matches!(self.protocol, Protocol::Any), self.ports.count())
    }

    #[inline]
    const fn matches(&self, protocol: u8, port: Option<u16>) -> bool {
        let protocol_matches = match self.protocol {
            Protocol::Tcp => protocol == TCP,
            Protocol::Udp => protocol == UDP,
            Protocol::Any => matches!(self.ports, Ports::Any) || protocol == TCP || protocol == UDP,
        };
        protocol_matches && self.ports.contains(port)
    }
}

impl Ports {
    /// How many ports there are.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::Any => 1 << 16,
            Self::Range { first, last } => last as u32 - first as u32 + 1,
        }
    }

    /// The lowest and the highest; both 0 for any.
    #[must_use]
    pub const fn bounds(self) -> (u16, u16) {
        match self {
            Self::Any => (0, 0),
            Self::Range { first, last } => (first, last),
        }
    }

    /// Whether `port` is one of them. [`Any`](Self::Any) also takes what has no port.
    #[inline]
    #[must_use]
    pub const fn contains(self, port: Option<u16>) -> bool {
        match (self, port) {
            (Self::Any, _) => true,
            (Self::Range { first, last }, Some(port)) => first <= port && port <= last,
            (Self::Range { .. }, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scheduler;
    use proptest::prelude::*;

    fn service(address: &str, protocol: Protocol, ports: Ports) -> Service {
        Service {
            name: String::new(),
            address: address.parse().unwrap(),
            protocol,
            ports,
            scheduler: Scheduler::Maglev,
            backends: Vec::new(),
        }
    }

    const fn range(first: u16, last: u16) -> Ports {
        Ports::Range { first, last }
    }

    #[test]
    fn the_most_specific_service_wins() {
        let rules = Rules::new(&[
            service("0.0.0.0/0", Protocol::Any, Ports::Any),
            service("203.0.113.0/24", Protocol::Tcp, Ports::Any),
            service("203.0.113.10", Protocol::Any, Ports::Any),
            service("203.0.113.10", Protocol::Any, range(80, 80)),
            service("203.0.113.10", Protocol::Tcp, range(1, 1000)),
            service("203.0.113.10", Protocol::Tcp, range(440, 450)),
            service("203.0.113.10", Protocol::Tcp, range(445, 455)),
            service("203.0.113.11", Protocol::Udp, range(53, 53)),
            service("2001:db8::/64", Protocol::Udp, Ports::Any),
        ]);
        for (address, protocol, port, expected) in [
            ("203.0.113.10", TCP, Some(80), Some(4)),
            ("203.0.113.10", UDP, Some(80), Some(3)),
            ("203.0.113.10", TCP, Some(443), Some(5)),
            ("203.0.113.10", TCP, Some(447), Some(5)), // as narrow as the next: the first wins
            ("203.0.113.10", TCP, Some(455), Some(6)),
            ("203.0.113.10", TCP, Some(2000), Some(2)),
            ("203.0.113.10", 1, None, Some(2)),
            ("203.0.113.11", UDP, Some(53), Some(7)),
            ("203.0.113.11", TCP, Some(53), Some(1)), // the host has no service, its prefix has
            ("203.0.113.11", UDP, Some(54), Some(0)),
            ("198.51.100.1", 47, None, Some(0)),
            ("2001:db8::9", UDP, Some(9), Some(8)),
            ("2001:db8::9", TCP, Some(9), None),
            ("2001:db8:0:1::9", UDP, Some(9), None),
            ("::cb00:710a", TCP, Some(80), None), // the bits of 203.0.113.10
        ] {
            let found = rules.find(address.parse().unwrap(), protocol, port);
            assert_eq!(found, expected, "{address} {protocol} {port:?}");
        }
    }

    #[test]
    fn ports_keep_out_what_has_none() {
        let rules = Rules::new(&[service("203.0.113.10", Protocol::Any, range(1, 65_535))]);
        let vip = "203.0.113.10".parse().unwrap();
        assert_eq!(rules.find(vip, TCP, Some(1)), Some(0));
        assert_eq!(rules.find(vip, TCP, Some(0)), None);
        assert_eq!(rules.find(vip, 1, None), None);
        assert_eq!(rules.find(vip, 132, Some(80)), None); // SCTP
    }

    proptest! {
        /// Against looking at every service.
        #[test]
        fn the_compiled_rules_agree_with_a_plain_search(
            services in prop::collection::vec((0_u32..8, 28_u8..=32, 0_u8..3, 0_u16..6, 0_u16..4), 0..20),
            packets in prop::collection::vec((0_u32..16, prop::sample::select(vec![1_u8, 6, 17]), 0_u16..8), 1..50),
        ) {
            let services: Vec<Service> = services.into_iter().map(|(host, len, protocol, first, more)| {
                let network = (0xCB00_7100 | host) & (u32::MAX << (32 - len));
                let address = format!("{}/{len}", std::net::Ipv4Addr::from_bits(network));
                let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Any][usize::from(protocol)];
                let ports = if first == 0 { Ports::Any } else { range(first, first + more) };
                service(&address, protocol, ports)
            }).collect();
            let rules = Rules::new(&services);
            for (host, protocol, port) in packets {
                let address = IpAddr::from((0xCB00_7100 | host).to_be_bytes());
                let port = (protocol != 1).then_some(port);
                let matching = services.iter().enumerate().filter(|(_, it)| {
                    let rule = Rule { protocol: it.protocol, ports: it.ports, service: 0 };
                    it.address.contains(address) && rule.matches(protocol, port)
                });
                let expected = matching.min_by_key(|(index, it)| {
                    (Reverse(it.address.len()), it.protocol == Protocol::Any, it.ports.count(), *index)
                });
                let found = rules.find(address, protocol, port);
                prop_assert_eq!(found, expected.map(|(index, _)| index));
                prop_assert_eq!(rules.is_vip(address), services.iter().any(|it| it.address.contains(address)));
            }
        }
    }
}
