//! Ethernet II frames, with up to two VLAN tags (IEEE 802.1Q, and 802.1ad's QinQ).

mod station;
mod write;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

pub use self::{
    station::Station,
    write::{insert_tag, push, set_addresses, swap_addresses, take_tag, vlan_tags_mut},
};
pub use crate::mac::{BadMacAddress, MacAddress};
use crate::{Header, Malformed};

/// Length in bytes of an Ethernet header without VLAN tags.
pub const HEADER_BYTES: usize = 14;

/// Length in bytes of one VLAN tag.
pub const VLAN_TAG_BYTES: usize = 4;

/// The number of VLAN tags that are looked through. A frame with more of them has a VLAN tag's
/// EtherType as its own.
const VLAN_TAGS_MAX: usize = 2;

/// Length in bytes of the longest header that is looked through: 22.
pub(crate) const HEADER_BYTES_MAX: usize = HEADER_BYTES + VLAN_TAGS_MAX * VLAN_TAG_BYTES;

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherType of a VLAN tag (802.1Q).
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// EtherType of an outer VLAN tag (802.1ad).
pub const ETHERTYPE_QINQ: u16 = 0x88a8;

/// The bit of a tag's control word for frames to be dropped first.
const DROP_ELIGIBLE: u16 = 0x1000;

const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ)
}

/// The fixed part of an Ethernet header: 14 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct EthernetHeader {
    destination: MacAddress,
    source: MacAddress,
    ethertype: U16,
}

impl EthernetHeader {
    /// The header at the start of `bytes`, to be changed in place.
    ///
    /// # Errors
    /// [`Malformed::Cut`] if there are fewer than 14 bytes.
    #[inline]
    pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Self, Malformed> {
        let available_bytes = bytes.len();
        match Self::mut_from_prefix(bytes) {
            Ok((header, _)) => Ok(header),
            Err(_) => Err(Malformed::cut(Header::Ethernet, HEADER_BYTES, available_bytes)),
        }
    }

    /// The station that the frame is for.
    #[inline]
    pub const fn destination(&self) -> MacAddress {
        self.destination
    }

    /// The station that sent the frame.
    #[inline]
    pub const fn source(&self) -> MacAddress {
        self.source
    }

    /// The EtherType of the payload, or of the first VLAN tag.
    #[inline]
    pub const fn ethertype(&self) -> u16 {
        self.ethertype.get()
    }
}

/// A VLAN tag: four bytes, its EtherType first.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct VlanTag {
    ethertype: U16,
    control: U16,
}

impl VlanTag {
    /// The EtherType that marks the tag.
    pub const fn ethertype(&self) -> u16 {
        self.ethertype.get()
    }

    /// The VLAN: 0 to 4,095.
    pub const fn vlan(&self) -> u16 {
        self.control.get() & 0xfff
    }

    /// The frame's priority (802.1p): 0 to 7.
    pub const fn priority(&self) -> u8 {
        (self.control.get() >> 13) as u8
    }

    /// Whether the frame may be dropped before others in congestion (802.1Q).
    pub const fn is_drop_eligible(&self) -> bool {
        self.control.get() & DROP_ELIGIBLE != 0
    }
}

/// A checked view of a frame.
#[derive(Clone, Copy, Debug)]
pub struct EthernetView<'a> {
    header: &'a EthernetHeader,
    tags: &'a [VlanTag],
    ethertype: u16,
    payload: &'a [u8],
}

impl<'a> EthernetView<'a> {
    /// The view of `frame`, which begins with the destination's address.
    ///
    /// # Errors
    /// [`Malformed::Cut`] if the frame ends within its header or a VLAN tag.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let cut = |wanted| Malformed::cut(Header::Ethernet, wanted, frame.len());
        let (header, _) = EthernetHeader::ref_from_prefix(frame).map_err(|_| cut(HEADER_BYTES))?;
        let (ethertype, offset) =
            network_layer(frame).ok_or_else(|| cut(HEADER_BYTES + VLAN_TAG_BYTES))?;
        let payload = frame.get(offset..).unwrap_or_default();
        let tags = frame.get(HEADER_BYTES - 2..offset - 2).unwrap_or_default();
        let tags = <[VlanTag]>::ref_from_bytes(tags).unwrap_or_default();
        Ok(Self { header, tags, ethertype, payload })
    }

    /// The station that the frame is for.
    pub fn destination(&self) -> MacAddress {
        self.header.destination
    }

    /// The station that sent the frame.
    pub fn source(&self) -> MacAddress {
        self.header.source
    }

    /// The VLAN tags, outermost first: up to two.
    pub fn vlan_tags(&self) -> &'a [VlanTag] {
        self.tags
    }

    /// The EtherType after the VLAN tags. A value below 1,536 is a length (IEEE 802.3).
    pub fn ethertype(&self) -> u16 {
        self.ethertype
    }

    /// Offset of the payload in bytes from the frame's start.
    pub fn l3_offset(&self) -> usize {
        HEADER_BYTES + size_of_val(self.tags)
    }

    /// All bytes after the header and its tags, padding included.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The EtherType after a frame's VLAN tags, and the offset of the payload in bytes. `None` if the
