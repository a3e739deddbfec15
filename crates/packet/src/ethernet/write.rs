//! Ethernet headers and VLAN tags, written.

use std::hint;

use zerocopy::{FromBytes, IntoBytes, big_endian::U16};

use crate::{
    NoRoom, PacketBuf,
    buf::has_first,
    ethernet::{
        DROP_ELIGIBLE, EthernetHeader, HEADER_BYTES, MacAddress, VLAN_TAG_BYTES, VlanTag, l3_offset,
    },
    write::put,
};

/// Length in bytes of the two addresses.
const ADDRESSES_BYTES: usize = 12;

impl EthernetHeader {
    /// A header for [`push`].
    #[inline]
    pub const fn new(source: MacAddress, destination: MacAddress, ethertype: u16) -> Self {
        Self { destination, source, ethertype: U16::new(ethertype) }
    }

    /// Writes the destination.
    #[inline]
    pub const fn set_destination(&mut self, destination: MacAddress) {
        self.destination = destination;
    }

    /// Writes the source.
    #[inline]
    pub const fn set_source(&mut self, source: MacAddress) {
        self.source = source;
    }

    /// Writes the EtherType of the payload, or of the first VLAN tag.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: u16) {
        self.ethertype.set(ethertype);
    }
}

impl VlanTag {
    /// A tag with this EtherType ([`ETHERTYPE_VLAN`](super::ETHERTYPE_VLAN) or
    /// [`ETHERTYPE_QINQ`](super::ETHERTYPE_QINQ)), the low twelve bits of `vlan`, and priority 0.
    #[inline]
    pub const fn new(ethertype: u16, vlan: u16) -> Self {
        Self { ethertype: U16::new(ethertype), control: U16::new(vlan & 0xfff) }
    }

    /// Writes the VLAN: the low twelve bits of `vlan`.
    #[inline]
    pub fn set_vlan(&mut self, vlan: u16) {
        self.control.set(self.control.get() & 0xf000 | vlan & 0xfff);
    }

    /// Writes the priority: the low three bits of `priority` (802.1p).
    #[inline]
    pub fn set_priority(&mut self, priority: u8) {
        self.control.set(self.control.get() & 0x1fff | u16::from(priority) << 13);
    }

    /// Writes whether the frame may be dropped before others in congestion.
    #[inline]
    pub fn set_drop_eligible(&mut self, is_drop_eligible: bool) {
        let others = self.control.get() & !DROP_ELIGIBLE;
        self.control.set(others | if is_drop_eligible { DROP_ELIGIBLE } else { 0 });
    }
}

/// Puts a header in front of the packet, which becomes a frame. For a frame with VLAN tags, push a
/// header with the payload's EtherType, then [insert](insert_tag) the tags, innermost first.
///
/// ```
/// use hotloop_packet::{
///     PacketBuf, build::udp, ethernet::{self, ETHERTYPE_IPV4, EthernetHeader, MacAddress},
///     memory::MemPacket,
/// };
///
/// let [source, destination] = [1, 2].map(|last| MacAddress::new([2, 0, 0, 0, 0, last]));
/// let frame = udp().macs(source, destination).build();
/// let mut packet = MemPacket::new(&frame[14..]);
/// ethernet::push(&mut packet, EthernetHeader::new(source, destination, ETHERTYPE_IPV4))?;
/// assert_eq!(packet.data(), frame);
/// # Ok::<(), hotloop_packet::NoRoom>(())
/// ```
///
/// # Errors
/// [`NoRoom`] if there are no 14 bytes of headroom; the packet is unchanged.
#[inline]
pub fn push<P: PacketBuf>(packet: &mut P, header: EthernetHeader) -> Result<(), NoRoom> {
    put(packet, header).map(drop)
}

/// Swaps a frame's source and destination, as a reflector does. A frame below 14 bytes is left
/// unchanged.
#[inline]
pub fn swap_addresses<P: PacketBuf>(packet: &mut P) {
    let Some(header) = packet.data_mut().first_chunk_mut::<HEADER_BYTES>() else {
        hint::cold_path();
        return;
    };
    // Moves whole words instead of single bytes: the source is copied with the two bytes after it,
    // which the end of the destination then overwrites.
    let [d0, d1, d2, d3, d4, d5, source @ ..] = *header;
    header[..8].copy_from_slice(&source);
    header[6..10].copy_from_slice(&[d0, d1, d2, d3]);
    header[10..12].copy_from_slice(&[d4, d5]);
}

/// Writes a frame's source and destination, as a router does. A frame below 14 bytes is left
/// unchanged.
#[inline]
pub fn set_addresses<P: PacketBuf>(packet: &mut P, source: MacAddress, destination: MacAddress) {
    let Some(header) = packet.data_mut().first_chunk_mut::<HEADER_BYTES>() else { return };
    header[..6].copy_from_slice(&destination.bytes());
    header[6..12].copy_from_slice(&source.bytes());
}

/// The VLAN tags of a frame, outermost first, to be changed in place: up to two. Empty if the frame
/// ends within its header or a tag.
#[inline]
pub fn vlan_tags_mut(frame: &mut [u8]) -> &mut [VlanTag] {
    let end = l3_offset(frame).unwrap_or(HEADER_BYTES) - 2;
    let tags = frame.get_mut(ADDRESSES_BYTES..end).unwrap_or_default();
    <[VlanTag]>::mut_from_bytes(tags).unwrap_or_default()
}

