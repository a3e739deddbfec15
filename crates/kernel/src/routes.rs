//! The kernel's routes in a form for the packet path.

use super::tables::{KernelTables, Lookup};
use hotloop_packet::prefix::PrefixMap;
use std::net::{IpAddr, Ipv6Addr};

/// A snapshot of the kernel's routes by a program's interfaces, to be published to cores. A lookup
/// is a binary search.
///
/// Lookups give the same results as [`KernelTables::lookup`], except that routes by other
/// interfaces are [`RouteTarget::Nowhere`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KernelRoutes {
    targets: PrefixMap<Target>,
}

/// The target of a lookup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RouteTarget {
    /// To a neighbour.
    Via {
        /// The index of the interface among those of the program.
        interface: usize,
        /// The neighbour, as [`Neighbours`](hotloop_neighbours::Neighbours) has it. A link-local
        /// address may belong to another neighbour on another link, so the second 16 bits, which
        /// would be 0, hold the index of the interface plus one.
        neighbour: IpAddr,
    },
    /// To the host itself.
    Local,
    /// Dropped: there is no route, a route that drops, or one by another interface.
    Nowhere,
}

/// The common target of a range of addresses.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Target {
    /// A neighbour, as cores know it.
    Gateway {
        interface: usize,
        neighbour: IpAddr,
    },
    /// Each address is a neighbour's own.
    OnLink {
        interface: usize,
    },
    Local,
    Nowhere,
}

impl KernelRoutes {
    /// The routes by the interfaces with these numbers.
    #[must_use]
    pub fn new(tables: &KernelTables, interfaces: &[u32]) -> Self {
        let prefixes = tables.routes().map(|route| route.prefix);
        let target = |address| target(tables, interfaces, address);
        Self { targets: PrefixMap::from_fn(prefixes, target) }
    }

    /// The next hop of packets to this address.
    #[inline]
    #[must_use]
    pub fn lookup(&self, destination: IpAddr) -> RouteTarget {
        match self.targets.get(destination).copied() {
            Some(Target::Gateway { interface, neighbour }) => {
                RouteTarget::Via { interface, neighbour }
            }
            Some(Target::OnLink { interface }) => {
                RouteTarget::Via { interface, neighbour: scoped(destination, interface) }
            }
            Some(Target::Local) => RouteTarget::Local,
            Some(Target::Nowhere) | None => RouteTarget::Nowhere,
        }
    }

    /// The gateways: the index of the interface, and the address as cores know it.
    pub(super) fn gateways(&self) -> impl Iterator<Item = (usize, IpAddr)> {
        self.targets.values().filter_map(|target| match target {
            Target::Gateway { interface, neighbour } => Some((*interface, *neighbour)),
            _ => None,
        })
    }
}

fn target(tables: &KernelTables, interfaces: &[u32], address: IpAddr) -> Target {
    match tables.lookup(address) {
        Lookup::Via(hop) => {
            let interface = interfaces.iter().position(|index| *index == hop.interface_index);
            match interface {
                Some(interface) if hop.is_gateway => {
                    Target::Gateway { interface, neighbour: scoped(hop.address, interface) }
                }
                Some(interface) => Target::OnLink { interface },
                None => Target::Nowhere,
            }
        }
        Lookup::Local => Target::Local,
        _ => Target::Nowhere,
    }
}

/// Position of bits that are 0 in a link-local address (RFC 4291, section 2.5.6).
const SCOPE_SHIFT: u32 = 96;

/// A neighbour as cores know it: [`RouteTarget::Via`].
pub(super) fn scoped(address: IpAddr, interface: usize) -> IpAddr {
    match address {
        IpAddr::V6(link_local) if link_local.is_unicast_link_local() => {
            let scope = ((interface as u128 + 1) & 0xffff) << SCOPE_SHIFT;
            Ipv6Addr::from_bits(link_local.to_bits() | scope).into()
        }
        address => address,
    }
}

/// The original address of a neighbour that cores know, and the index of its interface if that is
/// part of the address.
pub(super) fn unscoped(neighbour: IpAddr) -> (IpAddr, Option<usize>) {
    match neighbour {
        IpAddr::V6(link_local) if link_local.is_unicast_link_local() => {
            let bits = link_local.to_bits();
            let scope = (bits >> SCOPE_SHIFT) & 0xffff;
            let address = Ipv6Addr::from_bits(bits ^ (scope << SCOPE_SHIFT)).into();
            (address, (scope as usize).checked_sub(1))
        }
        address => (address, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_neighbours_of_two_links_are_two() {
        let gateway: IpAddr = "fe80::1".parse().unwrap();
        for interface in [0, 7] {
            let known = scoped(gateway, interface);
            assert_eq!(known.to_string(), format!("fe80:{:x}::1", interface + 1));
            assert_eq!(unscoped(known), (gateway, Some(interface)));
        }
        for other in ["192.0.2.1", "2001:db8::1"] {
            let other = other.parse().unwrap();
            assert_eq!((scoped(other, 3), unscoped(other)), (other, (other, None)));
        }
    }

    #[test]
    fn without_routes_packets_go_nowhere() {
        let tables = KernelTables::default();
        for routes in [KernelRoutes::default(), KernelRoutes::new(&tables, &[1])] {
            for address in ["0.0.0.0", "255.255.255.255", "::", "2001:db8::1"] {
                assert_eq!(routes.lookup(address.parse().unwrap()), RouteTarget::Nowhere);
            }
        }
    }
}
