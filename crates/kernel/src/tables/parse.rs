//! Parses the kernel's messages on links, addresses, routes and neighbours.

use super::objects::{
    Hop, InterfaceAddress, KernelNeighbour, Link, NeighbourState, Route, RouteKind,
};
use super::{DEFAULT, LOCAL};
use hotloop_packet::ethernet::MacAddress;
use hotloop_packet::prefix::Prefix;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
    NeighbourState as Netlink,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteNextHopFlags,
    RouteType, RouteVia,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The interface of a message. `None` if the message is about a port of a bridge.
pub(super) fn link(message: &LinkMessage) -> Option<Link> {
    if message.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mac: None,
        mtu_bytes: 0,
        is_up: flags.contains(LinkFlags::Up),
        is_running: flags.contains(LinkFlags::Up | LinkFlags::Running),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu_bytes = *mtu,
            LinkAttribute::Address(bytes) => link.mac = mac(bytes),
            _ => {}
        }
    }
    Some(link)
}

/// The address of a message. If `IFA_LOCAL` differs from `IFA_ADDRESS`, it is the host's own, and
/// the latter is the peer's.
pub(super) fn address(message: &AddressMessage) -> Option<InterfaceAddress> {
    let attributes = || message.attributes.iter();
    let local = attributes().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = local.or_else(|| {
        attributes().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })?;
    let header = &message.header;
    Some(InterfaceAddress { interface_index: header.index, address, prefix_len: header.prefix_len })
}

/// The route of a message. `None` for routes that lookups never use: those in other tables, those
/// by type of service or by source, and cache entries.
pub(crate) fn route(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let address = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let is_plain = header.tos == 0 && header.source_prefix_length == 0;
    if !is_plain || header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let of_len = |address| Prefix::of(address, header.destination_prefix_length);
    let mut route = Route {
        prefix: of_len(address),
        table: header.table.into(),
        metric: 0,
        protocol: header.protocol.into(),
        kind: route_kind(header.kind)?,
        source: None,
        hops: Vec::new(),
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Destination(address) => route.prefix = of_len(ip(address)?),
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::MultiPath(hops) => route.hops = hops.iter().map(path).collect(),
            _ => {}
        }
    }
    if !(DEFAULT..=LOCAL).contains(&route.table) {
        return None;
    }
    if route.hops.is_empty() {
        route.hops.extend(only_hop(&message.attributes, header.flags));
    }
    Some(route)
}

const fn route_kind(kind: RouteType) -> Option<RouteKind> {
    Some(match kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local | RouteType::Anycast => RouteKind::Local,
        RouteType::Broadcast => RouteKind::Broadcast,
        RouteType::Multicast => RouteKind::Multicast,
        RouteType::BlackHole => RouteKind::Blackhole,
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::Prohibit => RouteKind::Prohibit,
        RouteType::Throw => RouteKind::Throw,
        _ => return None,
    })
}

fn path(hop: &RouteNextHop) -> Hop {
    Hop {
        interface_index: hop.interface_index,
        gateway: gateway(&hop.attributes),
        is_dead: hop.flags.contains(RouteNextHopFlags::Dead),
        is_linkdown: hop.flags.contains(RouteNextHopFlags::Linkdown),
        is_encapsulating: is_encapsulating(&hop.attributes),
    }
}

/// The path of a single-path route. Routes that drop have no path, or a meaningless one.
fn only_hop(attributes: &[RouteAttribute], flags: RouteFlags) -> Option<Hop> {
    let interface_index = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })?;
    Some(Hop {
        interface_index,
        gateway: gateway(attributes),
        is_dead: flags.contains(RouteFlags::Dead),
        is_linkdown: flags.contains(RouteFlags::Linkdown),
        is_encapsulating: is_encapsulating(attributes),
    })
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    })
}

fn is_encapsulating(attributes: &[RouteAttribute]) -> bool {
    attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::EncapType(_)))
}

const fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

/// The interface, address and entry of a neighbour; the entry is `None` if the neighbour is gone.
/// Returns `None` for entries of bridges, and for addresses that the host answers for.
pub(super) fn neighbour(
    message: &NeighbourMessage,
) -> Option<((u32, IpAddr), Option<KernelNeighbour>)> {
    let header = &message.header;
    let is_of_ip = matches!(header.family, AddressFamily::Inet | AddressFamily::Inet6);
    if !is_of_ip || header.flags.contains(NeighbourFlags::Proxy) {
        return None;
    }
    let (mut address, mut learned) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(its)) => {
                address = Some(IpAddr::V4(*its));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(its)) => {
                address = Some(IpAddr::V6(*its));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => learned = mac(bytes),
            _ => {}
        }
    }
    let known = neighbour_state(header.state)
        .map(|state| KernelNeighbour { mac: learned.filter(|_| state.is_usable()), state });
    Some(((header.ifindex, address?), known))
}

/// `None` for entries without an Ethernet address and for groups, which come and go without an
/// announcement (`NUD_NOARP`).
const fn neighbour_state(state: Netlink) -> Option<NeighbourState> {
    Some(match state {
        Netlink::Incomplete => NeighbourState::Incomplete,
        Netlink::Reachable => NeighbourState::Reachable,
        Netlink::Stale => NeighbourState::Stale,
        Netlink::Delay => NeighbourState::Delay,
        Netlink::Probe => NeighbourState::Probe,
        Netlink::Failed => NeighbourState::Failed,
        Netlink::Permanent => NeighbourState::Permanent,
        _ => return None,
    })
}

/// An Ethernet address. `None` for the addresses of other kinds of links, which have other lengths.
fn mac(bytes: &[u8]) -> Option<MacAddress> {
    bytes.try_into().ok().map(MacAddress::new)
}
