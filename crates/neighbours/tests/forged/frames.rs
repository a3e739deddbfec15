//! Frames of any content.

use super::net::{GATEWAY_V4, GATEWAY_V6, OWN_V4, OWN_V6};
use hotloop_packet::arp::{ArpMessage, Neighbour};
use hotloop_packet::checksum;
use hotloop_packet::ethernet::MacAddress;
use std::net::{Ipv4Addr, Ipv6Addr};

/// An ARP message that claims the gateway's address for a station.
#[derive(Clone, Copy)]
pub struct Arp {
    pub operation: u16,
    pub mac: MacAddress,
    pub target: Ipv4Addr,
}

impl Arp {
    pub const fn reply(mac: MacAddress) -> Self {
        Self { operation: 2, mac, target: OWN_V4 }
    }

    pub fn frame(self, to: MacAddress) -> Vec<u8> {
        let sender = Neighbour { mac: self.mac, address: GATEWAY_V4 };
        let target = Neighbour { mac: to, address: self.target };
        let message = ArpMessage::new(self.operation, sender, target).to_bytes();
        [&to.bytes()[..], &self.mac.bytes(), &[0x08, 0x06], &message].concat()
    }
}

/// A message of neighbour discovery.
#[derive(Clone, Copy)]
pub struct Nd {
    pub kind: u8,
    pub code: u8,
    pub flags: u8,
    pub hop_limit: u8,
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub target: Ipv6Addr,
    pub mac: MacAddress,
    pub has_option: bool,
    pub option_words: u8,
    pub checksum_error: u16,
}

impl Nd {
    /// An answer for the gateway.
    pub const fn advertisement(mac: MacAddress) -> Self {
        Self {
            kind: 136,
            code: 0,
            flags: 0x60,
            hop_limit: 255,
            source: GATEWAY_V6,
            destination: OWN_V6,
            target: GATEWAY_V6,
            mac,
            has_option: true,
            option_words: 1,
            checksum_error: 0,
        }
    }

    pub const fn solicitation(mac: MacAddress) -> Self {
        Self { kind: 135, flags: 0, target: OWN_V6, ..Self::advertisement(mac) }
    }

    pub fn frame(self, to: MacAddress) -> Vec<u8> {
        let mut message = vec![self.kind, self.code, 0, 0, self.flags, 0, 0, 0];
        message.extend(self.target.octets());
        if self.has_option {
            message.extend([if self.kind == 136 { 2 } else { 1 }, self.option_words]);
            message.extend(self.mac.bytes());
        }
        let sum = checksum::transport_v6(self.source, self.destination, 58, &message);
        message[2..4].copy_from_slice(&(sum ^ self.checksum_error).to_be_bytes());
        let length = u16::try_from(message.len()).unwrap().to_be_bytes();
        let header = [0x60, 0, 0, 0, length[0], length[1], 58, self.hop_limit];
        let macs = [to.bytes(), self.mac.bytes()].concat();
        let addresses = [self.source.octets(), self.destination.octets()].concat();
        [&macs[..], &[0x86, 0xdd], &header, &addresses, &message].concat()
    }
}
