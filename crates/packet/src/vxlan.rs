//! VXLAN: Ethernet frames in UDP (RFC 7348).
//!
//! The destination's port is [`PORT`]. The source's port, [49,152](SOURCE_PORT_MIN) or above, tells
//! flows apart: compute it from a hash of the inner frame's flow (section 5).
//!
//! ```
//! use hotloop_packet::{
//!     PacketBuf, build, ip::protocol, ipv4::{self, Ipv4Header}, memory::MemPacket,
//!     udp::{self, UdpHeader}, vxlan::{self, VxlanHeader, VxlanView},
//! };
//!
//! let inner = build::udp().build();
//! let mut packet = MemPacket::new(&inner);
//! vxlan::push(&mut packet, VxlanHeader::new(4660))?;
//! udp::push(&mut packet, UdpHeader::new(50_000, vxlan::PORT).without_checksum())?;
//! let (source, destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
//! ipv4::push(&mut packet, Ipv4Header::new(source, destination, protocol::UDP))?;
//!
//! let view = VxlanView::parse(&packet.data()[20 + 8..])?;
//! assert_eq!((view.vni(), view.payload()), (4660, &inner[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U32};

use crate::{Header, Malformed, NoRoom, PacketBuf, checksum::Change, write};

/// UDP port of VXLAN.
pub const PORT: u16 = 4789;

/// The lowest source port that a sender should use: the first of the dynamic ports.
pub const SOURCE_PORT_MIN: u16 = 49_152;

/// Length in bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// The flag I: the network's identifier is valid.
const HAS_VNI: u8 = 0x08;

/// The VXLAN header: 8 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct VxlanHeader {
    flags: u8,
    reserved: [u8; 3],
    /// The network's identifier in the upper three bytes; the last is reserved.
    vni: U32,
}

impl VxlanHeader {
    /// A header with the low 24 bits of `vni`, the network's identifier.
    #[inline]
    pub const fn new(vni: u32) -> Self {
        Self { flags: HAS_VNI, reserved: [0; 3], vni: U32::new(vni << 8) }
    }

    /// The header at the start of `bytes`, to be changed in place.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header, or if it has no network's identifier.
    #[inline]
    pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Self, Malformed> {
        VxlanView::parse(bytes)?;
        let cut = Malformed::cut(Header::Vxlan, HEADER_BYTES, bytes.len());
        Self::mut_from_prefix(bytes).map(|(header, _)| header).map_err(|_| cut)
    }

    /// The identifier of the network: 24 bits.
    #[inline]
    pub const fn vni(&self) -> u32 {
        self.vni.get() >> 8
    }

    /// Writes the identifier of the network: the low 24 bits of `vni`. Returns the change, for UDP's
    /// checksum.
    #[inline]
    #[must_use = "the checksum of UDP covers the identifier, unless it is 0"]
    pub fn set_vni(&mut self, vni: u32) -> Change {
        let new = U32::new(vni << 8 | self.vni.get() & 0xff);
        let change = Change::of_bytes(self.vni.to_bytes(), new.to_bytes());
        self.vni = new;
        change
    }
}

/// Puts a header in front of the packet, an Ethernet frame.
///
/// # Errors
/// [`NoRoom`] if there are no 8 bytes of headroom; the packet is unchanged.
#[inline]
pub fn push<P: PacketBuf>(packet: &mut P, header: VxlanHeader) -> Result<(), NoRoom> {
    write::put(packet, header).map(drop)
}

/// A checked view of a VXLAN packet.
#[derive(Clone, Copy, Debug)]
pub struct VxlanView<'a> {
    header: &'a VxlanHeader,
    payload: &'a [u8],
}

impl<'a> VxlanView<'a> {
    /// The view of the packet in `bytes`, a UDP datagram's payload.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header, or if it has no network's identifier (the
    /// flag I is 0).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Ok((header, payload)) = VxlanHeader::ref_from_prefix(bytes) else {
            return Err(Malformed::cut(Header::Vxlan, HEADER_BYTES, bytes.len()));
        };
        if header.flags & HAS_VNI == 0 {
            return Err(Malformed::inconsistent(Header::Vxlan, "flags"));
        }
        Ok(Self { header, payload })
    }

    /// The inner Ethernet frame.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl std::ops::Deref for VxlanView<'_> {
    type Target = VxlanHeader;

    #[inline]
    fn deref(&self) -> &VxlanHeader {
        self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    #[test]
    fn identifiers_have_24_bits() {
        let mut header = VxlanHeader::new(0xff12_3456);
        assert_eq!(header.as_bytes(), [8, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        let change = header.set_vni(0xff00_0007);
        let before = checksum::checksum(VxlanHeader::new(0x12_3456).as_bytes());
        assert_eq!(change.apply(before), checksum::checksum(header.as_bytes()));
        assert_eq!((header.vni(), header.as_bytes()), (7, &[8, 0, 0, 0, 0, 0, 7, 0][..]));
    }

    #[test]
    fn a_cut_header_or_one_without_identifier_is_refused() {
        let mut bytes = [8, 0, 0, 0, 0, 0, 7, 0];
        for length in 0..8 {
            assert!(VxlanView::parse(&bytes[..length]).is_err());
            assert!(VxlanHeader::parse_mut(&mut bytes[..length]).is_err());
        }
        assert_eq!(VxlanView::parse(&bytes).unwrap().vni(), 7);
        assert_eq!(VxlanHeader::parse_mut(&mut bytes).unwrap().vni(), 7);
        bytes[0] = 0xf7;
        let expected = Malformed::inconsistent(Header::Vxlan, "flags");
        assert_eq!(VxlanView::parse(&bytes).unwrap_err(), expected);
        assert_eq!(VxlanHeader::parse_mut(&mut bytes).unwrap_err(), expected);
    }
}
