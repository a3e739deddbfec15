//! Neighbour discovery for IPv6 over Ethernet (RFC 4861): solicitations and advertisements.
//!
//! ```
//! use hotloop_packet::{PacketBuf, ethernet::MacAddress, memory::MemPacket, nd::{self, NdMessage}};
//! use std::net::Ipv6Addr;
//!
//! let (client, mac) = ("fe80::1".parse::<Ipv6Addr>()?, MacAddress::new([2, 0, 0, 0, 0, 1]));
//! let (own, own_mac) = ("fe80::2".parse::<Ipv6Addr>()?, MacAddress::new([2, 0, 0, 0, 0, 2]));
//! let mut packet = MemPacket::new(&[]);
//! nd::solicit(&mut packet, (client, mac), own).unwrap();
//!
//! let message = NdMessage::of_frame(packet.data()).unwrap();
//! assert_eq!((message.target(), message.neighbour()), (own, Some((client, mac))));
//! assert!(nd::advertise(&mut packet, own_mac).unwrap());
//! assert_eq!(NdMessage::of_frame(packet.data()).unwrap().neighbour(), Some((own, own_mac)));
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

use std::net::Ipv6Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::{
    NoRoom, PacketBuf, checksum,
    ethernet::{self, ETHERTYPE_IPV6, EthernetHeader, MacAddress},
    icmpv6::kind::{
        NEIGHBOUR_ADVERTISEMENT as ADVERTISEMENT, NEIGHBOUR_SOLICITATION as SOLICITATION,
    },
    ip::protocol,
    ipv6::{self, Ipv6View},
};

/// Types of option: the sender's Ethernet address, the target's.
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;

/// A message with this hop limit has not been forwarded by a router.
const HOP_LIMIT: u8 = 255;

/// Flags of an advertisement: its sender is a router; it answers a solicitation; it overrides the
/// known address.
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// The group of all stations on a link (RFC 4291, section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Length in bytes of a message with its IPv6 header and one option.
const PACKET_BYTES: usize = size_of::<Packet>();

/// The beginning of both messages, before their options.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Fixed {
    kind: u8,
    code: u8,
    checksum: U16,
    flags: u8,
    reserved: [u8; 3],
    target: [u8; 16],
}

/// A whole message in wire order, from the IPv6 header on.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Packet {
    version_class_label: [u8; 4],
    payload_length: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
    fixed: Fixed,
    option: [u8; 2],
    mac: MacAddress,
}

/// A neighbour solicitation or advertisement, checked as RFC 4861, section 7.1 requires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NdMessage {
    is_solicitation: bool,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    target: Ipv6Addr,
    /// An advertisement's flags; a solicitation has none.
    flags: u8,
    mac: Option<MacAddress>,
}

