//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::{
    Header, Malformed,
    ethernet::{ETHERTYPE_IPV4, MacAddress},
};

/// Length in bytes of a message.
pub const MESSAGE_BYTES: usize = 28;

/// What an ARP message is for.
pub mod operation {
    /// Asks who has an address.
    pub const REQUEST: u16 = 1;
    /// Answers.
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
    /// The Ethernet address; all zero where a request asks for it.
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
    /// [`Malformed`] where there are fewer than 28 bytes, or the addresses are not Ethernet's and
    /// IPv4's.
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

    /// What the message is for: see [`operation`].
    pub const fn operation(&self) -> u16 {
        self.operation.get()
    }

    /// Who sent it.
    pub fn sender(&self) -> Neighbour {
        Neighbour { mac: self.sender_mac, address: self.sender.into() }
    }

    /// Whom it asks for or answers.
    pub fn target(&self) -> Neighbour {
        Neighbour { mac: self.target_mac, address: self.target.into() }
    }

    /// The answer to this request: the target's address is at `mac`.
    pub fn reply(&self, mac: MacAddress) -> Self {
        Self::new(operation::REPLY, Neighbour { mac, ..self.target() }, self.sender())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::arp_request;

    #[test]
    fn request_and_reply() {
        let (sender, target) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let frame = arp_request(sender, target);
        let request = ArpMessage::parse(&frame[14..]).unwrap();
        assert_eq!(request.operation(), operation::REQUEST);
        assert_eq!((request.sender().address, request.target().address), (sender, target));

        let mac = MacAddress::new([2, 0, 0, 0, 0, 9]);
        let reply = request.reply(mac);
        let reply = ArpMessage::parse(reply.as_bytes()).unwrap();
        assert_eq!(reply.operation(), operation::REPLY);
        assert_eq!(reply.sender(), Neighbour { mac, address: target });
        assert_eq!(reply.target(), request.sender());
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
