//! The kernel's links, addresses, routes and neighbours in a network namespace.

mod fib;
mod objects;
mod parse;

use fib::{Addition, Changed, Fib};
use netlink_packet_core::NLM_F_REPLACE;
use netlink_packet_route::RouteNetlinkMessage;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

pub use objects::{Hop, InterfaceAddress, KernelNeighbour, Link, NeighbourState, Route, RouteKind};
pub(super) use parse::route as parse_route;

/// The table of the host's own addresses (rtnetlink(7), `RT_TABLE_LOCAL`), asked first.
pub const LOCAL: u32 = 255;

/// The table of all other routes (`RT_TABLE_MAIN`), used by default.
pub const MAIN: u32 = 254;

/// The table that is asked last (`RT_TABLE_DEFAULT`), usually empty.
pub const DEFAULT: u32 = 253;

/// The result of a lookup for a destination.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lookup {
    /// Packets go to a neighbour.
    Via(NextHop),
    /// An address of the host.
    Local,
    /// The broadcast address of a link.
    Broadcast,
    /// A multicast group.
    Multicast,
    /// A route drops the packets.
    Blackhole,
    /// A route drops the packets and reports "unreachable" to the sender.
    Unreachable,
    /// A route drops the packets and reports "administratively prohibited" to the sender.
    Prohibited,
    /// The packets leave encapsulated by the kernel, such as with an MPLS label.
    Encapsulated,
    /// No route matches.
    NoRoute,
}

/// The neighbour that packets go to next.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct NextHop {
    /// The number of the interface that packets leave by.
    pub interface_index: u32,
    /// The neighbour's address: the gateway's, or the destination itself. A gateway may be of the
    /// other IP version, and link-local.
    pub address: IpAddr,
    /// Whether the address is a gateway's.
    pub is_gateway: bool,
    /// The route's preferred source address for the host's own packets, if set.
    pub source: Option<IpAddr>,
}

/// Number of changes of each table, from 0. Compare two of these to learn what has changed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChangeCounts {
    /// Interfaces.
    pub links: u64,
    /// Addresses of the host.
    pub addresses: u64,
    /// Routes.
    pub routes: u64,
    /// Neighbours and their states.
    pub neighbours: u64,
}

/// The links, addresses, routes and neighbours of a network namespace, as of the kernel's last
/// announcement.
///
/// Lookups follow the kernel's default rules (ip-rule(8)): tables [`LOCAL`], [`MAIN`] and
/// [`DEFAULT`] in this order, then the longest prefix, then the smallest metric. Among several
/// paths of a route, the first usable one is taken, preferably with a carrier: all packets for a
/// destination take the same path. Routes by type of service, by source or by mark are ignored.
#[derive(Debug, Default)]
pub struct KernelTables {
    links: BTreeMap<u32, Link>,
    addresses: BTreeSet<InterfaceAddress>,
    fibs: Fibs,
    neighbours: HashMap<(u32, IpAddr), KernelNeighbour>,
    pub(super) counts: ChangeCounts,
}

/// The host's own address in a message of a dump.
pub(super) fn local_address(message: &RouteNetlinkMessage) -> Option<IpAddr> {
    match message {
        RouteNetlinkMessage::NewAddress(message) => {
            parse::address(message).map(|address| address.address)
        }
        _ => None,
    }
}

/// The routes of both IP versions.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Fibs {
    v4: Fib,
    v6: Fib,
}

impl Fibs {
    fn of(&self, address: IpAddr) -> &Fib {
        if address.is_ipv4() { &self.v4 } else { &self.v6 }
    }

    fn of_mut(&mut self, address: IpAddr) -> &mut Fib {
        if address.is_ipv4() { &mut self.v4 } else { &mut self.v6 }
    }

    /// Adds a route from a dump's message.
    pub(super) fn read(&mut self, message: &RouteNetlinkMessage) {
        if let RouteNetlinkMessage::NewRoute(message) = message
            && let Some(route) = parse::route(message)
        {
            self.of_mut(route.prefix.network()).push(route);
        }
    }
}

impl KernelTables {
    /// The next hop for an address. A link-local address may be on any link: the first route
    /// decides.
    #[must_use]
    pub fn lookup(&self, destination: IpAddr) -> Lookup {
        self.fibs.of(destination).lookup(destination)
    }

