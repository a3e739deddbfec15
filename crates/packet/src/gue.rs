//! GUE: IP packets and others in UDP (draft-ietf-intarea-gue-09), variant 0.
//!
//! The destination's port is [`PORT`]. The source's port tells flows apart: compute it from a hash of
//! the inner packet's flow.
//!
//! Variant 1 has no header: the IP packet begins right after the UDP header. [`GueView::parse`] returns
//! an error for it; the first byte of an IPv4 or IPv6 header has the bits of variant 1.
//!
//! ```
//! use hotloop_packet::{
//!     PacketBuf, build, gue::{self, GueHeader, GueView}, ip::protocol, ipv4::{self, Ipv4Header},
//!     memory::MemPacket, udp::{self, UdpHeader},
//! };
//!
//! let inner = &build::udp().to("[2001:db8::2]:53").build()[14..];
//! let mut packet = MemPacket::new(inner);
//! gue::push(&mut packet, GueHeader::new(protocol::IPV6))?;
//! udp::push(&mut packet, UdpHeader::new(50_000, gue::PORT))?;
//! let (source, destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
//! ipv4::push(&mut packet, Ipv4Header::new(source, destination, protocol::UDP))?;
//!
//! let view = GueView::parse(&packet.data()[20 + 8..])?;
//! assert_eq!((view.protocol(), view.payload()), (protocol::IPV6, inner));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::{Header, Malformed, NoRoom, PacketBuf, write};

/// UDP port of GUE.
pub const PORT: u16 = 6080;

/// Length in bytes of the part that every header has.
pub const HEADER_BYTES: usize = 4;

/// The bit C: the payload is a control message.
const CONTROL: u8 = 0x20;

/// The fixed part of a GUE header of variant 0: 4 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct GueHeader {
    /// Two bits of variant, C, and five bits that count the words of extension fields.
    variant_length: u8,
    protocol: u8,
    flags: U16,
}

impl GueHeader {
    /// A header without flags and extension fields, for a payload of this protocol: see
    /// [`crate::ip::protocol`].
    #[inline]
    pub const fn new(protocol: u8) -> Self {
        Self { variant_length: 0, protocol, flags: U16::ZERO }
    }

    /// Whether the payload is a control message of the type [`protocol`](Self::protocol).
    #[inline]
    pub const fn is_control(&self) -> bool {
        self.variant_length & CONTROL != 0
    }

    /// Length in bytes, extension fields included: 4 to 128.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        HEADER_BYTES + (self.variant_length & 0x1f) as usize * 4
    }

    /// The payload's protocol (see [`crate::ip::protocol`]), or a control message's type.
    #[inline]
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The flags. Each announces an extension field.
    #[inline]
    pub const fn flags(&self) -> u16 {
        self.flags.get()
    }
}

/// Puts a header without extension fields in front of the packet.
///
/// # Errors
/// [`NoRoom`] if there are no 4 bytes of headroom; the packet is unchanged.
#[inline]
pub fn push<P: PacketBuf>(packet: &mut P, header: GueHeader) -> Result<(), NoRoom> {
    let GueHeader { variant_length, protocol, .. } = header;
    let header = GueHeader { variant_length: variant_length & CONTROL, protocol, flags: U16::ZERO };
    write::put(packet, header).map(drop)
}

/// A checked view of a GUE packet of variant 0.
#[derive(Clone, Copy, Debug)]
pub struct GueView<'a> {
    header: &'a GueHeader,
    fields: &'a [u8],
    payload: &'a [u8],
}

impl<'a> GueView<'a> {
    /// The view of the packet in `bytes`, a UDP datagram's payload.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header (extension fields included), or if its
    /// variant is not 0.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let cut = |wanted| Malformed::cut(Header::Gue, wanted, bytes.len());
        let (header, rest) = GueHeader::ref_from_prefix(bytes).map_err(|_| cut(HEADER_BYTES))?;
        if header.variant_length >> 6 != 0 {
            return Err(Malformed::inconsistent(Header::Gue, "variant"));
        }
        let header_bytes = header.header_bytes();
        let (fields, payload) =
            rest.split_at_checked(header_bytes - HEADER_BYTES).ok_or_else(|| cut(header_bytes))?;
        Ok(Self { header, fields, payload })
    }

    /// The extension fields and private data: up to 124 bytes.
    #[inline]
    pub const fn fields(&self) -> &'a [u8] {
        self.fields
    }

    /// The inner packet, or a control message.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl std::ops::Deref for GueView<'_> {
    type Target = GueHeader;

    #[inline]
    fn deref(&self) -> &GueHeader {
        self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ip::protocol, memory::MemPacket};

    #[test]
    fn extension_fields_lie_before_the_payload() {
        // The draft's figure in section 3.1: variant 0, a data message, two words of fields.
        let bytes = [0x02, 4, 0x80, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x45];
        let view = GueView::parse(&bytes).unwrap();
        assert_eq!((view.protocol(), view.is_control()), (protocol::IPV4, false));
        assert_eq!((view.header_bytes(), view.flags()), (12, 0x8000));
        assert_eq!((view.fields(), view.payload()), (&bytes[4..12], &[0x45][..]));
        for length in 0..12 {
            let error = GueView::parse(&bytes[..length]).unwrap_err();
            assert!(matches!(error, Malformed::Cut { header: Header::Gue, .. }));
        }
        assert!(GueView::parse(&[0x20, 1, 0, 0]).unwrap().is_control());

        // A copied header leaves its extension fields.
        let mut packet = MemPacket::new(&[0x45]);
        push(&mut packet, *view).unwrap();
        assert_eq!(packet.data(), [0, 4, 0, 0, 0x45]);
    }

    #[test]
    fn packets_without_header_are_refused() {
        for first in [0x45, 0x60, 0x80, 0xc0] {
            let expected = Malformed::inconsistent(Header::Gue, "variant");
            assert_eq!(GueView::parse(&[first; 40]).unwrap_err(), expected);
        }
    }
}
