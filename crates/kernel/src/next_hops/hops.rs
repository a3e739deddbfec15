//! The resolved next hops, and the path that each destination takes.

use crate::routes::{KernelRoutes, unscoped};
use crate::tables::{KernelNeighbour, KernelTables, Lookup, NeighbourState};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The path of packets to an address, by the kernel's routes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Way {
    /// To a neighbour: a gateway, or the address itself.
    Neighbour {
        /// The index of the interface among those of the program.
        interface: usize,
        /// Its address.
        address: IpAddr,
    },
    /// To the host itself.
    Local,
    /// Out of this interface, which is not the program's: the packets are dropped.
    Elsewhere(String),
    /// Dropped, for this reason.
    Nowhere(&'static str),
}

/// A next hop that is kept resolved, or the reason why there is none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelHop {
    /// The path of the packets.
    pub way: Way,
    /// The kernel's entry for the neighbour, if there is one.
    pub neighbour: Option<KernelNeighbour>,
    /// Number of [destinations](super::KernelNextHops::keep_resolved) with this next hop; 0 for a
    /// gateway of other routes only.
    pub destination_count: usize,
}

impl KernelHop {
    /// Whether packets can go there: the Ethernet address is known, or the destination is the host
    /// itself.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        match (&self.way, self.neighbour) {
            (Way::Local, _) => true,
            (_, Some(neighbour)) => neighbour.mac.is_some(),
            (_, None) => false,
        }
    }

    /// Whether packets can't go there, and not just because the kernel is still resolving the
    /// neighbour.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        match (&self.way, self.neighbour) {
            (Way::Neighbour { .. }, Some(neighbour)) => neighbour.state == NeighbourState::Failed,
            (Way::Neighbour { .. } | Way::Local, _) => false,
            (Way::Elsewhere(_) | Way::Nowhere(_), _) => true,
        }
    }

    /// The state for people: that of a neighbour as `ip neighbour` names it, or the reason for a
    /// drop.
    #[must_use]
    pub fn state(&self) -> String {
        match (&self.way, self.neighbour) {
            (Way::Local, _) => "the host itself".to_owned(),
            (Way::Elsewhere(name), _) => format!(
                "by {name}, which is no interface of a port that goes by the kernel's routes"
            ),
            (Way::Nowhere(why), _) => (*why).to_owned(),
            (Way::Neighbour { .. }, None) => "unknown".to_owned(),
            (Way::Neighbour { .. }, Some(neighbour)) => {
                format!("{:?}", neighbour.state).to_lowercase()
            }
        }
    }
}

/// A change of a next hop, for [`Hops::changes`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HopChange {
    /// Packets can go there now.
    Known,
    /// Packets can no longer go there.
    Lost,
    /// Resolving the next hop has failed; it was not known before.
    Failed,
}

/// The next hops that are kept resolved, as of the kernel's last announcement.
#[derive(Debug, Default)]
pub struct Hops {
    pub(super) hops: Vec<KernelHop>,
    /// By destination.
    pub(super) of: Arc<HashMap<IpAddr, usize>>,
}

impl Hops {
    /// Each next hop once.
    pub fn iter(&self) -> impl Iterator<Item = &KernelHop> {
        self.hops.iter()
    }

    /// The next hop of a destination. `None` if it was not looked up yet.
    #[must_use]
    pub fn of(&self, destination: IpAddr) -> Option<&KernelHop> {
        self.of.get(&destination).map(|index| &self.hops[*index])
    }

    /// The destinations' next hops that have changed from `before`.
    pub fn changes(&self, before: &Self) -> impl Iterator<Item = (&KernelHop, HopChange)> {
        let before: HashMap<_, _> = before
            .hops
            .iter()
            .map(|hop| (hop.way.clone(), (hop.is_known(), hop.has_failed())))
            .collect();
        let used = self.hops.iter().filter(|hop| hop.destination_count > 0);
        used.filter_map(move |hop| {
            let (was_known, had_failed) = before.get(&hop.way).copied().unwrap_or_default();
            let change = match (was_known, hop.is_known()) {
                (false, true) => HopChange::Known,
                (true, false) => HopChange::Lost,
                (false, false) if hop.has_failed() && !had_failed => HopChange::Failed,
                _ => return None,
            };
            Some((hop, change))
        })
    }
}

pub(super) fn known_of(
    tables: &KernelTables,
    interfaces: &[u32],
    way: &Way,
) -> Option<KernelNeighbour> {
    match way {
        Way::Neighbour { interface, address } => tables.neighbour(interfaces[*interface], *address),
        _ => None,
    }
}

/// Returns each way with its number of destinations, then the gateways of other routes; and the way
/// of each destination.
pub(super) fn ways(
    tables: &KernelTables,
    interfaces: &[u32],
    destinations: &[IpAddr],
    routes: &KernelRoutes,
) -> (Vec<(Way, usize)>, HashMap<IpAddr, usize>) {
    let (mut ways, mut indices, mut of) = (Vec::new(), HashMap::new(), HashMap::new());
    let mut index = |ways: &mut Vec<_>, way: Way| {
        *indices.entry(way.clone()).or_insert_with(|| {
            ways.push((way, 0));
            ways.len() - 1
        })
    };
    for destination in destinations {
        let index = index(&mut ways, way(tables, interfaces, *destination));
        if of.insert(*destination, index).is_none() {
            ways[index].1 += 1;
        }
    }
    for (interface, neighbour) in routes.gateways() {
        index(&mut ways, Way::Neighbour { interface, address: unscoped(neighbour).0 });
    }
    (ways, of)
}

fn way(tables: &KernelTables, interfaces: &[u32], destination: IpAddr) -> Way {
    let why = match tables.lookup(destination) {
        Lookup::Via(hop) => {
            let interface = interfaces.iter().position(|index| *index == hop.interface_index);
            return match interface {
                Some(interface) => Way::Neighbour { interface, address: hop.address },
                None => {
                    let name = tables.link(hop.interface_index).map(|link| link.name.clone());
                    Way::Elsewhere(name.unwrap_or_default())
                }
            };
        }
        Lookup::Local => return Way::Local,
        Lookup::Broadcast => "a broadcast address",
        Lookup::Multicast => "a multicast address",
        Lookup::Blackhole => "blackhole route",
        Lookup::Unreachable => "unreachable route",
        Lookup::Prohibited => "prohibit route",
        Lookup::Encapsulated => "a route that encapsulates",
        Lookup::NoRoute => "no route",
    };
    Way::Nowhere(why)
}
