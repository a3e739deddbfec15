//! IPv6 headers, written.

use std::net::Ipv6Addr;

use zerocopy::big_endian::{U16, U32};

use crate::{
    Header, PacketBuf, WriteError,
    checksum::{Change, Sum},
    ip_fields::{Ecn, Fragment},
    ipv6::{HEADER_BYTES, Ipv6Header, walk},
    write::{self, Field},
};

/// Hop limit of new headers.
const HOP_LIMIT: u8 = 64;

/// The bits of the flow label.
const FLOW_LABEL: u32 = 0xf_ffff;

impl Ipv6Header {
    /// A header for [`push`], which fills in the length. `next_header` is the type of an extension
    /// header, or the payload's protocol: see [`crate::ip::protocol`]. The hop limit is 64.
    #[inline]
    pub const fn new(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8) -> Self {
        Self {
            version_class_label: U32::new(6 << 28),
            payload_length: U16::ZERO,
            next_header,
            hop_limit: HOP_LIMIT,
            source: source.octets(),
            destination: destination.octets(),
        }
    }

    /// Decrements the hop limit. Returns `false` and changes nothing if the limit is 0.
    #[inline]
    pub fn decrement_hop_limit(&mut self) -> bool {
        let Some(hop_limit) = self.hop_limit.checked_sub(1) else { return false };
        self.hop_limit = hop_limit;
        true
    }

    /// Writes the hop limit.
    #[inline]
    pub const fn set_hop_limit(&mut self, hop_limit: u8) {
        self.hop_limit = hop_limit;
    }

    /// Writes the differentiated services code point: the low six bits of `dscp` (RFC 2474).
    #[inline]
    pub fn set_dscp(&mut self, dscp: u8) {
        self.set_traffic_class(dscp << 2 | self.traffic_class() & 3);
    }

    /// Writes the congestion mark (RFC 3168).
    #[inline]
    pub fn set_ecn(&mut self, ecn: Ecn) {
        self.set_traffic_class(self.traffic_class() & !3 | ecn as u8);
    }

    #[inline]
    fn set_traffic_class(&mut self, traffic_class: u8) {
        let others = self.version_class_label.get() & 0xf00f_ffff;
        self.version_class_label.set(others | u32::from(traffic_class) << 20);
    }

    /// Writes the source. Returns the change, for the checksum of TCP, UDP or ICMPv6.
    /// [`nat::rewrite_source`](crate::nat::rewrite_source) does both.
    #[inline]
    #[must_use = "the checksum of TCP, UDP or ICMPv6 covers the address"]
    pub fn set_source(&mut self, source: Ipv6Addr) -> Change {
        let change = Change::of_bytes(self.source, source.octets());
        self.source = source.octets();
        change
    }

    /// Writes the destination. Returns the change, as [`set_source`](Self::set_source) does.
    #[inline]
    #[must_use = "the checksum of TCP, UDP or ICMPv6 covers the address"]
    pub fn set_destination(&mut self, destination: Ipv6Addr) -> Change {
        let change = Change::of_bytes(self.destination, destination.octets());
        self.destination = destination.octets();
        change
    }

    /// Writes the flow label: the low 20 bits of `flow_label` (RFC 6437).
    #[inline]
    pub fn set_flow_label(&mut self, flow_label: u32) {
        let others = self.version_class_label.get() & !FLOW_LABEL;
        self.version_class_label.set(others | flow_label & FLOW_LABEL);
    }

    /// Writes the length of everything after this header. Returns the change for the checksum of TCP
    /// or ICMPv6, which covers the length of the message: it counts unless only extension headers
    /// have grown. UDP has a length of its own
    /// ([`UdpHeader::set_length`](crate::udp::UdpHeader::set_length)).
    #[inline]
    #[must_use = "the checksum of TCP or ICMPv6 covers the length too"]
    pub fn set_payload_length(&mut self, payload_length: u16) -> Change {
        let change = Change::of_word(self.payload_length.get(), payload_length);
        self.payload_length.set(payload_length);
        change
    }

    /// Writes the type of an extension header, or the payload's protocol. The checksum of TCP, UDP
    /// or ICMPv6 covers the protocol after the extension headers, which stays the same if one of
    /// these comes or goes (RFC 8200, section 8.1).
    #[inline]
    pub const fn set_next_header(&mut self, next_header: u8) {
        self.next_header = next_header;
    }
}

/// Puts a header in front of the packet. The whole packet is its payload: cut
/// [padding](crate::ip::cut_padding) off first.
///
/// Fills in the header's length, and completes the checksum of TCP, UDP or ICMPv6 that the payload
/// begins with, or that follows its extension headers. It is computed from scratch, which reads all
/// bytes of the packet, over all segments. A UDP checksum of 0, for tunnels only (RFC 6935), stays 0
/// without reading. A fragment's payload is left as it is.
///
/// A checksum that was wrong becomes right: verify that of a message from elsewhere before.
///
/// ```
/// use hotloop_packet::{
///     PacketBuf, build, icmpv6::{self, Icmpv6Header, kind}, ip::protocol,
///     ipv6::{self, Ipv6Header}, memory::MemPacket,
/// };
///
/// let mut packet = MemPacket::new(b"ping");
/// icmpv6::push(&mut packet, Icmpv6Header::new(kind::ECHO_REQUEST, 0, 7 << 16 | 9))?;
/// let (source, destination) = ("2001:db8::1".parse()?, "2001:db8::2".parse()?);
/// ipv6::push(&mut packet, Ipv6Header::new(source, destination, protocol::ICMPV6))?;
///
/// let frame = build::echo_request(7, 9).to("2001:db8::2").payload(b"ping").build();
/// assert_eq!(packet.data(), &frame[14..]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`WriteError`]: there are no 40 bytes of headroom, the packet has more than 65,535 bytes, or its
/// first segment ends within its extension headers or the header of the protocol. The packet is
/// unchanged.
pub fn push<P: PacketBuf>(packet: &mut P, header: Ipv6Header) -> Result<(), WriteError> {
    let chain = walk(header.next_header, packet.data())?;
    let field = if chain.fragment == Fragment::None {
        let len_bytes = packet.len_bytes().saturating_sub(chain.offset_bytes) as u32;
        let (source, destination) = (header.source(), header.destination());
        let pseudo = Sum::default().pseudo_v6(source, destination, chain.protocol, len_bytes);
        Field::of(packet, (chain.protocol, chain.offset_bytes), pseudo)?
    } else {
        None
    };
    let bytes = push_alone(packet, header)?;
    if let Some(field) = field {
        field.write(&mut bytes[HEADER_BYTES..]);
    }
    Ok(())
}

/// [`push`] that leaves the payload as it is. Returns the whole first segment.
pub(crate) fn push_alone<P: PacketBuf>(
    packet: &mut P,
    mut header: Ipv6Header,
) -> Result<&mut [u8], WriteError> {
    header.payload_length.set(write::length(Header::Ipv6, packet.len_bytes())?);
    Ok(write::put(packet, header)?)
}