/// frame ends within its header or a tag.
#[inline]
pub fn network_layer(frame: &[u8]) -> Option<(u16, usize)> {
    let header = frame.first_chunk::<HEADER_BYTES>()?;
    let ethertype = u16::from_be_bytes([header[12], header[13]]);
    if is_tag(ethertype) { after_tags(frame) } else { Some((ethertype, HEADER_BYTES)) }
}

#[cold]
fn after_tags(frame: &[u8]) -> Option<(u16, usize)> {
    let ethertype_at = |offset: usize| {
        let bytes = frame.get(offset..)?.first_chunk::<2>()?;
        Some(u16::from_be_bytes(*bytes))
    };
    let mut offset = HEADER_BYTES;
    for _ in 0..VLAN_TAGS_MAX {
        if !is_tag(ethertype_at(offset - 2)?) {
            break;
        }
        offset += VLAN_TAG_BYTES;
    }
    Some((ethertype_at(offset - 2)?, offset))
}

/// The offset in bytes of the payload after the Ethernet header and its VLAN tags: 14, 18 or 22.
/// `None` if the frame ends within them.
#[inline]
pub fn l3_offset(frame: &[u8]) -> Option<usize> {
    network_layer(frame).map(|(_, offset)| offset)
}

/// The VLAN of a frame's first tag if that is an 802.1Q tag.
#[inline]
pub fn vlan(frame: &[u8]) -> Option<u16> {
    let (header, tag) = frame.get(..HEADER_BYTES + 2)?.split_at(HEADER_BYTES);
    let is_tagged = header[12..] == ETHERTYPE_VLAN.to_be_bytes();
    is_tagged.then(|| u16::from_be_bytes([tag[0], tag[1]]) & 0xfff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::udp;

    #[test]
    fn plain_tagged_and_doubly_tagged() {
        let plain = udp().build();
        let view = EthernetView::parse(&plain).unwrap();
        assert_eq!((view.ethertype(), view.l3_offset()), (ETHERTYPE_IPV4, 14));
        assert!(view.vlan_tags().is_empty());

        let tagged = udp().vlan(100).build();
        let view = EthernetView::parse(&tagged).unwrap();
        assert_eq!((view.ethertype(), view.l3_offset()), (ETHERTYPE_IPV4, 18));
        assert_eq!(view.vlan_tags(), [VlanTag::new(ETHERTYPE_VLAN, 100)]);
        assert_eq!(view.vlan_tags()[0].priority(), 0);

        let double = udp().qinq(7, 4095).build();
        let view = EthernetView::parse(&double).unwrap();
        assert_eq!((view.ethertype(), view.l3_offset()), (ETHERTYPE_IPV4, 22));
        assert_eq!(view.vlan_tags().iter().map(VlanTag::vlan).collect::<Vec<_>>(), [7, 4095]);
        assert_eq!(view.vlan_tags()[0].ethertype(), ETHERTYPE_QINQ);
        assert_eq!(view.payload(), &plain[14..]);
    }

    #[test]
    fn a_third_tag_is_what_the_frame_carries() {
        let mut frame = udp().qinq(7, 8).build();
        frame.splice(12..12, [0x88, 0xa8, 0, 6]);
        assert_eq!(network_layer(&frame), Some((ETHERTYPE_VLAN, 22)));
    }

    #[test]
    fn cut_frames_are_refused() {
        let frame = udp().qinq(7, 8).build();
        for length in 0..22 {
            assert_eq!(l3_offset(&frame[..length]), None);
            let error = EthernetView::parse(&frame[..length]).unwrap_err();
            assert_eq!(error.header(), Header::Ethernet);
        }
        assert_eq!(l3_offset(&frame[..22]), Some(22));
    }
}
