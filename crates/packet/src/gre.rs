//! GRE: packets of any EtherType in IP (RFC 2784), with key and sequence number (RFC 2890).
//!
//! ```
//! use hotloop_packet::{
//!     PacketBuf, build, ethernet::ETHERTYPE_IPV4, gre::{self, GreHeader, GreView}, ip::protocol,
//!     ipv4::{self, Ipv4Header}, memory::MemPacket,
//! };
//!
//! let inner = &build::udp().build()[14..];
//! let mut packet = MemPacket::new(inner);
//! gre::push(&mut packet, GreHeader::new(ETHERTYPE_IPV4).with_key(7))?;
//! let (source, destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
//! ipv4::push(&mut packet, Ipv4Header::new(source, destination, protocol::GRE))?;
//!
//! let view = GreView::parse(&packet.data()[20..])?;
//! assert_eq!((view.ethertype(), view.key()), (ETHERTYPE_IPV4, Some(7)));
//! assert_eq!(view.payload(), inner);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{Header, Malformed, NoRoom, PacketBuf, checksum};

/// Length in bytes of a header without optional fields.
pub const HEADER_BYTES: usize = 4;

/// EtherType of an Ethernet frame in GRE (RFC 1701; RFC 7637, section 3.2).
pub const ETHERTYPE_ETHERNET: u16 = 0x6558;

/// Flags. Each adds a field of four bytes.
const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;

/// Bits that a receiver must refuse: those of RFC 1701, and the version, which is 0 (RFC 2784, section
/// 2.3).
const RESERVED: u16 = 0x4c00;
const VERSION: u16 = 0x0007;

/// The fields of a GRE header. [`push`] writes it in 4 to 12 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GreHeader {
    ethertype: u16,
    key: Option<u32>,
    sequence_number: Option<u32>,
}

impl GreHeader {
    /// A header without key and sequence number, for a payload of this EtherType.
    #[inline]
    pub const fn new(ethertype: u16) -> Self {
        Self { ethertype, key: None, sequence_number: None }
    }

    /// The header with this key.
    #[inline]
    #[must_use]
    pub const fn with_key(self, key: u32) -> Self {
        Self { key: Some(key), ..self }
    }

    /// The header with this sequence number.
    #[inline]
    #[must_use]
    pub const fn with_sequence_number(self, number: u32) -> Self {
        Self { sequence_number: Some(number), ..self }
    }

    /// The EtherType of the payload.
    #[inline]
    pub const fn ethertype(&self) -> u16 {
        self.ethertype
    }

    /// The key, which tells the flows or the tenants of a tunnel apart.
    #[inline]
    pub const fn key(&self) -> Option<u32> {
        self.key
    }

    /// The number of the packet in its tunnel, or in the flow with its key.
    #[inline]
    pub const fn sequence_number(&self) -> Option<u32> {
        self.sequence_number
    }
}

/// Puts a header in front of the packet. It has no checksum.
///
/// # Errors
/// [`NoRoom`] if the headroom is smaller than the header; the packet is unchanged.
#[inline]
pub fn push<P: PacketBuf>(packet: &mut P, header: GreHeader) -> Result<(), NoRoom> {
    let mut bytes = [0; HEADER_BYTES + 8];
    let (mut flags, mut header_bytes) = (0, HEADER_BYTES);
    for (field, flag) in [(header.key, KEY), (header.sequence_number, SEQUENCE)] {
        if let Some(field) = field {
            flags |= flag;
            bytes[header_bytes..header_bytes + 4].copy_from_slice(&field.to_be_bytes());
            header_bytes += 4;
        }
    }
    bytes[..2].copy_from_slice(&flags.to_be_bytes());
    bytes[2..4].copy_from_slice(&header.ethertype.to_be_bytes());
    packet.prepend(header_bytes)?[..header_bytes].copy_from_slice(&bytes[..header_bytes]);
    Ok(())
}

/// A checked view of a GRE packet.
#[derive(Clone, Copy, Debug)]
pub struct GreView<'a> {
    header: GreHeader,
    packet: &'a [u8],
    checksum: Option<u16>,
    header_bytes: usize,
}

