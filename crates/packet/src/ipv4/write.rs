//! IPv4 headers, written.

use std::net::Ipv4Addr;

use zerocopy::{IntoBytes, big_endian::U16};

use crate::{
    Header, Malformed, PacketBuf, WriteError,
    checksum::{self, Change, Sum},
    ip_fields::{Ecn, Fragment},
    ipv4::{DONT_FRAGMENT, FRAGMENT_OFFSET, HEADER_BYTES, Ipv4Header, MORE_FRAGMENTS, VERSION_IHL},
    write::{self, Field},
};

/// TTL of new headers.
const TTL: u8 = 64;

impl Ipv4Header {
    /// A header for [`push`], which fills in the length and the checksum. `protocol` is the payload's:
    /// see [`crate::ip::protocol`].
    ///
    /// Its TTL is 64. It forbids fragments, so that its identification may be 0 (RFC 6864, section
    /// 4.1).
    #[inline]
    pub const fn new(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8) -> Self {
        Self {
            version_ihl: VERSION_IHL,
            traffic_class: 0,
            total_length: U16::new(HEADER_BYTES as u16),
            identification: U16::ZERO,
            flags_fragment: U16::new(DONT_FRAGMENT),
            ttl: TTL,
            protocol,
            checksum: U16::ZERO,
            source: source.octets(),
            destination: destination.octets(),
        }
    }

    /// The header without options, with this length and the right checksum.
    pub(crate) fn completed(mut self, total_length: u16) -> Self {
        self.version_ihl = VERSION_IHL;
        self.total_length.set(total_length);
        self.checksum.set(0);
        self.checksum.set(checksum::checksum(self.as_bytes()));
        self
    }

    /// Decrements the TTL and corrects the checksum. Returns `false` and changes nothing if the TTL
    /// is 0.
    #[inline]
    pub fn decrement_ttl(&mut self) -> bool {
        if self.ttl == 0 {
            return false;
        }
        self.lower_ttl();
        true
    }

    /// [`decrement_ttl`](Self::decrement_ttl) for a TTL that is known to be above 0.
    #[inline(always)]
    pub(crate) fn lower_ttl(&mut self) {
        self.ttl = self.ttl.wrapping_sub(1);
        // RFC 1624, with words as little-endian numbers: one less in the TTL is one more in the
        // checksum, plus one on wrap-around.
        let checksum = u16::from_le_bytes(self.checksum.to_bytes());
        let checksum = checksum.wrapping_add(2).wrapping_sub((checksum < 0xfffe).into());
        self.checksum = U16::from_bytes(checksum.to_le_bytes());
    }

