//! Takes packets out of tunnels.

use std::net::IpAddr;

use crate::{
    Header, Malformed, PacketBuf,
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    ip::{Ecn, Fragment, protocol},
    ipip::DecapsulateError,
    ipv4::{Ipv4Header, Ipv4View},
    ipv6::{self, Ipv6Header, Ipv6View},
};

/// The tunnel that a packet came through.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Decapsulated {
    /// The outer header's source.
    pub source: IpAddr,
    /// The outer header's destination.
    pub destination: IpAddr,
}

/// Removes the outer IP header, with its options or extension headers, from the IP-in-IP packet of
/// a frame. The outer addresses are not checked.
///
/// The inner packet is unchanged, its TTL and differentiated services included: a router then
/// counts the hop, as for any packet. Only its congestion mark is combined with the outer one (RFC
/// 6040, section 4.2). Bytes after the inner packet are cut off.
///
/// # Errors
/// [`DecapsulateError`]; the packet is unchanged.
pub fn decapsulate<P: PacketBuf>(packet: &mut P) -> Result<Decapsulated, DecapsulateError> {
    let frame = packet.data();
    let cut = Malformed::cut(Header::Ethernet, ethernet::HEADER_BYTES, frame.len());
    let (ethertype, l3_offset) = ethernet::network_layer(frame).ok_or(cut)?;
    let bytes = &frame[l3_offset..];
    let len_bytes = packet.len_bytes().saturating_sub(l3_offset);
    let outer = match ethertype {
        ETHERTYPE_IPV4 => Outer::v4(bytes, len_bytes)?,
        ETHERTYPE_IPV6 => Outer::v6(bytes, len_bytes)?,
        _ => return Err(DecapsulateError::NotIp { ethertype }),
    };
    let inner = Inner::read(bytes, &outer)?;
    let ecn = joined_ecn(inner.ecn, outer.ecn)?;

    let mut link_header = [0; ethernet::HEADER_BYTES + 2 * ethernet::VLAN_TAG_BYTES];
    copy_link_header(&mut link_header, frame, l3_offset);
    link_header[l3_offset - 2..l3_offset].copy_from_slice(&inner.ethertype.to_be_bytes());
    packet.trim_front(outer.header_bytes)?;
    let bytes = packet.data_mut();
    copy_link_header(bytes, &link_header, l3_offset);
    if ecn != inner.ecn {
        inner.set_ecn(&mut bytes[l3_offset..], ecn);
    }
    packet.truncate(l3_offset + inner.total_bytes);
    Ok(Decapsulated { source: outer.source, destination: outer.destination })
}

/// Copies the Ethernet header with a length known at compile time, then any VLAN tags.
#[inline]
fn copy_link_header(to: &mut [u8], from: &[u8], l3_offset: usize) {
    const PLAIN: usize = ethernet::HEADER_BYTES;
    to[..PLAIN].copy_from_slice(&from[..PLAIN]);
    if l3_offset > PLAIN {
        to[PLAIN..l3_offset].copy_from_slice(&from[PLAIN..l3_offset]);
    }
}

/// The inner congestion mark after the tunnel: RFC 6040, figure 4.
fn joined_ecn(inner: Ecn, outer: Ecn) -> Result<Ecn, DecapsulateError> {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => Err(DecapsulateError::Congestion),
        (Ecn::NotEct, _) => Ok(Ecn::NotEct),
        (Ecn::Ce, _) | (_, Ecn::Ce) => Ok(Ecn::Ce),
        (Ecn::Ect0, Ecn::Ect1) => Ok(Ecn::Ect1),
        (inner, _) => Ok(inner),
    }
}

/// The outer header, checked.
struct Outer {
    source: IpAddr,
    destination: IpAddr,
    ecn: Ecn,
    protocol: u8,
    /// Length in bytes, options or extension headers included.
    header_bytes: usize,
    /// Length in bytes of the outer packet's payload.
    payload_bytes: usize,
}

impl Outer {
    fn v4(bytes: &[u8], len_bytes: usize) -> Result<Self, DecapsulateError> {
        let view = Ipv4View::parse_cut(bytes)?;
        let total = usize::from(view.total_length());
        if total > len_bytes {
            return Err(Malformed::cut(Header::Ipv4, total, len_bytes).into());
        }
        if view.fragment() != Fragment::None {
            return Err(DecapsulateError::Fragment);
        }
        if !view.is_checksum_right() {
            return Err(DecapsulateError::Checksum);
        }
        Ok(Self {
            source: view.source().into(),
            destination: view.destination().into(),
            ecn: view.ecn(),
            protocol: view.protocol(),
            header_bytes: view.header_bytes(),
            payload_bytes: total - view.header_bytes(),
        })
    }

    fn v6(bytes: &[u8], len_bytes: usize) -> Result<Self, DecapsulateError> {
        let view = Ipv6View::parse_cut(bytes)?;
        let payload_bytes = usize::from(view.payload_length());
        let total = ipv6::HEADER_BYTES + payload_bytes;
        if total > len_bytes {
            return Err(Malformed::cut(Header::Ipv6, total, len_bytes).into());
        }
        let chain = view.chain()?;
        if chain.fragment != Fragment::None {
            return Err(DecapsulateError::Fragment);
        }
        Ok(Self {
            source: view.source().into(),
            destination: view.destination().into(),
            ecn: view.ecn(),
            protocol: chain.protocol,
            header_bytes: ipv6::HEADER_BYTES + chain.offset_bytes,
            // The chain lies within the payload.
            payload_bytes: payload_bytes - chain.offset_bytes,
        })
    }
}

/// The inner header, checked.
struct Inner {
    ethertype: u16,
    ecn: Ecn,
    /// Length in bytes of the packet.
    total_bytes: usize,
}

impl Inner {
    /// Reads the header after `outer`, at the start of `bytes`.
    fn read(bytes: &[u8], outer: &Outer) -> Result<Self, DecapsulateError> {
        let bytes = bytes.get(outer.header_bytes..).unwrap_or_default();
        let bytes = bytes.get(..outer.payload_bytes).unwrap_or(bytes);
        let (inner, header) = match outer.protocol {
            protocol::IPV4 => {
                let view = Ipv4View::parse_cut(bytes)?;
                let total_bytes = usize::from(view.total_length());
                let ecn = view.ecn();
                (Self { ethertype: ETHERTYPE_IPV4, ecn, total_bytes }, Header::Ipv4)
            }
            protocol::IPV6 => {
                let view = Ipv6View::parse_cut(bytes)?;
                let total_bytes = ipv6::HEADER_BYTES + usize::from(view.payload_length());
                let ecn = view.ecn();
                (Self { ethertype: ETHERTYPE_IPV6, ecn, total_bytes }, Header::Ipv6)
            }
            protocol => return Err(DecapsulateError::NotTunnel { protocol }),
        };
        if inner.total_bytes > outer.payload_bytes {
            return Err(Malformed::cut(header, inner.total_bytes, outer.payload_bytes).into());
        }
        Ok(inner)
    }

    fn set_ecn(&self, bytes: &mut [u8], ecn: Ecn) {
        // Both succeed: `read` has checked the header.
        if self.ethertype == ETHERTYPE_IPV4 {
            if let Ok(header) = Ipv4Header::parse_mut(bytes) {
                header.set_ecn(ecn);
            }
        } else if let Ok(header) = Ipv6Header::parse_mut(bytes) {
            header.set_ecn(ecn);
        }
    }
}
