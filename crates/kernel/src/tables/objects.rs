//! Links, addresses, routes and neighbours, as the kernel has them.

use hotloop_packet::ethernet::MacAddress;
use std::fmt;
use std::net::IpAddr;

/// A network interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    /// Its number in its namespace. The kernel may give it to another one later.
    pub index: u32,
    /// Its name, which may change.
    pub name: String,
    /// Its Ethernet address, where it has one.
    pub mac: Option<MacAddress>,
    /// The most bytes of a packet, from its IP header on.
    pub mtu_bytes: u32,
    /// Whether an administrator has taken it up (`IFF_UP`).
    pub is_up: bool,
    /// Whether packets can pass (`IFF_RUNNING`): it is up, and has a carrier.
    pub is_running: bool,
}

/// An address of the host.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct InterfaceAddress {
    /// The number of the interface that has it.
    pub interface_index: u32,
    /// The address.
    pub address: IpAddr,
    /// How many leading bits the stations of its network share.
    pub prefix_len: u8,
}

/// An address range: the leading bits that its addresses share. The rest is 0.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Prefix {
    /// The first address.
    pub address: IpAddr,
    /// The number of bits.
    pub len: u8,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// A route.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// The addresses that it is for.
    pub prefix: Prefix,
    /// The number of its table: [`MAIN`](super::MAIN) and its like.
    pub table: u32,
    /// Of two routes for the same prefix, that with the smaller metric is taken. IPv6 has 1,024 where
    /// nothing else is given, IPv4 has 0.
    pub metric: u32,
    /// Who made it (`rtm_protocol`, as in `/etc/iproute2/rt_protos`).
    pub protocol: u8,
    /// What becomes of packets.
    pub kind: RouteKind,
    /// The address that the host itself sends from by this route, where the route says so.
    pub source: Option<IpAddr>,
    /// Where packets go: several for a route with several paths, none for one that drops.
    pub hops: Vec<Hop>,
}

/// What becomes of a packet that takes a route (rtnetlink(7), `rtm_type`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RouteKind {
    /// It goes to a neighbour.
    Unicast,
    /// It is for the host itself.
    Local,
    /// It goes to all stations of a link.
    Broadcast,
    /// It goes to a group.
    Multicast,
    /// It is dropped.
    Blackhole,
    /// It is dropped, and its sender learns that the destination is unreachable.
    Unreachable,
    /// As [`Unreachable`](Self::Unreachable): an administrator does not want it.
    Prohibit,
    /// This table has no route for it; the next one may have.
    Throw,
}

/// One of the paths of a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hop {
    /// The number of the interface that packets leave by.
    pub interface_index: u32,
    /// The neighbour that they go to; without one, that is the destination itself.
    pub gateway: Option<IpAddr>,
    /// Whether its interface is down, so that the kernel does not use it.
    pub is_dead: bool,
    /// Whether its interface has no carrier. The kernel uses it all the same, where
    /// `ignore_routes_with_linkdown` is not set.
    pub is_linkdown: bool,
    /// Whether the kernel puts packets into something on this path, such as an MPLS label.
    pub is_encapsulating: bool,
}

/// A neighbour that the kernel has asked for, or knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelNeighbour {
    /// Its Ethernet address; nothing where it has not answered, or no longer does.
    pub mac: Option<MacAddress>,
    /// What the kernel knows of it.
    pub state: NeighbourState,
}

/// What the kernel knows of a neighbour (RFC 4861, section 7.3.2, and what Linux adds).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NeighbourState {
    /// It was asked, and has not answered yet.
    Incomplete,
    /// It answered lately.
    Reachable,
    /// It answered, and will be asked again when the host sends to it.
    Stale,
    /// The host sends to it, and will ask in a moment.
    Delay,
    /// It is being asked again.
    Probe,
    /// It did not answer.
    Failed,
    /// An administrator gave its address.
    Permanent,
}

impl NeighbourState {
    /// Whether packets are sent to the address that is known of it.
    pub(super) const fn is_usable(self) -> bool {
        !matches!(self, Self::Incomplete | Self::Failed)
    }
}