    /// Writes the TTL and corrects the checksum.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        let old = u16::from_be_bytes([self.ttl, self.protocol]);
        let new = u16::from_be_bytes([ttl, self.protocol]);
        self.checksum.set(checksum::update(self.checksum.get(), old, new));
        self.ttl = ttl;
    }

    /// Writes the differentiated services code point, the low six bits of `dscp`, and corrects the
    /// checksum (RFC 2474).
    #[inline]
    pub fn set_dscp(&mut self, dscp: u8) {
        self.set_traffic_class(dscp << 2 | self.traffic_class & 3);
    }

    /// Writes the congestion mark and corrects the checksum (RFC 3168).
    #[inline]
    pub fn set_ecn(&mut self, ecn: Ecn) {
        self.set_traffic_class(self.traffic_class & !3 | ecn as u8);
    }

    #[inline]
    fn set_traffic_class(&mut self, traffic_class: u8) {
        let old = u16::from_be_bytes([self.version_ihl, self.traffic_class]);
        let new = u16::from_be_bytes([self.version_ihl, traffic_class]);
        self.checksum.set(checksum::update(self.checksum.get(), old, new));
        self.traffic_class = traffic_class;
    }

    /// Writes the source and corrects the header's checksum. Returns the change, for the checksum of
    /// TCP or UDP. [`nat::rewrite_source`](crate::nat::rewrite_source) does both.
    #[inline]
    #[must_use = "the checksum of TCP or UDP covers the address too"]
    pub fn set_source(&mut self, source: Ipv4Addr) -> Change {
        let change = Change::of_bytes(self.source, source.octets());
        self.source = source.octets();
        self.corrected(change)
    }

    /// Writes the destination and corrects the header's checksum. Returns the change, as
    /// [`set_source`](Self::set_source) does.
    #[inline]
    #[must_use = "the checksum of TCP or UDP covers the address too"]
    pub fn set_destination(&mut self, destination: Ipv4Addr) -> Change {
        let change = Change::of_bytes(self.destination, destination.octets());
        self.destination = destination.octets();
        self.corrected(change)
    }

    /// Writes the length of header and payload together, and corrects the header's checksum. Returns
    /// the change for TCP's checksum, which covers the length of the segment. UDP has a length of its
    /// own ([`UdpHeader::set_length`](crate::udp::UdpHeader::set_length)); ICMP's checksum doesn't
    /// cover it.
    #[inline]
    #[must_use = "the checksum of TCP covers the length too"]
    pub fn set_total_length(&mut self, total_length: u16) -> Change {
        let change = Change::of_word(self.total_length.get(), total_length);
        self.total_length.set(total_length);
        self.corrected(change)
    }

    /// Writes the identification and corrects the checksum.
    #[inline]
    pub fn set_identification(&mut self, identification: u16) {
        let change = Change::of_word(self.identification.get(), identification);
        self.identification.set(identification);
        let _ = self.corrected(change);
    }

    /// Writes whether routers must not fragment the packet, and corrects the checksum.
    #[inline]
    pub fn set_dont_fragment(&mut self, dont_fragment: bool) {
        let others = self.flags_fragment.get() & !DONT_FRAGMENT;
        self.set_flags_fragment(others | if dont_fragment { DONT_FRAGMENT } else { 0 });
    }

    /// Writes the fragment's place in its datagram, and corrects the checksum. `offset_bytes` is a
    /// multiple of eight below 65,536.
    pub(crate) fn set_fragment(&mut self, offset_bytes: usize, more: bool) {
        let others = self.flags_fragment.get() & DONT_FRAGMENT;
        let offset = (offset_bytes / 8) as u16 & FRAGMENT_OFFSET;
        self.set_flags_fragment(others | offset | if more { MORE_FRAGMENTS } else { 0 });
    }

    #[inline]
    fn set_flags_fragment(&mut self, flags_fragment: u16) {
        let change = Change::of_word(self.flags_fragment.get(), flags_fragment);
        self.flags_fragment.set(flags_fragment);
        let _ = self.corrected(change);
    }

    /// Writes the payload's protocol and corrects the header's checksum. Returns the change, as
    /// [`set_source`](Self::set_source) does.
    #[inline]
    #[must_use = "the checksum of TCP or UDP covers the protocol too"]
    pub fn set_protocol(&mut self, protocol: u8) -> Change {
        let change = Change::of_word(self.protocol.into(), protocol.into());
        self.protocol = protocol;
        self.corrected(change)
    }

    /// Corrects the checksum for a change, and returns the change.
    #[inline]
    fn corrected(&mut self, change: Change) -> Change {
        self.checksum.set(change.apply(self.checksum.get()));
        change
    }
}

