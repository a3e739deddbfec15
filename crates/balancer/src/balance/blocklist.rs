//! Drops packets from prefixes that an operator has blocked, packets of known connections, too.
//! Reads the service table's blocks.

use super::{Balance, BalanceDrop};
use crate::services::ServiceTable;
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;
use hotloop::packet::own_header::OwnHeader;
use hotloop::stage::{Burst, Classified, Cx};
use std::net::IpAddr;

impl<P: PacketBuf> Balance<P> {
    /// Drops a burst's packets from blocked prefixes, including packets of known connections.
    /// Called only while any prefix is blocked.
    #[cold]
    #[inline(never)]
    pub(super) fn drop_blocked(
        &self,
        cx: &mut Cx<'_, BalanceDrop>,
        input: &mut Burst<Classified<P>>,
    ) {
        let services = self.services.current();
        let mut others = Burst::new();
        input.map_into(&mut others, |classified| {
            if !is_frame_blocked(services, classified.packet.data(), classified.tag()) {
                return Some(classified);
            }
            cx.discard(classified.packet, BalanceDrop::Blocked);
            None
        });
        others.map_into(input, Some);
    }
}

/// Whether a frame for this station carries a packet to a service from a blocked prefix.
fn is_frame_blocked(services: &ServiceTable, frame: &[u8], layout: Layout) -> bool {
    if let Some(key) = layout.fast_key_v4(frame) {
        return is_blocked(services, key.source().into(), key.destination().into());
    }
    layout.is_ip()
        && OwnHeader::of(frame)
            .is_some_and(|header| is_blocked(services, header.source, header.destination))
}

/// Whether a packet with these addresses goes to a service and comes from a blocked prefix. Packets to the
/// balancer itself are never blocked.
pub(super) fn is_blocked(services: &ServiceTable, source: IpAddr, destination: IpAddr) -> bool {
    services.blocked().is_some_and(|blocked| blocked.contains(source))
        && services.is_vip(destination)
}