impl NdMessage {
    /// The message that a frame carries, after its VLAN tags. `None` if it carries something else,
    /// or the message is not valid.
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let (ETHERTYPE_IPV6, offset) = ethernet::network_layer(frame)? else { return None };
        let view = Ipv6View::parse(frame.get(offset..)?).ok()?;
        if (view.next_header(), view.hop_limit()) != (protocol::ICMPV6, HOP_LIMIT) {
            return None;
        }
        let (source, destination) = (view.source(), view.destination());
        let (fixed, options) = Fixed::read_from_prefix(view.payload()).ok()?;
        let target = Ipv6Addr::from(fixed.target);
        let is_solicitation = fixed.kind == SOLICITATION;
        let option = if is_solicitation { SOURCE_MAC } else { TARGET_MAC };
        let mac = link_layer_address(options, option)?;
        let is_valid = (is_solicitation || fixed.kind == ADVERTISEMENT)
            && fixed.code == 0
            && !target.is_multicast()
            && checksum::transport_v6(source, destination, protocol::ICMPV6, view.payload()) == 0
            && if is_solicitation {
                !source.is_unspecified() || (mac.is_none() && destination == group_of(target))
            } else {
                !destination.is_multicast() || fixed.flags & SOLICITED == 0
            };
        let flags = if is_solicitation { 0 } else { fixed.flags };
        is_valid.then_some(Self { is_solicitation, source, destination, target, flags, mac })
    }

    /// Whether the message is a solicitation, which asks for the target's Ethernet address.
    pub const fn is_solicitation(&self) -> bool {
        self.is_solicitation
    }

    /// The sender's address; `::` if a solicitation only looks for duplicates.
    pub const fn source(&self) -> Ipv6Addr {
        self.source
    }

    /// The address that the message was sent to: one station's, or a group's.
    pub const fn destination(&self) -> Ipv6Addr {
        self.destination
    }

    /// Whether the message is an advertisement that answers a solicitation (RFC 4861, section 4.4:
    /// the S flag).
    pub const fn is_solicited(&self) -> bool {
        self.flags & SOLICITED != 0
    }

    /// Whether the message is an advertisement that overrides the known address (the O flag).
    pub const fn is_override(&self) -> bool {
        self.flags & OVERRIDE != 0
    }

    /// Whether the message is an advertisement of a router (the R flag).
    pub const fn is_router(&self) -> bool {
        self.flags & ROUTER != 0
    }

    /// The Ethernet address in the message: the sender's in a solicitation, the target's in an
    /// advertisement.
    pub const fn mac(&self) -> Option<MacAddress> {
        self.mac
    }

    /// The address that a solicitation asks for, or that an advertisement is about.
    pub const fn target(&self) -> Ipv6Addr {
        self.target
    }

    /// The neighbour that the message makes known: a solicitation's sender, an advertisement's
    /// target. `None` if the message has no Ethernet address, as when a solicitation only looks for
    /// duplicates.
    pub fn neighbour(&self) -> Option<(Ipv6Addr, MacAddress)> {
        let address = if self.is_solicitation { self.source } else { self.target };
        self.mac.filter(|mac| !mac.is_multicast()).map(|mac| (address, mac))
    }
}

/// Whether a frame carries a solicitation or an advertisement by its type,
/// [valid](NdMessage::of_frame) or not.
pub fn is_message(frame: &[u8]) -> bool {
    let Some((ETHERTYPE_IPV6, offset)) = ethernet::network_layer(frame) else { return false };
    let (next_header, kind) = (frame.get(offset + 6), frame.get(offset + ipv6::HEADER_BYTES));
    next_header == Some(&protocol::ICMPV6) && matches!(kind, Some(&(SOLICITATION | ADVERTISEMENT)))
}

/// The Ethernet address in the option of this type, if there is one. `None` if the options are cut,
/// or one has no length.
fn link_layer_address(mut options: &[u8], kind: u8) -> Option<Option<MacAddress>> {
    let mut mac = None;
    while let [option_kind, words, ..] = *options {
        let (option, rest) = options.split_at_checked(usize::from(words) * 8)?;
        let [_, _, body @ ..] = option else { return None };
        if option_kind == kind {
            mac = mac.or(body.first_chunk().map(|bytes| MacAddress::new(*bytes)));
        }
        options = rest;
    }
    options.is_empty().then_some(mac)
}

/// The multicast group that stations with this address listen to (RFC 4291, section 2.7.1).
pub fn group_of(address: Ipv6Addr) -> Ipv6Addr {
    let [.., first, second, third] = address.octets();
    let low = u16::from_be_bytes([second, third]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(first), low)
}

/// The Ethernet address of a multicast group (RFC 2464, section 7).
pub fn mac_of_group(group: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = group.octets();
    MacAddress::new([0x33, 0x33, a, b, c, d])
}

