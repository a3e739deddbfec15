//! IPv4 (RFC 791), with options and fragments.

mod write;

use std::net::Ipv4Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

pub(crate) use self::write::push_alone;
pub use self::write::{fill_checksum, push};
use crate::{
    Header, Malformed,
    checksum::Sum,
    ethernet::{self, ETHERTYPE_IPV4},
    ip_fields::{Ecn, Fragment},
};

/// Length in bytes of a header without options.
pub const HEADER_BYTES: usize = 20;

/// The first byte of a header without options: version 4, and a length of five words of 32 bits.
pub(crate) const VERSION_IHL: u8 = 0x45;

/// Length in bytes of the longest header.
pub(crate) const HEADER_BYTES_MAX: usize = 60;

const MORE_FRAGMENTS: u16 = 0x2000;
const DONT_FRAGMENT: u16 = 0x4000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// The fixed part of an IPv4 header: 20 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Ipv4Header {
    version_ihl: u8,
    traffic_class: u8,
    total_length: U16,
    identification: U16,
    flags_fragment: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    source: [u8; 4],
    destination: [u8; 4],
}

impl Ipv4Header {
    /// The header at the start of `bytes`, to be changed in place.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header (options included), or if its version or
    /// header length is impossible. The total length is not checked.
    #[inline]
    pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Self, Malformed> {
        split(bytes)?;
        let available_bytes = bytes.len();
        match Self::mut_from_prefix(bytes) {
            Ok((header, _)) => Ok(header),
            Err(_) => Err(Malformed::cut(Header::Ipv4, HEADER_BYTES, available_bytes)),
        }
    }

    /// The header that a frame has after its VLAN tags, to be changed in place. `None` if the frame
    /// carries something else, or the header is malformed.
    ///
    /// ```
    /// use hotloop_packet::{build::udp, ipv4::{Ipv4Header, Ipv4View}};
    ///
    /// let mut frame = udp().ttl(64).vlan(7).build();
    /// let header = Ipv4Header::of_frame_mut(&mut frame).expect("an IPv4 packet");
    /// header.decrement_ttl();
    /// let packet = Ipv4View::of_frame(&frame).expect("an IPv4 packet");
    /// assert_eq!((packet.ttl(), packet.is_checksum_right()), (63, true));
    /// ```
    #[inline]
    pub fn of_frame_mut(frame: &mut [u8]) -> Option<&mut Self> {
        match ethernet::network_layer(frame)? {
            (ETHERTYPE_IPV4, offset) => Self::parse_mut(frame.get_mut(offset..)?).ok(),
            _ => None,
        }
    }

    /// The version: 4 in every checked header.
    #[inline]
    pub const fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Length in bytes, options included: 20 to 60 in every checked header.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        (self.version_ihl & 0xf) as usize * 4
    }

    /// The differentiated services code point: 0 to 63 (RFC 2474).
    #[inline]
    pub const fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// The congestion mark (RFC 3168).
    #[inline]
    pub const fn ecn(&self) -> Ecn {
        Ecn::of(self.traffic_class)
    }

    /// Version and header length: the first byte.
    #[inline]
    pub(crate) const fn version_ihl(&self) -> u8 {
        self.version_ihl
    }

    /// Code point and congestion mark: the second byte.
    #[inline]
    pub(crate) const fn traffic_class(&self) -> u8 {
        self.traffic_class
    }

    /// Length in bytes of header and payload together.
    #[inline]
    pub const fn total_length(&self) -> u16 {
        self.total_length.get()
    }

    /// The identification, which the fragments of one datagram share.
    #[inline]
    pub const fn identification(&self) -> u16 {
        self.identification.get()
    }

    /// Whether routers must not fragment the packet.
    #[inline]
    pub const fn dont_fragment(&self) -> bool {
        self.flags_fragment.get() & DONT_FRAGMENT != 0
    }

    /// Whether more fragments follow this one.
    #[inline]
    pub const fn more_fragments(&self) -> bool {
        self.flags_fragment.get() & MORE_FRAGMENTS != 0
    }

    /// Offset of the fragment's payload in the datagram's payload, in bytes.
    #[inline]
    pub const fn fragment_offset_bytes(&self) -> usize {
        (self.flags_fragment.get() & FRAGMENT_OFFSET) as usize * 8
    }

    /// The part of a datagram that the packet holds.
    #[inline]
    pub const fn fragment(&self) -> Fragment {
        Fragment::new(self.flags_fragment.get() & FRAGMENT_OFFSET, self.more_fragments())
    }

    /// The number of hops that the packet may still take.
    #[inline]
    pub const fn ttl(&self) -> u8 {
        self.ttl
    }

    /// The payload's protocol: see [`crate::ip::protocol`].
    #[inline]
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The header's checksum, as sent.
    #[inline]
    pub const fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// The source.
    #[inline]
    pub const fn source(&self) -> Ipv4Addr {
        let [a, b, c, d] = self.source;
        Ipv4Addr::new(a, b, c, d)
    }

    /// The destination.
    #[inline]
    pub const fn destination(&self) -> Ipv4Addr {
        let [a, b, c, d] = self.destination;
        Ipv4Addr::new(a, b, c, d)
    }
}

