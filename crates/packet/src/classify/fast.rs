//! The fast path: packets with all headers at fixed offsets, so that no header has to be walked
//! through.

use std::hint;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned, big_endian::U16};

use crate::{
    classify::{Kind, Summary},
    ethernet::{self, Station},
    flow_key::{FlowKeyV4, FlowKeyV6},
    ip::{Fragment, protocol},
    ipv4, tcp, udp,
};

pub(super) const L3_OFFSET: usize = 14;
pub(super) const L4_OFFSET_V4: usize = 34;
pub(super) const L4_OFFSET_V6: usize = 54;

/// The headers of TCP in IPv4 without options. Every Ethernet frame is longer, whatever it carries.
pub(super) const FRONT_BYTES_V4: usize = L4_OFFSET_V4 + tcp::HEADER_BYTES;

/// Ethernet, IPv4 and the first eight bytes of TCP or UDP.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct HeadersV4 {
    macs: [u8; 12],
    ethertype: U16,
    version_ihl: u8,
    traffic_class: u8,
    total_length: U16,
    identification: U16,
    flags_fragment: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    addresses: [u8; 8],
    ports: [u8; 4],
    udp_length: U16,
    udp_checksum: U16,
}

/// Ethernet, IPv6 and the first eight bytes of TCP or UDP.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct HeadersV6 {
    macs: [u8; 12],
    ethertype: U16,
    version_class: u8,
    class_label: [u8; 3],
    payload_length: U16,
    next_header: u8,
    hop_limit: u8,
    addresses: [u8; 32],
    ports: [u8; 4],
    udp_length: U16,
    udp_checksum: U16,
}

/// A UDP datagram in a plain frame: IPv4 without VLAN tags, options or fragments.
///
/// ```
/// use hotloop_packet::{build::udp, classify::PlainDatagram};
///
/// let frame = udp().to("192.0.2.1:53").payload([7; 32]).build();
/// let datagram = PlainDatagram::of(&frame, frame.len()).unwrap();
/// assert_eq!((datagram.destination_port, datagram.payload_bytes), (53, 32));
/// assert_eq!(frame[datagram.payload_offset.into()..], [7; 32]);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlainDatagram {
    /// The destination port.
    pub destination_port: u16,
    /// The offset of the payload, in bytes from the start of the frame.
    pub payload_offset: u16,
    /// The length of the payload in bytes, over all segments.
    pub payload_bytes: u16,
}

impl PlainDatagram {
    /// Returns the datagram in a frame, or `None` for any other frame, in which [`Summary::of`] may
    /// still find a datagram. `frame` is the first segment, and `len_bytes` the length over all
    /// segments. Takes fewer instructions than [`Summary::of`] and a second look at the UDP header.
    #[inline]
    pub fn of(frame: &[u8], len_bytes: usize) -> Option<Self> {
        let headers = HeadersV4::find(frame, len_bytes)?;
        let [_, _, high, low] = headers.ports;
        (headers.protocol == protocol::UDP).then(|| Self {
            destination_port: u16::from_be_bytes([high, low]),
            payload_offset: (L4_OFFSET_V4 + udp::HEADER_BYTES) as u16,
            // `find` has checked that the length covers at least a header.
            payload_bytes: headers.udp_length.get().wrapping_sub(udp::HEADER_BYTES as u16),
        })
    }
}

/// The protocol of a frame if the fast path finds TCP or UDP in IPv4. All headers are then in the
/// first segment.
#[inline(always)]
pub(crate) fn plain_protocol_v4(frame: &[u8], len_bytes: usize) -> Option<u8> {
    HeadersV4::find(frame, len_bytes).map(|headers| headers.protocol)
}

impl HeadersV4 {
    /// The headers of a whole TCP or UDP packet in IPv4, without options, fragmentation or VLAN
    /// tags. [`Summary::walk`] finds the same.
    #[inline]
    pub(super) fn find(frame: &[u8], len_bytes: usize) -> Option<&Self> {
        Self::find_for(frame, len_bytes, &Station::ANY)
    }