/// Puts a header without options in front of the packet. The whole packet is its payload: cut
/// [padding](crate::ip::cut_padding) off first.
///
/// Fills in the header's length and checksum, and completes the checksum of TCP, UDP or ICMPv6 that
/// the payload begins with. It is computed from scratch, which reads all bytes of the packet, over
/// all segments. A UDP checksum of 0, which means "no checksum", stays 0 without reading. A
/// fragment's payload (of a header with [`fragment`](Ipv4Header::fragment) set) is left as it is.
///
/// A checksum that was wrong becomes right: verify that of a message from elsewhere before.
///
/// ```
/// use hotloop_packet::{
///     PacketBuf, build, ip::protocol, ipv4::{self, Ipv4Header}, memory::MemPacket,
///     udp::{self, UdpHeader},
/// };
///
/// let mut packet = MemPacket::new(b"query");
/// udp::push(&mut packet, UdpHeader::new(1000, 53))?;
/// let ends = ([10, 0, 0, 1].into(), [192, 0, 2, 1].into());
/// ipv4::push(&mut packet, Ipv4Header::new(ends.0, ends.1, protocol::UDP))?;
///
/// let frame = build::udp().identification(0).dont_fragment().to("192.0.2.1:53");
/// assert_eq!(packet.data(), &frame.payload(b"query").build()[14..]);
/// # Ok::<(), hotloop_packet::WriteError>(())
/// ```
///
/// # Errors
/// [`WriteError`]: there are no 20 bytes of headroom, the packet would have more than 65,535 bytes,
/// or its first segment ends within the header of the protocol. The packet is unchanged.
pub fn push<P: PacketBuf>(packet: &mut P, header: Ipv4Header) -> Result<(), WriteError> {
    let field = if header.fragment() == Fragment::None {
        let len_bytes = packet.len_bytes() as u16;
        let (source, destination) = (header.source(), header.destination());
        let pseudo = Sum::default().pseudo_v4(source, destination, header.protocol, len_bytes);
        Field::of(packet, (header.protocol, 0), pseudo)?
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
    header: Ipv4Header,
) -> Result<&mut [u8], WriteError> {
    let total_length = write::length(Header::Ipv4, HEADER_BYTES + packet.len_bytes())?;
    Ok(write::put(packet, header.completed(total_length))?)
}

/// Recomputes the checksum of the IPv4 header at the start of `bytes`, options included.
///
/// # Errors
/// [`Malformed`], as for [`Ipv4Header::parse_mut`].
pub fn fill_checksum(bytes: &mut [u8]) -> Result<(), Malformed> {
    let header = Ipv4Header::parse_mut(bytes)?;
    header.checksum.set(0);
    let header_bytes = header.header_bytes();
    let sum = checksum::checksum(bytes.get(..header_bytes).unwrap_or_default());
    Ipv4Header::parse_mut(bytes)?.checksum.set(sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{build::udp, ipv4::Ipv4View};

    #[test]
    fn changes_keep_the_checksum_right() {
        let frame = udp().ipv4_options(&[1, 1, 1, 0]).ttl(7).tos(0xba).payload(b"hello").build();
        let mut bytes = frame[14..].to_vec();
        let header = Ipv4Header::parse_mut(&mut bytes).unwrap();
        assert!(header.decrement_ttl());
        header.set_dscp(4);
        header.set_ecn(Ecn::Ce);
        let _ = header.set_source(Ipv4Addr::new(203, 0, 113, 7));
        let _ = header.set_destination(Ipv4Addr::BROADCAST);
        let (changed, view) = (bytes.clone(), Ipv4View::parse(&bytes).unwrap());
        assert_eq!((view.ttl(), view.dscp(), view.ecn()), (6, 4, Ecn::Ce));
        assert_eq!(view.source(), Ipv4Addr::new(203, 0, 113, 7));
        assert_eq!(view.destination(), Ipv4Addr::BROADCAST);
        assert!(view.is_checksum_right());
        fill_checksum(&mut bytes).unwrap();
        assert_eq!(bytes, changed);

        bytes[8] = 0;
        let header = Ipv4Header::parse_mut(&mut bytes).unwrap();
        assert!(!header.decrement_ttl());
        assert_eq!(header.ttl(), 0);
        assert!(!Ipv4View::parse(&bytes).unwrap().is_checksum_right());
    }
}