    /// Whether the host takes packets for this address as its own.
    #[must_use]
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.lookup(address) == Lookup::Local
    }

    /// The entry of a neighbour on a link, if the kernel has one.
    #[must_use]
    pub fn neighbour(&self, interface_index: u32, address: IpAddr) -> Option<KernelNeighbour> {
        self.neighbours.get(&(interface_index, address)).copied()
    }

    /// All neighbours in no order, each with its link's number and its address.
    pub fn neighbours(&self) -> impl Iterator<Item = (u32, IpAddr, KernelNeighbour)> {
        self.neighbours.iter().map(|((index, address), known)| (*index, *address, *known))
    }

    /// The interface with this number.
    #[must_use]
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.get(&index)
    }

    /// The interface with this name.
    #[must_use]
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    /// All interfaces, by number.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// All addresses of the host, by interface.
    pub fn addresses(&self) -> impl Iterator<Item = &InterfaceAddress> {
        self.addresses.iter()
    }

    /// All routes of the three tables, IPv4's first.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.fibs.v4.iter().chain(self.fibs.v6.iter())
    }

    /// How often each table has changed.
    #[must_use]
    pub const fn change_counts(&self) -> ChangeCounts {
        self.counts
    }

    /// Applies an announcement or a dump's message; `flags` are those of the message. Returns
    /// whether the routes must be read again, because the kernel does not announce how they change.
    pub(super) fn apply(&mut self, flags: u16, message: &RouteNetlinkMessage) -> bool {
        use RouteNetlinkMessage as M;
        match message {
            M::NewLink(message) => parse::link(message).is_some_and(|link| self.add_link(link)),
            M::DelLink(message) => {
                parse::link(message).is_some_and(|link| self.remove_link(link.index))
            }
            M::NewAddress(message) => {
                let is_new =
                    parse::address(message).is_some_and(|address| self.addresses.insert(address));
                self.counts.addresses += u64::from(is_new);
                false
            }
            M::DelAddress(message) => {
                let is_gone =
                    parse::address(message).is_some_and(|address| self.addresses.remove(&address));
                self.counts.addresses += u64::from(is_gone);
                // The kernel deletes IPv4 routes from this address without announcing it.
                is_gone
            }
            M::NewRoute(message) => parse::route(message).is_some_and(|route| {
                let is_replacing = flags & NLM_F_REPLACE != 0;
                let addition = if is_replacing { Addition::Replacing } else { Addition::New };
                let changed = self.fibs.of_mut(route.prefix.network()).add(route, addition);
                self.count_routes(changed)
            }),
            M::DelRoute(message) => parse::route(message).is_some_and(|route| {
                let changed = self.fibs.of_mut(route.prefix.network()).remove(&route);
                self.count_routes(changed)
            }),
            M::NewNeighbour(message) => {
                if let Some((key, known)) = parse::neighbour(message) {
                    self.set_neighbour(key, known);
                }
                false
            }
            M::DelNeighbour(message) => {
                if let Some((key, _)) = parse::neighbour(message) {
                    self.set_neighbour(key, None);
                }
                false
            }
            _ => false,
        }
    }

    fn count_routes(&mut self, changed: Changed) -> bool {
        self.counts.routes += u64::from(changed == Changed::Routes);
        changed == Changed::Unclear
    }

    /// IPv4 routes change without an announcement when an interface goes down, or loses its
    /// carrier.
    fn add_link(&mut self, link: Link) -> bool {
        let state = |link: &Link| (link.is_up, link.is_running);
        let before = self.links.get(&link.index);
        if before == Some(&link) {
            return false;
        }
        let has_changed_state = before.map(state) != Some(state(&link));
        self.counts.links += 1;
        self.links.insert(link.index, link);
        has_changed_state
    }

    fn remove_link(&mut self, index: u32) -> bool {
        let is_gone = self.links.remove(&index).is_some();
        self.counts.links += u64::from(is_gone);
        is_gone
    }

    fn set_neighbour(&mut self, key: (u32, IpAddr), known: Option<KernelNeighbour>) {
        let before = match known {
            Some(known) => self.neighbours.insert(key, known),
            None => self.neighbours.remove(&key),
        };
        self.counts.neighbours += u64::from(before != known);
    }

    /// Replaces all routes.
    pub(super) fn set_routes(&mut self, fibs: Fibs) {
        self.counts.routes += u64::from(self.fibs != fibs);
        self.fibs = fibs;
    }

    /// Replaces all tables except the routes.
    pub(super) fn set_others(&mut self, read: Self) {
        self.counts.links += u64::from(self.links != read.links);
        self.counts.addresses += u64::from(self.addresses != read.addresses);
        self.counts.neighbours += u64::from(self.neighbours != read.neighbours);
        self.links = read.links;
        self.addresses = read.addresses;
        self.neighbours = read.neighbours;
    }
}
