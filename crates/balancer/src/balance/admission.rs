//! Admits connections within the limits on their rates, and packets to tunnels, whichever backend
//! they would go to. Reads addresses, the packet's headers and the service table. Packets of
//! connections that have begun are never limited. An admitted packet can't be in a loop of more than
//! [`TUNNELS_MAX`] tunnels.

use super::serve::FromClient;
use super::{BalanceDrop, Turn};
use crate::limits::Refused;
use crate::services::{Service, ServiceTable};
use hotloop::packet::PacketBuf;
use hotloop::packet::ip::{is_host, protocol};
use hotloop::packet::ipip::{self, EncapsulationLimit};
use hotloop::packet::ipv4::Ipv4View;
use hotloop::packet::ipv6::{self, Ipv6View};
use hotloop::packet::own_header::OwnHeader;
use std::net::IpAddr;

/// Maximum number of tunnels that a packet may be in before it is wrapped once more: the value that
/// RFC 2473, section 4.1.1, proposes for the encapsulation limit, which tunnels over IPv4 can't
/// state. A loop through several balancers, each with a source address of its own, ends here.
pub const TUNNELS_MAX: usize = 4;

impl<'d, P: PacketBuf> Turn<'d, '_, '_, P> {
    /// Counts a connection that begins with this packet, if there are limits. A packet within TCP
    /// belongs to a connection that began before, at another balancer or in an earlier run of this
    /// one: it is never limited.
    ///
    /// # Errors
    /// Returns the reason if the connection may not begin now.
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

    /// Like [`admit`](Self::admit), for a service that is not looked up yet.
    #[inline]
    pub(super) fn admit_lazily(
        &self,
        service: impl FnOnce() -> Result<&'d Service, BalanceDrop>,
        packet: &FromClient<'_>,
    ) -> Result<(), BalanceDrop> {
        if self.services.has_limits() { self.admit(service()?, packet) } else { Ok(()) }
    }
}

/// The reason, if any, why a packet with these addresses may not be wrapped: one of them is not a
/// host's, or the source is a tunnel's entry point here, so the packet comes from a tunnel's loop
/// (RFC 2003, section 3).
///
/// Connections are entered only for packets that may be wrapped, and all packets of a connection
/// have its addresses: packets of a known connection need no second check.
#[inline(always)]
pub fn of_addresses(
    services: &ServiceTable,
    source: IpAddr,
    destination: IpAddr,
) -> Option<BalanceDrop> {
    if !is_host(source) {
        return Some(BalanceDrop::MartianSource);
    }
    if !is_host(destination) {
        return Some(BalanceDrop::MartianDestination);
    }
    services.is_tunnel_source(source).then_some(BalanceDrop::TunnelLoop)
}

/// Whether a packet has come round a loop of tunnels: one of its tunnels begins here, or it is in
/// [`TUNNELS_MAX`] of them.
pub fn is_looping(services: &ServiceTable, header: &OwnHeader, frame: &[u8]) -> bool {
    let (mut inner_protocol, mut offset) = (header.protocol, header.l4_offset);
    for _ in 0..TUNNELS_MAX {
        let packet = frame.get(offset..).unwrap_or_default();
        let Some((source, next_protocol, header_bytes)) = inner(inner_protocol, packet) else {
            return false;
        };
        if services.is_tunnel_source(source) {
            return true;
        }
        (inner_protocol, offset) = (next_protocol, offset + header_bytes);
    }
    true
}

/// Source, protocol and length of the header of a packet in a tunnel of this protocol; `None` if
/// the protocol is not a tunnel's or the header is cut short.
fn inner(tunnel_protocol: u8, packet: &[u8]) -> Option<(IpAddr, u8, usize)> {
    match tunnel_protocol {
        protocol::IPV4 => {
            let view = Ipv4View::parse_cut(packet).ok()?;
            Some((view.source().into(), view.protocol(), view.header_bytes()))
        }
        protocol::IPV6 => {
            let view = Ipv6View::parse_cut(packet).ok()?;
            let chain = view.chain().ok()?;
            let header_bytes = ipv6::HEADER_BYTES + chain.offset_bytes;
            Some((view.source().into(), chain.protocol, header_bytes))
        }
        _ => None,
    }
}

/// The offset, in bytes from the IPv6 header, of the statement that a packet may enter no further
/// tunnel (RFC 2473, section 4.1.1).
pub fn spent_limit(header: &OwnHeader, frame: &[u8]) -> Option<u32> {
    if header.source.is_ipv4() {
        return None;
    }
    match ipip::encapsulation_limit(frame.get(header.l3_offset..)?)? {
        EncapsulationLimit { limit: 0, pointer } => Some(pointer),
        EncapsulationLimit { .. } => None,
    }
}
