//! Classifies the packets that aren't forwarded at once, and passes each to the function for its
//! kind. Reads the packet's headers and the service table; changes no connection. Every packet has
//! exactly one outcome here: a handler takes it, or it is dropped for a named reason.

use super::blocklist::is_blocked;
use super::fast_open::FastFlow;
use super::probing::is_for_probes;
use super::{BalanceDrop, Turn, Worker};
use crate::services::ServiceTable;
use crate::spec::IcmpEcho;
use hotloop::flow::Handle;
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::{Depth, Kind, Layout};
use hotloop::packet::ethernet::Station;
use hotloop::packet::icmpv6::{is_multicast_listener, is_neighbour_discovery};
use hotloop::packet::ip::{Fragment, is_host, is_truncated};
use hotloop::packet::ipip::{self, DecapsulateError};
use hotloop::packet::own_header::OwnHeader;

/// Whether only neighbours exchange messages of this type, so that no backend gets them.
const fn is_for_neighbours(icmpv6_kind: u8) -> bool {
    is_neighbour_discovery(icmpv6_kind) || is_multicast_listener(icmpv6_kind)
}

impl<P: PacketBuf> Worker<P> {
    /// Classifies the packet at `index` of its burst, which may be any packet that isn't forwarded
    /// at once, and passes it to the function for its kind. `found` is the packet's connection if
    /// the table was searched for it.
    #[inline(never)]
    pub(super) fn dispatch(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        layout: Layout,
        index: usize,
        found: Option<(Handle, u64)>,
    ) {
        // Nearly all of these begin or end connections. The kinds handled below can't be among
        // them.
        if let Some(key) = layout.fast_key_v4(packet.data())
            && let Some(service) = turn.services.service_of_v4(&key)
        {
            self.serve_fast(turn, packet, FastFlow { key, layout, index }, found, service);
        } else {
            self.dispatch_any(turn, packet, layout);
        }
    }

    /// Passes a packet that isn't the balancer's to the kernel, or from the kernel to the wire.
    /// Without an exception path, the packet is dropped.
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
                let reason = self.reason_of_malformed(turn, &packet);
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
            self.bare(turn, packet, &header, layout, Arrival::Bare);
        }
    }

    /// The reason to drop a frame that classification finds malformed.
    #[cold]
    fn reason_of_malformed(&self, turn: &Turn<'_, '_, '_, P>, packet: &P) -> BalanceDrop {
        if !is_truncated(packet.data(), packet.len_bytes()) {
            return BalanceDrop::Malformed;
        }
        if let Some((port, bytes)) = self.ports.cut_of(packet) {
            turn.counts.note_cut_frame(port, bytes);
        }
        BalanceDrop::Truncated
    }

    /// A tunnel packet to an own address.
    fn unwrap(&mut self, turn: &mut Turn<'_, '_, '_, P>, mut packet: P, outer: &OwnHeader) {
        if !self.ports.may_end_tunnel(&packet) {
            return turn.reject(packet, BalanceDrop::TunnelFromClients);
        }
        if !turn.services.may_tunnel(outer.source) {
            turn.counts.note_unknown_tunnel_source(outer.source);
            return turn.reject(packet, BalanceDrop::UnknownTunnelSource);
        }
        if outer.fragment != Fragment::None {
            return turn.reject(packet, BalanceDrop::TunnelFragment);
        }
        if let Err(error) = ipip::decapsulate(&mut packet) {
            return turn.reject(packet, drop_of_decapsulation(error));
        }
        // Offsets have moved, and the inner packet may be a tunnel packet again.
        let layout = Layout::at(packet.data(), packet.len_bytes(), Depth::Innermost, &Station::ANY);
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
                // A packet from a tunnel has lost the headers that the kernel needs.
                let may_punt = std::mem::replace(&mut turn.may_punt, false);
                self.bare(turn, packet, &inner, layout, Arrival::Tunnelled);
                turn.may_punt = may_punt;
            }
            _ => turn.reject(packet, BalanceDrop::Malformed),
        }
    }

    /// Handles a packet that is in no tunnel, or no longer in one.
    fn bare(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        header: &OwnHeader,
        layout: Layout,
        arrival: Arrival,
    ) {
        if self.probing.is_some() && is_for_probes(turn.services, header, layout) {
            return self.take_reply(turn, packet);
        }
        // The inner packet of a tunnel may be an error, too: the balancer doesn't follow that one.
        // Nor does it follow a packet from a service to its client, which is a reply like any
        // other.
        let is_reply = arrival == Arrival::Tunnelled
            && is_about_client(turn.services, header, &packet, layout);
        if layout.is_icmp_error() && !layout.is_tunnel() && !is_reply {
            return self.error(turn, packet, header, layout);
        }
        let icmp_kind = header.icmp_kind(packet.data());
        if header.source.is_ipv6() && icmp_kind.is_some_and(is_for_neighbours) {
            return self.punt(turn, packet);
        }
        if !turn.services.is_vip(header.destination) {
            if arrival == Arrival::Tunnelled && turn.services.is_vip(header.source) {
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

/// The way that a packet arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Arrival {
    /// Without a tunnel.
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