/// Removes the first VLAN tag of a frame, which must have one: see [`vlan`](super::vlan).
///
/// # Errors
/// The frame's first segment is shorter than an Ethernet header and a tag. The frame is unchanged.
#[inline]
pub fn take_tag<P: PacketBuf>(packet: &mut P) -> Result<(), NoRoom> {
    has_first(packet.data(), HEADER_BYTES + VLAN_TAG_BYTES)?;
    packet.remove(ADDRESSES_BYTES, VLAN_TAG_BYTES)
}

/// Inserts a VLAN tag after the addresses: it becomes the outermost.
///
/// # Errors
/// There are no four bytes of headroom, or the first segment is shorter than two addresses. The
/// frame is unchanged.
#[inline]
pub fn insert_tag<P: PacketBuf>(packet: &mut P, tag: VlanTag) -> Result<(), NoRoom> {
    packet.insert(ADDRESSES_BYTES, VLAN_TAG_BYTES)?.copy_from_slice(tag.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::udp,
        ethernet::{ETHERTYPE_QINQ, ETHERTYPE_VLAN, EthernetView, vlan},
        memory::MemPacket,
    };

    #[test]
    fn tags_are_put_on_and_taken_off() {
        let (plain, tagged) = (udp().build(), udp().vlan(42).build());
        let mut packet = MemPacket::with_room(&plain, VLAN_TAG_BYTES, 0);
        assert_eq!(vlan(packet.data()), None);
        insert_tag(&mut packet, VlanTag::new(ETHERTYPE_VLAN, 0xf000 | 42)).unwrap();
        assert_eq!(packet.data(), tagged);
        assert!(insert_tag(&mut packet, VlanTag::new(ETHERTYPE_VLAN, 7)).is_err());
        assert_eq!((packet.data(), vlan(packet.data())), (&tagged[..], Some(42)));
        take_tag(&mut packet).unwrap();
        assert_eq!(packet.data(), plain);
        // The inner tag remains; an 802.1ad tag does not count as this VLAN.
        let mut inner = MemPacket::new(&udp().qinq(7, 42).build()[..]);
        assert_eq!(vlan(inner.data()), None);
        inner.data_mut()[12..14].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
        assert_eq!(vlan(inner.data()), Some(7));
        take_tag(&mut inner).unwrap();
        assert_eq!(inner.data(), tagged);
        for len in 0..18 {
            let mut cut = MemPacket::with_room(&tagged[..len], 0, 0);
            assert_eq!(vlan(cut.data()), (len >= 16).then_some(42), "{len}");
            assert!(take_tag(&mut cut).is_err(), "{len}");
            assert_eq!(cut.data(), &tagged[..len]);
        }
        let mut cut = MemPacket::with_room(&plain[..11], 9, 0);
        assert!(insert_tag(&mut cut, VlanTag::new(ETHERTYPE_VLAN, 1)).is_err());
    }

    #[test]
    fn addresses_are_swapped_and_written() {
        let mut packet = MemPacket::new(&(0..60).collect::<Vec<u8>>());
        swap_addresses(&mut packet);
        assert_eq!(packet.data()[..14], [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13]);
        let expected: Vec<u8> = (12..60).collect();
        assert_eq!(packet.data()[12..], expected);

        set_addresses(&mut packet, MacAddress::new([1; 6]), MacAddress::new([2; 6]));
        assert_eq!(packet.data()[..14], [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 12, 13]);
        assert_eq!(packet.data()[12..], expected);
    }

    #[test]
    fn runts_stay_as_they_are() {
        for length in 0..14 {
            let bytes: Vec<u8> = (0..length).collect();
            let mut packet = MemPacket::new(&bytes);
            swap_addresses(&mut packet);
            set_addresses(&mut packet, MacAddress::BROADCAST, MacAddress::BROADCAST);
            assert_eq!(packet.data(), bytes);
        }
    }

    #[test]
    fn tags_are_changed_in_place() {
        let mut frame = udp().qinq(7, 4095).build();
        let [outer, inner] = vlan_tags_mut(&mut frame) else { panic!("two tags") };
        outer.set_priority(0xfe);
        outer.set_vlan(0xf00f);
        inner.set_drop_eligible(true);
        let view = EthernetView::parse(&frame).unwrap();
        let fields = |tag: &VlanTag| (tag.vlan(), tag.priority(), tag.is_drop_eligible());
        let [outer, inner] = view.vlan_tags() else { panic!("two tags") };
        assert_eq!((outer.ethertype(), fields(outer)), (ETHERTYPE_QINQ, (15, 6, false)));
        assert_eq!((inner.ethertype(), fields(inner)), (ETHERTYPE_VLAN, (4095, 0, true)));
        vlan_tags_mut(&mut frame)[1].set_drop_eligible(false);
        assert_eq!(frame[18..20], [0x0f, 0xff]);
        for len in 0..22 {
            assert!(vlan_tags_mut(&mut frame[..len]).is_empty(), "{len}");
        }
        assert!(vlan_tags_mut(&mut udp().build()).is_empty());
    }
}