/// Appends the frame that asks the stations of `target`'s group for its Ethernet address. The
/// packet must be empty; it then holds this frame.
///
/// # Errors
/// [`NoRoom`] if the packet has no room for 86 bytes; the packet is unchanged.
pub fn solicit<P: PacketBuf>(
    packet: &mut P,
    (source, mac): (Ipv6Addr, MacAddress),
    target: Ipv6Addr,
) -> Result<(), NoRoom> {
    let group = group_of(target);
    solicit_at(packet, (source, mac), (group, mac_of_group(group)), target)
}

/// [`solicit`] for one station: asks the station with this Ethernet address whether it still has
/// `target` (RFC 4861, section 7.3.3).
///
/// # Errors
/// As for [`solicit`].
pub fn solicit_one<P: PacketBuf>(
    packet: &mut P,
    source: (Ipv6Addr, MacAddress),
    (target, station): (Ipv6Addr, MacAddress),
) -> Result<(), NoRoom> {
    solicit_at(packet, source, (target, station), target)
}

fn solicit_at<P: PacketBuf>(
    packet: &mut P,
    (source, mac): (Ipv6Addr, MacAddress),
    (destination, to): (Ipv6Addr, MacAddress),
    target: Ipv6Addr,
) -> Result<(), NoRoom> {
    let ends = (source, destination);
    let message = Packet::new(ends, (SOLICITATION, 0, target), (SOURCE_MAC, mac));
    let header = EthernetHeader::new(mac, to, ETHERTYPE_IPV6);
    let frame = packet.append(ethernet::HEADER_BYTES + PACKET_BYTES)?;
    frame[..ethernet::HEADER_BYTES].copy_from_slice(header.as_bytes());
    frame[ethernet::HEADER_BYTES..].copy_from_slice(message.as_bytes());
    Ok(())
}

/// Turns a neighbour solicitation into the advertisement of the station `mac`, which owns the address
/// (RFC 4861, section 7.2.4). VLAN tags are kept. Returns whether the frame was a solicitation, in one
/// segment; any other frame is left unchanged.
///
/// # Errors
/// [`NoRoom`] if the solicitation is shorter than the advertisement and the packet has no room for
/// up to 8 bytes more; the packet is unchanged.
pub fn advertise<P: PacketBuf>(packet: &mut P, mac: MacAddress) -> Result<bool, NoRoom> {
    let frame = packet.data();
    let solicitation = NdMessage::of_frame(frame).filter(NdMessage::is_solicitation);
    let (Some(NdMessage { source, target, .. }), Some(offset), Some(client)) =
        (solicitation, ethernet::l3_offset(frame), frame.get(6..).and_then(<[u8]>::first_chunk))
    else {
        return Ok(false);
    };
    if packet.len_bytes() != frame.len() {
        return Ok(false);
    }
    let client = MacAddress::new(*client);
    // A station that looks for duplicates has no address yet: all nodes get the answer.
    let (destination, flags, client) = if source.is_unspecified() {
        (ALL_NODES, OVERRIDE, mac_of_group(ALL_NODES))
    } else {
        (source, SOLICITED | OVERRIDE, client)
    };
    let wanted_bytes = offset + PACKET_BYTES;
    packet.append(wanted_bytes.saturating_sub(packet.len_bytes()))?;
    packet.truncate(wanted_bytes);
    let message =
        Packet::new((target, destination), (ADVERTISEMENT, flags, target), (TARGET_MAC, mac));
    ethernet::set_addresses(packet, mac, client);
    packet.data_mut()[offset..].copy_from_slice(message.as_bytes());
    Ok(true)
}

