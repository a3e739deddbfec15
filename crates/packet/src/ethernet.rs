//! Ethernet II frames, with up to two VLAN tags (IEEE 802.1Q, and 802.1ad's QinQ).

use std::hint;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

pub use crate::mac::{BadMacAddress, MacAddress};
use crate::{Header, Malformed, NoRoom, PacketBuf, Room, ip_fields::is_host};

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

const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ)
}

/// The fixed part of an Ethernet header: 14 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
struct EthernetHeader {
    destination: MacAddress,
    source: MacAddress,
    /// EtherType of the payload or of a VLAN tag.
    ethertype: U16,
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
    /// A tag with this EtherType ([`ETHERTYPE_VLAN`] or [`ETHERTYPE_QINQ`]) and the low twelve bits
    /// of `vlan`.
    pub const fn new(ethertype: u16, vlan: u16) -> Self {
        Self { ethertype: U16::new(ethertype), control: U16::new(vlan & 0xfff) }
    }

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
}

/// Selects the frames for a station: the ones sent to its address, or all.
///
/// ```
/// use hotloop_packet::{build::udp, ethernet::{MacAddress, Station}};
///
/// let [source, own, other] = [1, 9, 7].map(|last| MacAddress::new([2, 0, 0, 0, 0, last]));
/// let frame = udp().macs(source, own).build();
/// assert!(Station::with(own).takes(&frame) && Station::ANY.takes(&frame));
/// assert!(!Station::with(other).takes(&frame));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Station {
    /// The address in memory order, in the low 48 bits. `mask` selects the bits to compare.
    address: u64,
    mask: u64,
}

/// An address in the low 48 bits.
const ADDRESS_MASK: u64 = (1 << 48) - 1;

impl Station {
    /// A station that takes all frames.
    pub const ANY: Self = Self { address: 0, mask: 0 };

    /// The station with this address.
    pub const fn with(address: MacAddress) -> Self {
        let [a, b, c, d, e, f] = address.bytes();
        Self { address: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), mask: ADDRESS_MASK }
    }

    /// Whether a frame that begins with these addresses is addressed to the station.
    #[inline(always)]
    pub(crate) fn is_addressed(&self, addresses: &[u8; 12]) -> bool {
        let [a, b, c, d, e, f, g, h, ..] = *addresses;
        let word = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        (word ^ self.address) & self.mask == 0
    }

    /// Whether a frame is for the station: addressed to it, or to a group of stations. A packet for
    /// a single host must not come in a frame for a group (RFC 1122, section 3.3.6).
    pub fn takes(&self, frame: &[u8]) -> bool {
        let Some(addresses) = frame.first_chunk() else { return true };
        if self.is_addressed(addresses) {
            return true;
        }
        let is_group = addresses[0] & 1 == 1;
        is_group && !is_to_host(frame)
    }
}

