//! The kinds of packets, and which function takes each.

use super::first_aid::is_blocked;
use super::probing::is_for_probes;
use super::{BalanceDrop, Turn, Worker};
use crate::own_header::OwnHeader;
use crate::services::ServiceTable;
use crate::spec::IcmpEcho;
use hotloop::flow::Handle;
use hotloop::log;
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::{Kind, Layout};
use hotloop::packet::ethernet::{HEADER_BYTES, Station};
use hotloop::packet::ip::{Fragment, is_host, is_truncated};
use hotloop::packet::ipip::{self, DecapsulateError};
use hotloop::stage::Carries;

/// ICMPv6's types of neighbour discovery and of multicast listeners (RFC 4861, RFC 2710, RFC 3810):
/// they are between neighbours, and for no backend.
const fn is_between_neighbours(icmpv6_kind: u8) -> bool {
    matches!(icmpv6_kind, 130..=137 | 143)
}

impl<P: PacketBuf + Carries> Worker<P> {
    /// Tells what kind of packet the one at `index` of its burst is, which may be any but those that are
    /// forwarded at once, and hands it to the function for that. `found` is its connection, where that was
    /// searched for.
    #[inline(never)]
    pub(super) fn dispatch(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        (packet, layout): (P, Layout),
        index: usize,
        found: Option<(Handle, u64)>,
    ) {
        // Nearly all of these begin or end connections. Most of what follows can't hold of them.
        if let Some(key) = layout.fast_key_v4(packet.data())
            && let Some(service) = turn.services.service_of_v4(&key)
        {
            self.serve_plain(turn, packet, (key, layout, index), found, service);
        } else {
            self.dispatch_any(turn, packet, layout);
        }
    }

    /// Handles a packet that isn't the balancer's: it goes to the kernel, or from it to the wire. Without
    /// an exception path, it is dropped.
    pub(super) fn punt(&self, turn: &mut Turn<'_, '_, '_, P>, packet: P) {
        match self.ports.route_of_punted(&packet).filter(|_| turn.may_punt) {
            Some(route) => turn.send(packet, route),
            None => turn.reject(packet, BalanceDrop::Punt),
        }
    }

    /// [`dispatch`](Self::dispatch) for any packet.
    #[inline(never)]
    fn dispatch_any(&mut self, turn: &mut Turn<'_, '_, '_, P>, packet: P, layout: Layout) {
        match layout.kind() {
            Kind::Ipv4 | Kind::Ipv6 => {}
            Kind::Malformed(_) => {
                let reason = self.reason_of_malformed(&packet);
                return turn.reject(packet, reason);
            }
            Kind::Other if layout.is_foreign() => {
                return turn.reject(packet, BalanceDrop::NotForUs);
            }
            Kind::Arp | Kind::Other => return self.punt(turn, packet),
        }
        let Some(header) = OwnHeader::of(packet.data()) else {
            return turn.reject(packet, BalanceDrop::Malformed);
        };
        if header.is_tunnel() && turn.services.is_own(header.destination) {
            self.unwrap(turn, packet, &header);
        } else {
            self.bare(turn, packet, &header, layout, Way::Bare);
        }
    }

    /// Why a frame is dropped that classification finds malformed.
    #[cold]
    fn reason_of_malformed(&self, packet: &P) -> BalanceDrop {
        if !is_truncated(packet.data(), packet.len_bytes()) {
            return BalanceDrop::Malformed;
        }
        if let Some((port, cut_bytes)) = self.ports.first_cut(packet) {
            log::warn!(
                "port {} gets packets that the kernel has put together, and cuts them to {} bytes: dropped \
                 as truncated; `ethtool -K IFACE gro off lro off`, and where IPv4 fragments or an MTU above \
                 {} come, take net_af_xdp or net_pcap",
                port,
                cut_bytes,
                cut_bytes - HEADER_BYTES as u16
            );
        }
        BalanceDrop::Truncated
    }

