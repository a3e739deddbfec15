//! ARP for IPv4 over Ethernet (RFC 826).
//!
//! ```
//! use hotloop_packet::{PacketBuf, arp::{self, ArpMessage, Neighbour}, ethernet::MacAddress};
//! use hotloop_packet::memory::MemPacket;
//! use std::net::Ipv4Addr;
//!
//! let client = Neighbour { mac: MacAddress::new([2, 0, 0, 0, 0, 1]), address: [10, 0, 0, 1].into() };
//! let (own, mac) = (Ipv4Addr::new(10, 0, 0, 2), MacAddress::new([2, 0, 0, 0, 0, 2]));
//! let mut packet = MemPacket::new(&[]);
//! arp::request(&mut packet, client, own)?;
//!
//! let asks_for = ArpMessage::of_frame(packet.data()).map(|message| message.target().address);
//! if asks_for == Some(own) {
//!     arp::reply(&mut packet, mac);
//! }
//! let reply = ArpMessage::of_frame(packet.data()).unwrap();
//! assert_eq!((reply.sender(), reply.target()), (Neighbour { mac, address: own }, client));
//! # Ok::<(), hotloop_packet::NoRoom>(())
//! ```

use std::net::Ipv4Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::{
    Header, Malformed, NoRoom, PacketBuf,
    ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4, EthernetHeader, MacAddress},
};

/// Length in bytes of a message.
pub const MESSAGE_BYTES: usize = 28;

/// Operations of ARP messages.
pub mod operation {
    /// Asks for the Ethernet address of an IPv4 address.
    pub const REQUEST: u16 = 1;
    /// Answers a request.
    pub const REPLY: u16 = 2;
}

/// An ARP message for IPv4 over Ethernet: 28 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ArpMessage {
    hardware_type: U16,
    protocol_type: U16,
    hardware_bytes: u8,
    protocol_bytes: u8,
    operation: U16,
    sender_mac: MacAddress,
    sender: [u8; 4],
    target_mac: MacAddress,
    target: [u8; 4],
}

/// One end of an ARP message: its Ethernet and its IPv4 address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Neighbour {
    /// The Ethernet address; all zeroes in a request's target.
    pub mac: MacAddress,
    /// The IPv4 address.
    pub address: Ipv4Addr,
}

impl ArpMessage {
    /// A message.
    pub const fn new(operation: u16, sender: Neighbour, target: Neighbour) -> Self {
        Self {
            hardware_type: U16::new(1),
            protocol_type: U16::new(ETHERTYPE_IPV4),
            hardware_bytes: 6,
            protocol_bytes: 4,
            operation: U16::new(operation),
            sender_mac: sender.mac,
            sender: sender.address.octets(),
            target_mac: target.mac,
            target: target.address.octets(),
        }
    }

    /// The message at the start of `bytes`, an Ethernet frame's payload.
    ///
    /// # Errors
    /// [`Malformed`] if there are fewer than 28 bytes, or the address types aren't Ethernet and
    /// IPv4.
    pub fn parse(bytes: &[u8]) -> Result<&Self, Malformed> {
        let Ok((message, _)) = Self::ref_from_prefix(bytes) else {
            return Err(Malformed::cut(Header::Arp, MESSAGE_BYTES, bytes.len()));
        };
        if (message.hardware_type.get(), message.hardware_bytes) != (1, 6) {
            return Err(Malformed::inconsistent(Header::Arp, "hardware type"));
        }
        if (message.protocol_type.get(), message.protocol_bytes) != (ETHERTYPE_IPV4, 4) {
            return Err(Malformed::inconsistent(Header::Arp, "protocol type"));
        }
        Ok(message)
    }

    /// The message that a frame carries, after its VLAN tags. `None` if it carries something else,
    /// or the message is malformed.
    pub fn of_frame(frame: &[u8]) -> Option<&Self> {
        match ethernet::network_layer(frame)? {
            (ETHERTYPE_ARP, offset) => Self::parse(frame.get(offset..)?).ok(),
            _ => None,
        }
    }

    /// The message's bytes in wire order.
    pub const fn to_bytes(self) -> [u8; MESSAGE_BYTES] {
        zerocopy::transmute!(self)
    }

    /// The operation: see [`operation`].
    pub const fn operation(&self) -> u16 {
        self.operation.get()
    }

    /// The sender.
    pub fn sender(&self) -> Neighbour {
        Neighbour { mac: self.sender_mac, address: self.sender.into() }
    }

    /// The neighbour that a request asks for, or that a reply answers.
    pub fn target(&self) -> Neighbour {
        Neighbour { mac: self.target_mac, address: self.target.into() }
    }

    /// The answer to this request: the target's address is at `mac`.
    pub fn reply(&self, mac: MacAddress) -> Self {
        Self::new(operation::REPLY, Neighbour { mac, ..self.target() }, self.sender())
    }
}