    /// [`find`](Self::find) for a frame that is addressed to the station.
    #[inline(always)]
    pub(super) fn find_for<'a>(
        frame: &'a [u8],
        len_bytes: usize,
        station: &Station,
    ) -> Option<&'a Self> {
        let (headers, rest) = Self::ref_from_prefix(frame).ok()?;
        if !station.is_addressed(&headers.macs) {
            return None;
        }
        let is_ipv4 = headers.ethertype == ethernet::ETHERTYPE_IPV4
            && headers.version_ihl == ipv4::VERSION_IHL;
        // The don't-fragment flag may be set.
        let is_fragment = headers.flags_fragment.get() & 0x3fff != 0;
        if !is_ipv4 || is_fragment {
            return None;
        }
        let total_bytes = i32::from(headers.total_length.get());
        let is_whole = L3_OFFSET + total_bytes as usize <= len_bytes
            && is_transport_whole(headers.protocol, headers.udp_length, rest, total_bytes - 20);
        is_whole.then_some(headers)
    }

    #[inline]
    pub(super) fn key(&self) -> FlowKeyV4 {
        FlowKeyV4::from_wire(self.addresses, self.ports, self.protocol)
    }

    #[inline]
    pub(super) const fn summary(&self) -> Summary {
        summary(Kind::Ipv4, self.protocol, L4_OFFSET_V4)
    }
}

impl HeadersV6 {
    /// The headers of a whole TCP or UDP packet in IPv6, without extension headers or VLAN tags.
    /// [`Summary::walk`] finds the same.
    #[inline]
    pub(super) fn find(frame: &[u8], len_bytes: usize) -> Option<&Self> {
        let (headers, rest) = Self::ref_from_prefix(frame).ok()?;
        if headers.ethertype != ethernet::ETHERTYPE_IPV6 || headers.version_class >> 4 != 6 {
            return None;
        }
        let l4_bytes = i32::from(headers.payload_length.get());
        let is_whole = L4_OFFSET_V6 + l4_bytes as usize <= len_bytes
            && is_transport_whole(headers.next_header, headers.udp_length, rest, l4_bytes);
        is_whole.then_some(headers)
    }

    #[inline]
    pub(super) fn key(&self) -> FlowKeyV6 {
        FlowKeyV6::from_wire(self.addresses, self.ports, self.next_header)
    }

    #[inline]
    pub(super) const fn summary(&self) -> Summary {
        summary(Kind::Ipv6, self.next_header, L4_OFFSET_V6)
    }
}

/// The key of TCP or UDP in the IPv4 header without options at this offset, even if other fields
/// are wrong. `None` for anything else.
#[inline]
pub(super) fn key_v4(frame: &[u8], l3_offset: usize) -> Option<FlowKeyV4> {
    let header = frame.get(l3_offset..)?.first_chunk::<24>()?;
    let protocol = header[9];
    if header[0] != ipv4::VERSION_IHL || !matches!(protocol, protocol::TCP | protocol::UDP) {
        return None;
    }
    let (addresses, ports) = header[12..].split_first_chunk()?;
    Some(FlowKeyV4::from_wire(*addresses, *ports.first_chunk()?, protocol))
}

const fn summary(kind: Kind, protocol: u8, l4_offset: usize) -> Summary {
    Summary {
        kind,
        protocol,
        fragment: Fragment::None,
        is_tunnel: false,
        is_icmp_error: false,
        outer_l3_offset: L3_OFFSET,
        l3_offset: L3_OFFSET,
        l4_offset,
    }
}

/// Checks that a TCP or UDP header fits. `rest` begins after the header's first eight bytes.
/// `l4_bytes` is the length of header and payload, and negative if the IP header's length is wrong.
#[inline]
fn is_transport_whole(protocol: u8, udp_length: U16, rest: &[u8], l4_bytes: i32) -> bool {
    match protocol {
        protocol::UDP => is_between(8, udp_length.get().into(), l4_bytes),
        protocol::TCP => rest.first_chunk::<12>().is_some_and(|rest| {
            // The upper half of the byte counts words of four bytes.
            is_between(20, i32::from(rest[4] >> 4) * 4, l4_bytes)
        }),
        _ => false,
    }
}

/// Two branches that are always taken are faster than one combined condition.
#[inline]
const fn is_between(least: i32, length: i32, most: i32) -> bool {
    if length < least {
        hint::cold_path();
        return false;
    }
    length <= most
}