impl<'a> GreView<'a> {
    /// The view of the packet in `bytes`, an IP packet's payload. The checksum is not checked: see
    /// [`is_checksum_right`](Self::is_checksum_right).
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header (optional fields included), if its version
    /// is not 0 (it is 1 in PPTP, RFC 2637), or if it has fields of RFC 1701 that RFC 2784 and RFC
    /// 2890 lack.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let cut = |wanted| Malformed::cut(Header::Gre, wanted, bytes.len());
        let [a, b, c, d] = *bytes.first_chunk().ok_or_else(|| cut(HEADER_BYTES))?;
        let flags = u16::from_be_bytes([a, b]);
        if flags & VERSION != 0 {
            return Err(Malformed::inconsistent(Header::Gre, "version"));
        }
        if flags & RESERVED != 0 {
            return Err(Malformed::inconsistent(Header::Gre, "flags"));
        }
        let mut header_bytes = HEADER_BYTES;
        let mut field = |flag| {
            if flags & flag == 0 {
                return Ok(None);
            }
            let field = bytes.get(header_bytes..).and_then(|rest| rest.first_chunk());
            header_bytes += 4;
            field.map(|field| Some(u32::from_be_bytes(*field))).ok_or_else(|| cut(header_bytes))
        };
        let checksum = field(CHECKSUM)?.map(|field| (field >> 16) as u16);
        let (key, sequence_number) = (field(KEY)?, field(SEQUENCE)?);
        let header = GreHeader { ethertype: u16::from_be_bytes([c, d]), key, sequence_number };
        Ok(Self { header, packet: bytes, checksum, header_bytes })
    }

    /// Length in bytes, optional fields included: 4 to 16.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// The checksum, as sent.
    #[inline]
    pub const fn checksum(&self) -> Option<u16> {
        self.checksum
    }

    /// Whether the checksum of the header and the payload is right, or there is none.
    pub fn is_checksum_right(&self) -> bool {
        self.checksum.is_none() || checksum::checksum(self.packet) == 0
    }

    /// The inner packet.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.packet.get(self.header_bytes..).unwrap_or_default()
    }
}

impl std::ops::Deref for GreView<'_> {
    type Target = GreHeader;

    #[inline]
    fn deref(&self) -> &GreHeader {
        &self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ethernet::ETHERTYPE_IPV4, memory::MemPacket};

    #[test]
    fn fields_come_in_the_order_of_their_flags() {
        let plain = GreHeader::new(ETHERTYPE_IPV4);
        for (header, expected) in [
            (plain, &[0, 0, 8, 0][..]),
            (plain.with_key(7), &[0x20, 0, 8, 0, 0, 0, 0, 7]),
            (plain.with_sequence_number(9), &[0x10, 0, 8, 0, 0, 0, 0, 9]),
            (plain.with_sequence_number(9).with_key(7), &[0x30, 0, 8, 0, 0, 0, 0, 7, 0, 0, 0, 9]),
        ] {
            let mut packet = MemPacket::with_room(&[0x45], expected.len(), 0);
            push(&mut packet, header).unwrap();
            assert_eq!(packet.data(), [expected, &[0x45]].concat());
            let view = GreView::parse(packet.data()).unwrap();
            assert_eq!((*view, view.payload()), (header, &[0x45][..]));
            assert_eq!((view.header_bytes(), view.checksum()), (expected.len(), None));
            assert!(push(&mut packet, header).is_err());
            assert_eq!(packet.data().len(), expected.len() + 1);
        }
    }

    #[test]
    fn cut_headers_and_other_versions_are_refused() {
        let bytes = [0xb0, 0, 8, 0, 1, 2, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9];
        for length in 0..16 {
            let error = GreView::parse(&bytes[..length]).unwrap_err();
            assert!(matches!(error, Malformed::Cut { header: Header::Gre, .. }));
        }
        assert_eq!(GreView::parse(&bytes).unwrap().checksum(), Some(0x102));
        // Version 1, routing, strict source route, a recursion limit.
        for (flags, field) in
            [([0x30, 1], "version"), ([0x40, 0], "flags"), ([8, 0], "flags"), ([4, 0], "flags")]
        {
            let bytes = [flags[0], flags[1], 8, 0];
            let expected = Malformed::inconsistent(Header::Gre, field);
            assert_eq!(GreView::parse(&bytes).unwrap_err(), expected);
        }
        // Bits that a receiver ignores.
        assert!(GreView::parse(&[0, 0xf8, 8, 0]).is_ok());
    }
}
