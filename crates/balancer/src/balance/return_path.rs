//! Packets from services to clients, through tunnels. Uses the packet, its connection and the
//! service table. Sends only packets with a service's address as their source.

use super::{BalanceDrop, Turn, Worker};
use crate::services::{ServiceTable, TargetId};
use hotloop::packet::classify::Layout;
use hotloop::packet::ethernet::ETHERTYPE_IPV4;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::Fragment;
use hotloop::packet::ipv4::Ipv4Header;
use hotloop::packet::ipv6::Ipv6Header;
use hotloop::packet::own_header::OwnHeader;
use hotloop::packet::{PacketBuf, ethernet, ipv4, ipv6, tcp};

impl<P: PacketBuf> Worker<P> {
    /// A packet from a service's address to a client, unwrapped.
    pub(super) fn return_to_client(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        mut packet: P,
        header: &OwnHeader,
        layout: Layout,
    ) {
        if !header.is_checksum_right(packet.data()) {
            return turn.reject(packet, BalanceDrop::BadChecksum);
        }
        let flags = header.tcp_flags(packet.data());
        let mut target = None;
        // A nested tunnel's key describes the packet inside it.
        if !layout.is_tunnel()
            && let Some(key) = layout.key(packet.data())
        {
            target = self.follow_server(turn, &key.reversed(), header, flags);
        }
        if !spend_hop(packet.data_mut()) {
            return turn.reject(packet, BalanceDrop::TtlExpired);
        }
        if turn.services.settings.clamp_mss && tcp::is_syn_ack(flags) {
            let mss_max = mss_max(turn.services, target, header);
            let end = (header.l3_offset + header.total_bytes).min(packet.data().len());
            if let Some(segment) = packet.data_mut().get_mut(header.l4_offset..end) {
                tcp::clamp_mss(segment, mss_max);
            }
        }
        turn.counts.to_clients.add(1);
        let egress = self.egresses.clients;
        ethernet::set_addresses(&mut packet, egress.source, egress.destination);
        turn.send(packet, egress.route);
    }

    /// Updates the connection from the server's packet, and returns the connection's backend.
    fn follow_server(
        &mut self,
        turn: &Turn<'_, '_, '_, P>,
        key: &FlowKey,
        header: &OwnHeader,
        flags: u8,
    ) -> Option<TargetId> {
        let (place, _) = self.connections.find(key, turn.now()).ok()?;
        let mut connection = self.connections.connection(place)?;
        turn.counts.replies_known.add(1);
        if header.fragment != Fragment::Later {
            connection.follow_server(flags);
            self.connections.set(place, key, connection, turn.now());
        }
        Some(connection.target)
    }
}

/// The largest segment that fits the tunnel to the backend, in bytes of payload. If the backend
/// isn't known, the longer outer header counts.
fn mss_max(services: &ServiceTable, target: Option<TargetId>, header: &OwnHeader) -> u16 {
    let target = target.and_then(|target| services.active(target));
    let outer_bytes =
        target.map_or(ipv6::HEADER_BYTES, |target| target.tunnel.outer_header_bytes());
    let inner_bytes = if header.source.is_ipv4() { ipv4::HEADER_BYTES } else { ipv6::HEADER_BYTES };
    let headers_bytes = (outer_bytes + inner_bytes + tcp::HEADER_BYTES) as u16;
    services.settings.mtu_bytes.saturating_sub(headers_bytes)
}

/// Counts the hop of a packet that is forwarded unchanged. Returns whether it may be forwarded.
fn spend_hop(frame: &mut [u8]) -> bool {
    let Some((ethertype, l3_offset)) = ethernet::network_layer(frame) else { return false };
    let packet = &mut frame[l3_offset..];
    if ethertype == ETHERTYPE_IPV4 {
        Ipv4Header::parse_mut(packet).is_ok_and(|header| header.ttl() > 1 && header.decrement_ttl())
    } else {
        Ipv6Header::parse_mut(packet)
            .is_ok_and(|header| header.hop_limit() > 1 && header.decrement_hop_limit())
    }
}
