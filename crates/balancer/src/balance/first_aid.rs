//! What an operator does about an attack: packets from blocked prefixes are dropped, and connections begin
//! no faster than limits say.

use super::serve::FromClient;
use super::{Balance, BalanceDrop, Turn};
use crate::limits::Refused;
use crate::own_header::OwnHeader;
use crate::services::{Service, ServiceTable};
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;
use hotloop::stage::{Burst, Carries, Classified, Cx};
use std::net::IpAddr;

impl<P: PacketBuf + Carries> Balance<P> {
    /// Drops the packets of a burst that come from blocked prefixes, those of known connections among
    /// them. Called only while any prefix is blocked.
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
            // What it says is for stages that return a verdict for each packet.
            let _ = cx.drop::<_, ()>(classified.packet, BalanceDrop::Blocked);
            None
        });
        others.map_into(input, Some);
    }
}

impl<'d, P: PacketBuf> Turn<'d, '_, '_, P> {
    /// Counts a connection that begins with this packet, where there are limits. What is within TCP is
    /// of a connection that began before, at another balancer or in another life of this one: it is never
    /// limited.
    ///
    /// # Errors
    /// It may not begin now.
    #[inline]
    pub(super) fn admit(
        &self,
        service: &Service,
        packet: &FromClient<'_>,
    ) -> Result<(), BalanceDrop> {
        if !self.services.has_limits() || packet.is_within_tcp() {
            return Ok(());
        }
        let admitted = self.services.admit(service, packet.key.source(), self.now());
        admitted.map_err(|refused| match refused {
            Refused::Source => BalanceDrop::SourceLimit,
            Refused::Service => BalanceDrop::ServiceLimit,
        })
    }

    /// As [`admit`](Self::admit), where the service is not looked up yet.
    #[inline]
    pub(super) fn admit_lazily(
        &self,
        service: impl FnOnce() -> Result<&'d Service, BalanceDrop>,
        packet: &FromClient<'_>,
    ) -> Result<(), BalanceDrop> {
        if self.services.has_limits() { self.admit(service()?, packet) } else { Ok(()) }
    }
}

/// Whether a frame for this station carries a packet to a service from a blocked prefix.
fn is_frame_blocked(services: &ServiceTable, frame: &[u8], layout: Layout) -> bool {
    if let Some(key) = layout.fast_key_v4(frame) {
        return is_blocked(services, key.source().into(), key.destination().into());
    }
    layout.is_ip()
        && OwnHeader::of(frame).is_some_and(|it| is_blocked(services, it.source, it.destination))
}

/// Whether a packet with these addresses is to a service from a blocked prefix. What is for the balancer
/// itself is never blocked.
pub(super) fn is_blocked(services: &ServiceTable, source: IpAddr, destination: IpAddr) -> bool {
    services.blocked().is_some_and(|blocked| blocked.contains(source))
        && services.is_vip(destination)
}