/// Whether a frame carries an IP packet for a single host.
fn is_to_host(frame: &[u8]) -> bool {
    let Some((ethertype, l3_offset)) = network_layer(frame) else { return false };
    let packet = frame.get(l3_offset..).unwrap_or_default();
    match ethertype {
        ETHERTYPE_IPV4 => packet
            .get(16..20)
            .and_then(|octets| octets.first_chunk::<4>())
            .is_some_and(|octets| is_host((*octets).into())),
        ETHERTYPE_IPV6 => packet
            .get(24..40)
            .and_then(|octets| octets.first_chunk::<16>())
            .is_some_and(|octets| is_host((*octets).into())),
        _ => false,
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

/// The VLAN of a frame's first tag if that is an 802.1Q tag.
#[inline]
pub fn vlan(frame: &[u8]) -> Option<u16> {
    let (header, tag) = frame.get(..HEADER_BYTES + 2)?.split_at(HEADER_BYTES);
    let is_tagged = header[12..] == ETHERTYPE_VLAN.to_be_bytes();
    is_tagged.then(|| u16::from_be_bytes([tag[0], tag[1]]) & 0xfff)
}

/// Removes the first VLAN tag of a frame, which must have one: see [`vlan`].
///
/// # Errors
/// The frame's first segment is shorter than an Ethernet header and a tag. The frame is unchanged.
#[inline]
pub fn take_tag<P: PacketBuf>(packet: &mut P) -> Result<(), NoRoom> {
    has_first(packet, HEADER_BYTES + VLAN_TAG_BYTES)?;
    packet.data_mut().copy_within(..12, VLAN_TAG_BYTES);
    packet.trim_front(VLAN_TAG_BYTES)
}

/// Inserts an 802.1Q tag with the low twelve bits of `vlan` and priority 0 after the addresses.
///
/// # Errors
/// There are no four bytes of headroom, or the first segment is shorter than two addresses. The
/// frame is unchanged.
#[inline]
pub fn insert_tag<P: PacketBuf>(packet: &mut P, vlan: u16) -> Result<(), NoRoom> {
    has_first(packet, 12)?;
    packet.prepend(VLAN_TAG_BYTES)?;
    let frame = packet.data_mut();
    frame.copy_within(VLAN_TAG_BYTES..VLAN_TAG_BYTES + 12, 0);
    frame[12..14].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
    frame[14..16].copy_from_slice(&(vlan & 0xfff).to_be_bytes());
    Ok(())
}

/// Checks that the first segment has at least `wanted_bytes` bytes.
fn has_first<P: PacketBuf>(packet: &P, wanted_bytes: usize) -> Result<(), NoRoom> {
    let available_bytes = packet.data().len();
    if available_bytes < wanted_bytes {
        Err(NoRoom { wanted_bytes, available_bytes, side: Room::Data })
    } else {
        Ok(())
    }
}

/// Writes the header of a new frame without tags.
pub(crate) fn write_header(
    header: &mut [u8],
    source: MacAddress,
    destination: MacAddress,
    ethertype: u16,
) {
    header[..6].copy_from_slice(&destination.bytes());
    header[6..12].copy_from_slice(&source.bytes());
    header[12..HEADER_BYTES].copy_from_slice(&ethertype.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{build::udp, memory::MemPacket};

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
    fn tags_are_put_on_and_taken_off() {
        let (plain, tagged) = (udp().build(), udp().vlan(42).build());
        let mut packet = MemPacket::with_room(&plain, VLAN_TAG_BYTES, 0);
        assert_eq!(vlan(packet.data()), None);
        insert_tag(&mut packet, 0xf000 | 42).unwrap();
        assert_eq!(packet.data(), tagged);
        assert!(insert_tag(&mut packet, 7).is_err());
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
        assert!(insert_tag(&mut MemPacket::with_room(&plain[..11], 9, 0), 1).is_err());
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
    fn frames_are_for_a_station_or_for_a_group_that_it_may_be_in() {
        let own = MacAddress::new([2, 0, 0, 0, 0, 7]);
        let takes = |to: [u8; 6], packet_to: &str| {
            let mut frame = udp().to(packet_to).build();
            frame[..6].copy_from_slice(&to);
            Station::with(own).takes(&frame)
        };
        let (v4, v6) = ("192.0.2.1:80", "[2001:db8::2]:80");
        for to in [v4, v6] {
            assert!(takes(own.bytes(), to));
            for bit in 0..48 {
                let mut other = own.bytes();
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(!takes(other, to), "{other:?}");
            }
            assert!(!takes([0xff; 6], to));
        }
        for (group, to) in [
            ([0xff; 6], "255.255.255.255:67"),
            ([1, 0, 0x5e, 0, 0, 5], "224.0.0.5:9"),
            ([0x33, 0x33, 0, 0, 0, 1], "[ff02::1]:9"),
        ] {
            assert!(takes(group, to) && !takes([2; 6], to));
        }
        let mut arp = crate::build::arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        arp[..6].fill(0xff);
        assert!(Station::with(own).takes(&arp));
        arp[..6].fill(2);
        assert!(!Station::with(own).takes(&arp) && Station::ANY.takes(&arp));
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
}