/// Appends the frame that asks every station for the Ethernet address of `target`. The packet must
/// be empty; it then holds this frame.
///
/// # Errors
/// [`NoRoom`] if the packet has no room for 42 bytes; the packet is unchanged.
pub fn request<P: PacketBuf>(
    packet: &mut P,
    sender: Neighbour,
    target: Ipv4Addr,
) -> Result<(), NoRoom> {
    let target = Neighbour { mac: MacAddress::default(), address: target };
    let message = ArpMessage::new(operation::REQUEST, sender, target);
    let header = EthernetHeader::new(sender.mac, MacAddress::BROADCAST, ETHERTYPE_ARP);
    let frame = packet.append(ethernet::HEADER_BYTES + MESSAGE_BYTES)?;
    frame[..ethernet::HEADER_BYTES].copy_from_slice(header.as_bytes());
    frame[ethernet::HEADER_BYTES..].copy_from_slice(message.as_bytes());
    Ok(())
}

/// Turns an ARP request into the reply of the station `mac`, which owns the requested address. VLAN
/// tags are kept. Returns whether the frame was a request; any other frame is left unchanged.
pub fn reply<P: PacketBuf>(packet: &mut P, mac: MacAddress) -> bool {
    let frame = packet.data();
    let Some(message) = ArpMessage::of_frame(frame) else { return false };
    let Some(offset) = ethernet::l3_offset(frame) else { return false };
    if message.operation() != operation::REQUEST {
        return false;
    }
    let (client, reply) = (message.sender().mac, message.reply(mac));
    ethernet::set_addresses(packet, mac, client);
    packet.data_mut()[offset..offset + MESSAGE_BYTES].copy_from_slice(&reply.to_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::{SOURCE_MAC, arp_request, udp},
        memory::MemPacket,
    };

    #[test]
    fn request_and_reply() {
        let (sender, target) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let frame = arp_request(sender, target);
        let request = ArpMessage::parse(&frame[14..]).unwrap();
        assert_eq!(request.operation(), operation::REQUEST);
        assert_eq!((request.sender().address, request.target().address), (sender, target));

        let mac = MacAddress::new([2, 0, 0, 0, 0, 9]);
        let reply = request.reply(mac).to_bytes();
        let reply = ArpMessage::parse(&reply).unwrap();
        assert_eq!(reply.operation(), operation::REPLY);
        assert_eq!(reply.sender(), Neighbour { mac, address: target });
        assert_eq!(reply.target(), request.sender());
    }

    #[test]
    fn a_request_in_a_frame_becomes_its_reply() {
        let (sender, target) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let frame = arp_request(sender, target);
        let mut packet = MemPacket::new(&[]);
        request(&mut packet, Neighbour { mac: SOURCE_MAC, address: sender }, target).unwrap();
        assert_eq!(packet.data(), frame);
        let mut full = MemPacket::with_room(&[], 0, 41);
        let neighbour = Neighbour { mac: SOURCE_MAC, address: sender };
        assert_eq!(request(&mut full, neighbour, target).unwrap_err().available_bytes, 41);

        let mac = MacAddress::new([2, 0, 0, 0, 0, 9]);
        let message = ArpMessage::of_frame(&frame).unwrap().reply(mac).to_bytes();
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        tagged.resize(64, 0xee);
        for frame in [frame, tagged] {
            let offset = ethernet::l3_offset(&frame).unwrap();
            let mut packet = MemPacket::new(&frame);
            assert!(reply(&mut packet, mac));
            let macs = [SOURCE_MAC.bytes(), mac.bytes()].concat();
            let rest = &frame[offset + MESSAGE_BYTES..];
            let expected = [&macs[..], &frame[12..offset], &message, rest].concat();
            assert_eq!(packet.data(), expected);
            // A reply is not answered.
            assert!(!reply(&mut packet, MacAddress::BROADCAST));
            assert_eq!(packet.data(), expected);
        }
    }

    #[test]
    fn frames_without_a_whole_message_stay_as_they_are() {
        let frame = arp_request(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        for frame in (0..frame.len()).map(|length| &frame[..length]).chain([&udp().build()[..]]) {
            let mut packet = MemPacket::new(frame);
            assert!(ArpMessage::of_frame(frame).is_none());
            assert!(!reply(&mut packet, MacAddress::BROADCAST));
            assert_eq!(packet.data(), frame);
        }
    }

    #[test]
    fn other_addresses_and_cut_messages_are_refused() {
        let frame = arp_request(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        for length in 0..MESSAGE_BYTES {
            assert!(matches!(
                ArpMessage::parse(&frame[14..14 + length]),
                Err(Malformed::Cut { .. })
            ));
        }
        for (at, field) in [(1, "hardware type"), (4, "hardware type"), (5, "protocol type")] {
            let mut bytes = frame[14..].to_vec();
            bytes[at] = 7;
            let expected = Malformed::inconsistent(Header::Arp, field);
            assert_eq!(ArpMessage::parse(&bytes), Err(expected));
        }
    }
}
