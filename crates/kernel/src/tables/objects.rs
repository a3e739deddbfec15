//! The objects of the kernel's tables: links, addresses, routes and neighbours.

use hotloop_packet::ethernet::MacAddress;
use hotloop_packet::prefix::Prefix;
use std::net::IpAddr;

/// A network interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    /// The interface's number in its namespace. The kernel may reuse it later.
    pub index: u32,
    /// The interface's name, which may change.
    pub name: String,
    /// The interface's Ethernet address, if it has one.
    pub mac: Option<MacAddress>,
    /// The most bytes of a packet, from the IP header on.
    pub mtu_bytes: u32,
    /// Whether an administrator has set it up (`IFF_UP`).
    pub is_up: bool,
    /// Whether packets can pass (`IFF_RUNNING`): it is up, and has a carrier.
    pub is_running: bool,
}

/// An address of the host.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct InterfaceAddress {
    /// The number of its interface.
    pub interface_index: u32,
    /// The address.
    pub address: IpAddr,
    /// Number of leading bits that the stations of its network share.
    pub prefix_len: u8,
}

/// A route.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// The destination addresses.
    pub prefix: Prefix,
    /// The number of its table: [`MAIN`](super::MAIN) and the like.
    pub table: u32,
    /// Among routes of the same prefix, the one with the smallest metric is used. The default is
    /// 1,024 for IPv6 and 0 for IPv4.
    pub metric: u32,
    /// The route's origin (`rtm_protocol`, as in `/etc/iproute2/rt_protos`).
    pub protocol: u8,
    /// The treatment of packets.
    pub kind: RouteKind,
    /// The preferred source address of the host's own packets, if set.
    pub source: Option<IpAddr>,
    /// The paths: several for a multipath route, none for a route that drops.
    pub hops: Vec<Hop>,
}

/// The treatment of packets that take a route (rtnetlink(7), `rtm_type`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RouteKind {
    /// Sent to a neighbour.
    Unicast,
    /// For the host itself.
    Local,
    /// Sent to all stations of a link.
    Broadcast,
    /// Sent to a group.
    Multicast,
    /// Dropped.
    Blackhole,
    /// Dropped; the sender learns that the destination is unreachable.
    Unreachable,
    /// As [`Unreachable`](Self::Unreachable), with "administratively prohibited" as the reason.
    Prohibit,
    /// This table has no route; the next one may have.
    Throw,
}

/// One of the paths of a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hop {
    /// The number of the interface that packets leave by.
    pub interface_index: u32,
    /// The neighbour that packets go to. Without one, that is the destination itself.
    pub gateway: Option<IpAddr>,
    /// Whether the interface is down, so that the kernel does not use the path.
    pub is_dead: bool,
    /// Whether the interface has no carrier. The kernel still uses the path unless
    /// `ignore_routes_with_linkdown` is set.
    pub is_linkdown: bool,
    /// Whether the kernel encapsulates packets on this path, such as with an MPLS label.
    pub is_encapsulating: bool,
}

/// A neighbour in the kernel's table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelNeighbour {
    /// The neighbour's Ethernet address. `None` if it has not answered, or no longer does.
    pub mac: Option<MacAddress>,
    /// The neighbour's state.
    pub state: NeighbourState,
}

/// The state of a neighbour (RFC 4861, section 7.3.2, and Linux's additions).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NeighbourState {
    /// Requested, without an answer yet.
    Incomplete,
    /// It answered lately.
    Reachable,
    /// It answered, and will be probed when the host next sends to it.
    Stale,
    /// The host sends to it, and will probe it in a moment.
    Delay,
    /// It is being probed.
    Probe,
    /// It did not answer.
    Failed,
    /// An administrator set its address.
    Permanent,
}

impl NeighbourState {
    /// Whether packets are sent to the neighbour's known address.
    pub(super) const fn is_usable(self) -> bool {
        !matches!(self, Self::Incomplete | Self::Failed)
    }
}
