//! The packet that is to be wrapped.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::{
    Header, Malformed, NoRoom, PacketBuf,
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    ip::protocol,
    ipip::{EncapsulateError, outer::ETHERTYPE_BYTES},
    ipv4::{self, Ipv4Header, Ipv4View},
    ipv6::{self, Ipv6Header, Ipv6View},
};

/// The headers of a plain packet: in a frame without VLAN tags, with an IPv4 header without options.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Plain {
    pub addresses: [u8; 12],
    ethertype: [u8; 2],
    pub ip: Ipv4Header,
}

impl Plain {
    /// The headers of a plain packet that lies whole in a frame of `len_bytes` bytes.
    #[inline(always)]
    pub(super) fn of(frame: &[u8], len_bytes: usize) -> Option<&Self> {
        /// With the outer header, the packet is as long as that can say.
        const TOTAL_BYTES_MAX: usize = u16::MAX as usize - ipv4::HEADER_BYTES;
        /// All but the traffic class.
        const MASK: u32 = u32::from_ne_bytes([0xff, 0xff, 0xff, 0]);
        let [high, low] = ETHERTYPE_IPV4.to_be_bytes();
        let (plain, _) = Self::ref_from_prefix(frame).ok()?;
        let start = u32::from_ne_bytes(*frame.get(12..)?.first_chunk()?);
        let total_bytes = usize::from(plain.ip.total_length());
        let is_plain = start & MASK == u32::from_ne_bytes([high, low, 0x45, 0])
            && (ipv4::HEADER_BYTES..=TOTAL_BYTES_MAX).contains(&total_bytes)
            && ethernet::HEADER_BYTES + total_bytes <= len_bytes;
        is_plain.then_some(plain)
    }
}

/// What the outer header takes from the packet that is to be wrapped.
pub(super) struct Inner {
    /// Where the packet begins in its frame: 14, 18 or 22.
    pub l3_offset: usize,
    /// Length in bytes of the packet, padding apart.
    pub total_bytes: usize,
    pub protocol: u8,
    pub traffic_class: u8,
    pub dont_fragment: bool,
    /// Of the outer header, where no flow gives one.
    pub identification: u16,
}

impl Inner {
    /// Checks all that can prevent a packet from being wrapped, but for the room that it needs.
    #[inline]
    pub(super) fn read(frame: &[u8], len_bytes: usize) -> Result<Self, EncapsulateError> {
        let (ethertype, l3_offset) = ethernet::network_layer(frame).ok_or(Malformed::cut(
            Header::Ethernet,
            ethernet::HEADER_BYTES,
            frame.len(),
        ))?;
        let bytes = &frame[l3_offset..];
        let (inner, ttl, header) = match ethertype {
            ETHERTYPE_IPV4 => {
                let view = Ipv4View::parse_cut(bytes)?;
                (Self::of_v4(&view, l3_offset), view.ttl(), Header::Ipv4)
            }
            ETHERTYPE_IPV6 => {
                let view = Ipv6View::parse_cut(bytes)?;
                (Self::of_v6(&view, l3_offset), view.hop_limit(), Header::Ipv6)
            }
            _ => return Err(EncapsulateError::NotIp { ethertype }),
        };
        let available_bytes = len_bytes.saturating_sub(l3_offset);
        if inner.total_bytes > available_bytes {
            return Err(Malformed::cut(header, inner.total_bytes, available_bytes).into());
        }
        if ttl <= 1 {
            return Err(EncapsulateError::TtlExpired);
        }
        Ok(inner)
    }

    #[inline(always)]
    pub(super) fn of_v4(header: &Ipv4Header, l3_offset: usize) -> Self {
        // With the offset, so that the fragments of one inner datagram differ.
        let fragment_offset = (header.fragment_offset_bytes() / 8) as u16;
        Self {
            l3_offset,
            total_bytes: usize::from(header.total_length()),
            protocol: protocol::IPV4,
            traffic_class: header.traffic_class(),
            dont_fragment: header.dont_fragment(),
            identification: header.identification().wrapping_add(fragment_offset),
        }
    }

    #[inline]
    fn of_v6(header: &Ipv6Header, l3_offset: usize) -> Self {
        Self {
            l3_offset,
            total_bytes: ipv6::HEADER_BYTES + usize::from(header.payload_length()),
            protocol: protocol::IPV6,
            traffic_class: header.traffic_class(),
            dont_fragment: true,
            identification: 0,
        }
    }
}

/// Makes room, and writes the outer EtherType and header into it: all that can fail comes first.
#[inline]
pub(super) fn place<P: PacketBuf, const N: usize>(
    packet: &mut P,
    inner: &Inner,
    outer: impl FnOnce() -> [u8; N],
) -> Result<(), NoRoom> {
    let grown_bytes = N - ETHERTYPE_BYTES;
    let bytes = packet.prepend(grown_bytes)?;
    let ethertype_offset = inner.l3_offset - ETHERTYPE_BYTES;
    bytes.copy_within(grown_bytes..grown_bytes + ethertype_offset, 0);
    bytes[ethertype_offset..ethertype_offset + N].copy_from_slice(&outer());
    let inner_bytes = &mut bytes[ethertype_offset + N..];
    // The header is there, and the TTL is above 1: `Inner::read` has seen it.
    if inner.protocol == protocol::IPV4 {
        if let Ok((header, _)) = Ipv4Header::mut_from_prefix(inner_bytes) {
            header.decrement_ttl();
        }
    } else if let Ok((header, _)) = Ipv6Header::mut_from_prefix(inner_bytes) {
        header.decrement_hop_limit();
    }
    packet.truncate(inner.l3_offset + grown_bytes + inner.total_bytes);
    Ok(())
}
