//! Packets that may not go into a tunnel, whichever backend they would go to.

use super::BalanceDrop;
use crate::own_header::OwnHeader;
use crate::services::ServiceTable;
use hotloop::packet::ip::{is_host, protocol};
use hotloop::packet::ipip::{self, EncapsulationLimit};
use hotloop::packet::ipv4::Ipv4View;
use hotloop::packet::ipv6::{self, Ipv6View};
use std::net::IpAddr;

/// How many tunnels a packet may be in before it is wrapped once more: as many as RFC 2473, section
/// 4.1.1, proposes for the encapsulation limit, which tunnels over IPv4 can't state. A loop through
/// several balancers, each of which is a source of its own, ends here.
pub const TUNNELS_MAX: usize = 4;

/// Why a packet with these addresses may not be wrapped, if it may not: one of them is no host's, or
/// its source is a tunnel's entry point here, so that it comes from a tunnel's loop (RFC 2003, section
/// 3).
///
/// A connection is entered only for packets that may be wrapped, and all of its packets have its
/// addresses: those of a known connection need no second look.
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

/// Whether a packet has come round a loop of tunnels: one of those that it is in begins here, or it is in
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

/// Source, protocol and length of the header of a packet in a tunnel of this protocol; none where the
/// protocol is none of tunnels, or where the header is cut.
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

/// Where a packet states that it may enter no further tunnel (RFC 2473, section 4.1.1): in bytes from
/// its IPv6 header.
pub fn spent_limit(header: &OwnHeader, frame: &[u8]) -> Option<u32> {
    if header.source.is_ipv4() {
        return None;
    }
    match ipip::encapsulation_limit(frame.get(header.l3_offset..)?)? {
        EncapsulationLimit { limit: 0, pointer } => Some(pointer),
        EncapsulationLimit { .. } => None,
    }
}