/// A checked view of an IPv4 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4View<'a> {
    header: &'a Ipv4Header,
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4View<'a> {
    /// The view of the packet at the start of `bytes`. Bytes after the packet, such as padding, are
    /// left out.
    ///
    /// # Errors
    /// [`Malformed`] if version, header length or total length is impossible, or if the packet is
    /// longer than `bytes`. The checksum is not checked: see
    /// [`is_checksum_right`](Self::is_checksum_right).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let view = Self::parse_cut(bytes)?;
        let total = usize::from(view.total_length());
        if total > bytes.len() {
            return Err(Malformed::cut(Header::Ipv4, total, bytes.len()));
        }
        Ok(view)
    }

    /// The view of a packet with a payload that may go on after `bytes`: in the first segment of
    /// several, or quoted by an ICMP error. [`payload`](Self::payload) then returns the part in
    /// `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] if version, header length or total length is impossible, or if the header is
    /// cut.
    #[inline]
    pub fn parse_cut(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, options, rest) = split(bytes)?;
        let total = usize::from(header.total_length());
        let Some(payload_bytes) = total.checked_sub(header.header_bytes()) else {
            return Err(Malformed::inconsistent(Header::Ipv4, "total length"));
        };
        let payload = rest.get(..payload_bytes).unwrap_or(rest);
        Ok(Self { header, options, payload })
    }

    /// The packet that a frame carries after its VLAN tags, viewed as by
    /// [`parse_cut`](Self::parse_cut). `None` if the frame carries something else, or if the header
    /// is malformed.
    #[inline]
    pub fn of_frame(frame: &'a [u8]) -> Option<Self> {
        match ethernet::network_layer(frame)? {
            (ETHERTYPE_IPV4, offset) => Self::parse_cut(frame.get(offset..)?).ok(),
            _ => None,
        }
    }

    /// The header's options: up to 40 bytes.
    #[inline]
    pub const fn options(&self) -> &'a [u8] {
        self.options
    }

    /// The packet's payload.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether the header's checksum is right.
    #[inline]
    pub fn is_checksum_right(&self) -> bool {
        Sum::default().bytes(self.header.as_bytes()).bytes(self.options).checksum() == 0
    }
}

impl std::ops::Deref for Ipv4View<'_> {
    type Target = Ipv4Header;

    #[inline]
    fn deref(&self) -> &Ipv4Header {
        self.header
    }
}

/// The fixed header, the options, and the rest.
#[inline]
fn split(bytes: &[u8]) -> Result<(&Ipv4Header, &[u8], &[u8]), Malformed> {
    let cut = |wanted| Malformed::cut(Header::Ipv4, wanted, bytes.len());
    let Ok((header, rest)) = Ipv4Header::ref_from_prefix(bytes) else {
        return Err(cut(HEADER_BYTES));
    };
    if header.version() != 4 {
        return Err(Malformed::inconsistent(Header::Ipv4, "version"));
    }
    let Some(option_bytes) = header.header_bytes().checked_sub(HEADER_BYTES) else {
        return Err(Malformed::inconsistent(Header::Ipv4, "header length"));
    };
    let Some((options, rest)) = rest.split_at_checked(option_bytes) else {
        return Err(cut(header.header_bytes()));
    };
    Ok((header, options, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::udp;

    fn packet() -> Vec<u8> {
        udp().ipv4_options(&[1, 1, 1, 0]).ttl(7).tos(0xba).payload(b"hello").build()[14..].to_vec()
    }

    #[test]
    fn fields() {
        let bytes = packet();
        let view = Ipv4View::parse(&bytes).unwrap();
        assert_eq!((view.version(), view.header_bytes(), view.total_length()), (4, 24, 37));
        assert_eq!((view.ttl(), view.dscp(), view.ecn(), view.protocol()), (7, 46, Ecn::Ect0, 17));
        assert_eq!(view.source(), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(view.options(), [1, 1, 1, 0]);
        assert_eq!(view.payload().len(), 13);
        assert!(view.is_checksum_right());
        assert_eq!(view.fragment(), Fragment::None);
    }

    #[test]
    fn a_frame_of_something_else_or_with_a_cut_header_has_no_packet() {
        for (frame, expected) in [
            (udp().build(), true),
            (udp().qinq(1, 2).build(), true),
            (udp().to("::1").build(), false),
            (udp().build()[..33].to_vec(), false),
            (udp().vlan(1).build()[..16].to_vec(), false),
        ] {
            let mut frame = frame;
            assert_eq!(Ipv4View::of_frame(&frame).is_some(), expected, "{frame:02x?}");
            assert_eq!(Ipv4Header::of_frame_mut(&mut frame).is_some(), expected);
        }
    }

    #[test]
    fn fragments() {
        let frames = udp().payload([7; 100]).build_fragments(60);
        let views: Vec<_> = frames.iter().map(|f| Ipv4View::parse(&f[14..]).unwrap()).collect();
        let seen: Vec<_> =
            views.iter().map(|v| (v.fragment(), v.fragment_offset_bytes())).collect();
        let expected = [(Fragment::First, 0), (Fragment::Later, 40), (Fragment::Later, 80)];
        assert_eq!(seen, expected);
        assert!(views[1].more_fragments() && !views[2].more_fragments());
        assert_eq!(views[0].identification(), views[2].identification());
    }

    #[test]
    fn impossible_headers_are_refused() {
        let good = packet();
        let field = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Ipv4View::parse(&bytes).unwrap_err()
        };
        let inconsistent = |field| Malformed::inconsistent(Header::Ipv4, field);
        assert_eq!(field(0, 0x66), inconsistent("version"));
        assert_eq!(field(0, 0x44), inconsistent("header length"));
        assert_eq!(field(3, 23), inconsistent("total length"));
        assert_eq!(field(3, 38), Malformed::cut(Header::Ipv4, 38, 37));
        for length in 0..24 {
            assert!(matches!(Ipv4View::parse_cut(&good[..length]), Err(Malformed::Cut { .. })));
        }
        let cut = Ipv4View::parse_cut(&good[..26]).unwrap();
        assert_eq!(cut.payload().len(), 2);
    }
}