impl Packet {
    fn new(
        (source, destination): (Ipv6Addr, Ipv6Addr),
        (kind, flags, target): (u8, u8, Ipv6Addr),
        (option, mac): (u8, MacAddress),
    ) -> Self {
        let (checksum, reserved, target) = (U16::ZERO, [0; 3], target.octets());
        let mut packet = Self {
            version_class_label: [0x60, 0, 0, 0],
            payload_length: U16::new((PACKET_BYTES - ipv6::HEADER_BYTES) as u16),
            next_header: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            source: source.octets(),
            destination: destination.octets(),
            fixed: Fixed { kind, code: 0, checksum, flags, reserved, target },
            option: [option, 1],
            mac,
        };
        let message = &packet.as_bytes()[ipv6::HEADER_BYTES..];
        let checksum = checksum::transport_v6(source, destination, protocol::ICMPV6, message);
        packet.fixed.checksum.set(checksum);
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemPacket;

    const MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 9]);
    const CLIENT_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 1]);

    fn addresses() -> (Ipv6Addr, Ipv6Addr) {
        ("2001:db8::1".parse().unwrap(), "2001:db8::ab:cdef:1234".parse().unwrap())
    }

    fn solicitation() -> MemPacket {
        let (client, own) = addresses();
        let mut packet = MemPacket::new(&[]);
        solicit(&mut packet, (client, CLIENT_MAC), own).unwrap();
        packet
    }

    /// A solicitation that looks for duplicates, which is 8 bytes shorter.
    fn probe() -> Vec<u8> {
        let (_, own) = addresses();
        let ends = (Ipv6Addr::UNSPECIFIED, group_of(own));
        let mut message = Packet::new(ends, (SOLICITATION, 0, own), (0, MAC));
        message.payload_length.set(24);
        message.fixed.checksum.set(0);
        let bytes = &message.as_bytes()[40..64];
        let checksum = checksum::transport_v6(ends.0, ends.1, protocol::ICMPV6, bytes);
        message.fixed.checksum.set(checksum);
        let macs = [mac_of_group(ends.1).bytes(), CLIENT_MAC.bytes()].concat();
        [&macs[..], &[0x86, 0xdd], &message.as_bytes()[..64]].concat()
    }

    #[test]
    fn a_solicitation_goes_to_the_group_of_its_target() {
        let packet = solicitation();
        let frame = packet.data();
        assert_eq!(frame.len(), 86);
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0xef, 0x12, 0x34]);
        let view = Ipv6View::parse(&frame[14..]).unwrap();
        assert_eq!(view.destination(), "ff02::1:ffef:1234".parse::<Ipv6Addr>().unwrap());
        let message = NdMessage::of_frame(frame).unwrap();
        let (client, own) = addresses();
        assert!(message.is_solicitation());
        assert_eq!((message.target(), message.neighbour()), (own, Some((client, CLIENT_MAC))));
        let mut full = MemPacket::with_room(&[], 0, 85);
        let error = solicit(&mut full, (client, MAC), own).unwrap_err();
        assert_eq!((error.available_bytes, full.data().len()), (85, 0));
    }

    #[test]
    fn one_station_is_asked_by_its_own_addresses() {
        let (client, own) = addresses();
        let mut packet = MemPacket::new(&[]);
        solicit_one(&mut packet, (client, CLIENT_MAC), (own, MAC)).unwrap();
        assert_eq!(packet.data()[..12], [MAC.bytes(), CLIENT_MAC.bytes()].concat());
        let message = NdMessage::of_frame(packet.data()).unwrap();
        assert_eq!((message.source(), message.destination()), (client, own));
        assert_eq!((message.target(), message.mac()), (own, Some(CLIENT_MAC)));
        assert!(message.is_solicitation() && !message.is_solicited());
    }

    #[test]
    fn the_type_alone_makes_a_message_that_may_be_invalid() {
        let mut frame = solicitation().data().to_vec();
        frame[21] = 254;
        assert!(is_message(&frame) && NdMessage::of_frame(&frame).is_none());
        frame[54] = 128;
        assert!(!is_message(&frame) && !is_message(&frame[..54]) && !is_message(&[]));
    }

    #[test]
    fn flags_are_those_of_an_advertisement() {
        let mut packet = solicitation();
        assert_eq!(advertise(&mut packet, MAC), Ok(true));
        let message = NdMessage::of_frame(packet.data()).unwrap();
        let flags = |message: &NdMessage| {
            [message.is_router(), message.is_solicited(), message.is_override()]
        };
        assert_eq!((flags(&message), message.destination()), ([false, true, true], addresses().0));
        let mut packet = MemPacket::new(&probe());
        assert_eq!(advertise(&mut packet, MAC), Ok(true));
        let message = NdMessage::of_frame(packet.data()).unwrap();
        assert_eq!((flags(&message), message.destination()), ([false, false, true], ALL_NODES));
    }

    #[test]
    fn a_solicitation_becomes_its_advertisement() {
        let (client, own) = addresses();
        let plain = solicitation().data().to_vec();
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        tagged.resize(100, 0xee);
        for frame in [plain, tagged] {
            let mut packet = MemPacket::new(&frame);
            assert_eq!(advertise(&mut packet, MAC), Ok(true));
            let offset = ethernet::l3_offset(&frame).unwrap();
            assert_eq!(packet.len_bytes(), offset + PACKET_BYTES);
            assert_eq!(packet.data()[..12], [CLIENT_MAC.bytes(), MAC.bytes()].concat());
            assert_eq!(packet.data()[12..offset], frame[12..offset]);
            let view = Ipv6View::parse(&packet.data()[offset..]).unwrap();
            assert_eq!((view.source(), view.destination()), (own, client));
            let message = NdMessage::of_frame(packet.data()).unwrap();
            assert!(!message.is_solicitation());
            assert_eq!(message.neighbour(), Some((own, MAC)));
            // An advertisement is not answered.
            let sent = packet.data().to_vec();
            assert_eq!(advertise(&mut packet, CLIENT_MAC), Ok(false));
            assert_eq!(packet.data(), sent);
        }
    }

    #[test]
    fn a_search_for_duplicates_is_answered_to_all_nodes() {
        let frame = probe();
        let message = NdMessage::of_frame(&frame).unwrap();
        assert_eq!((message.target(), message.neighbour()), (addresses().1, None));
        let mut full = MemPacket::with_room(&frame, 0, 7);
        assert_eq!(advertise(&mut full, MAC).unwrap_err().wanted_bytes, 8);
        assert_eq!(full.data(), frame);
        let mut packet = MemPacket::new(&frame);
        assert_eq!(advertise(&mut packet, MAC), Ok(true));
        assert_eq!(packet.data()[..6], [0x33, 0x33, 0, 0, 0, 1]);
        let message = NdMessage::of_frame(packet.data()).unwrap();
        assert_eq!(message.neighbour(), Some((addresses().1, MAC)));
    }

    #[test]
    fn what_is_cut_or_was_forwarded_or_changed_is_no_message() {
        let frame = solicitation().data().to_vec();
        for length in 0..frame.len() {
            assert_eq!(NdMessage::of_frame(&frame[..length]), None);
        }
        for at in 14..frame.len() {
            // No checksum covers the traffic class and the flow label.
            if !(14..18).contains(&at) {
                let mut changed = frame.clone();
                changed[at] ^= 1;
                assert_eq!(NdMessage::of_frame(&changed), None, "byte {at}");
                assert_eq!(advertise(&mut MemPacket::new(&changed), MAC), Ok(false));
            }
        }
    }

    #[test]
    fn an_option_without_length_is_refused() {
        assert_eq!(link_layer_address(&[1, 0, 0, 0, 0, 0, 0, 0], SOURCE_MAC), None);
        assert_eq!(link_layer_address(&[1, 1, 0, 0], SOURCE_MAC), None);
        assert_eq!(link_layer_address(&[1], SOURCE_MAC), None);
        let other = [14, 1, 1, 2, 3, 4, 5, 6, 2, 1, 9, 8, 7, 6, 5, 4];
        assert_eq!(link_layer_address(&other, SOURCE_MAC), Some(None));
        let mac = MacAddress::new([9, 8, 7, 6, 5, 4]);
        assert_eq!(link_layer_address(&other, TARGET_MAC), Some(Some(mac)));
    }
}