    /// A tunnel packet to an own address.
    fn unwrap(&mut self, turn: &mut Turn<'_, '_, '_, P>, mut packet: P, outer: &OwnHeader) {
        if !self.ports.may_end_tunnel(&packet) {
            return turn.reject(packet, BalanceDrop::TunnelFromClients);
        }
        if !turn.services.may_tunnel(outer.source) {
            log::warn!(
                "a tunnel packet from {} to {} is dropped: that is no backend's address, nor in \
                 balancer.tunnel_peers",
                outer.source,
                outer.destination
            );
            return turn.reject(packet, BalanceDrop::UnknownTunnelSource);
        }
        if outer.fragment != Fragment::None {
            return turn.reject(packet, BalanceDrop::TunnelFragment);
        }
        if let Err(error) = ipip::decapsulate(&mut packet) {
            return turn.reject(packet, drop_of_decapsulation(error));
        }
        // Offsets have moved, and what was inside may be a tunnel packet again.
        let layout = Layout::at(packet.data(), packet.len_bytes(), &Station::ANY);
        match OwnHeader::of(packet.data()) {
            Some(inner) if !is_host(inner.source) => {
                turn.reject(packet, BalanceDrop::MartianSource);
            }
            Some(inner) if !is_host(inner.destination) => {
                turn.reject(packet, BalanceDrop::MartianDestination);
            }
            Some(inner) if is_blocked(turn.services, inner.source, inner.destination) => {
                turn.reject(packet, BalanceDrop::Blocked);
            }
            Some(inner) if layout.is_ip() => {
                // What came in a tunnel has lost the headers that the kernel would go by.
                let may_punt = std::mem::replace(&mut turn.may_punt, false);
                self.bare(turn, packet, &inner, layout, Way::Tunnelled);
                turn.may_punt = may_punt;
            }
            _ => turn.reject(packet, BalanceDrop::Malformed),
        }
    }

    /// A packet that is in no tunnel, or no longer in one.
    fn bare(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        header: &OwnHeader,
        layout: Layout,
        way: Way,
    ) {
        if self.probing.is_some() && is_for_probes(turn.services, header, layout) {
            return self.take_reply(turn, packet);
        }
        // A tunnel's inner packet may be an error too: that is not the balancer's to follow. Nor is
        // what a service sends to its client, which is a reply like any other.
        let is_reply =
            way == Way::Tunnelled && is_about_client(turn.services, header, &packet, layout);
        if layout.is_icmp_error() && !layout.is_tunnel() && !is_reply {
            return self.error(turn, packet, header, layout);
        }
        let icmp_kind = header.icmp_kind(packet.data());
        if header.source.is_ipv6() && icmp_kind.is_some_and(is_between_neighbours) {
            return self.punt(turn, packet);
        }
        if !turn.services.is_vip(header.destination) {
            if way == Way::Tunnelled && turn.services.is_vip(header.source) {
                return self.return_to_client(turn, packet, header, layout);
            }
            return self.punt(turn, packet);
        }
        if header.is_echo(packet.data()) {
            return self.echo(turn, packet, header, layout);
        }
        self.serve(turn, packet, header, layout);
    }

    /// An echo request to a service's address, or a fragment of one.
    fn echo(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        header: &OwnHeader,
        layout: Layout,
    ) {
        match turn.services.settings.icmp_echo {
            IcmpEcho::Forward => self.serve(turn, packet, header, layout),
            IcmpEcho::Reply if header.fragment == Fragment::None => {
                self.answer_echo(turn, packet);
            }
            IcmpEcho::Reply | IcmpEcho::Drop => turn.reject(packet, BalanceDrop::IcmpEcho),
        }
    }
}

/// Whether an ICMP error goes from a service to a client, about what the client sent.
fn is_about_client<P: PacketBuf>(
    services: &ServiceTable,
    header: &OwnHeader,
    packet: &P,
    layout: Layout,
) -> bool {
    layout.is_icmp_error()
        && !header.is_hop_by_hop(packet.data())
        && !services.is_vip(header.destination)
        && services.is_vip(header.source)
        && layout.key(packet.data()).is_some_and(|quoted| quoted.source() == header.destination)
}

/// How a packet came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    /// As it is.
    Bare,
    /// In a tunnel to an own address.
    Tunnelled,
}

const fn drop_of_decapsulation(error: DecapsulateError) -> BalanceDrop {
    match error {
        DecapsulateError::Checksum => BalanceDrop::BadChecksum,
        DecapsulateError::Fragment => BalanceDrop::TunnelFragment,
        DecapsulateError::Congestion => BalanceDrop::Congestion,
        DecapsulateError::NotIp { .. }
        | DecapsulateError::NotTunnel { .. }
        | DecapsulateError::Malformed(_)
        | DecapsulateError::NoRoom(_) => BalanceDrop::Malformed,
    }
}
