//! The expected output, byte by byte.

use crate::deployed::{BACKENDS_MAC, CLIENTS_MAC, OWN_MAC};
use std::net::IpAddr;

/// An outer header.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub tos: u8,
    pub dont_fragment: bool,
    pub identification: u16,
}

impl Outer {
    /// The header of a packet without any mark.
    pub fn new(source: &str, destination: &str) -> Self {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Self { source, destination, tos: 0, dont_fragment: false, identification: 0 }
    }

    fn header(&self, payload: &[u8]) -> Vec<u8> {
        let protocol = if payload[0] >> 4 == 4 { 4 } else { 41 };
        let payload_bytes = payload.len() as u16;
        let mut header = Vec::new();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                header.extend([0x45, self.tos]);
                header.extend((20 + payload_bytes).to_be_bytes());
                header.extend(self.identification.to_be_bytes());
                header.extend([if self.dont_fragment { 0x40 } else { 0 }, 0, 64, protocol, 0, 0]);
                header.extend(source.octets());
                header.extend(destination.octets());
                let sum = sum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                header.extend([0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
                header.extend(payload_bytes.to_be_bytes());
                header.extend([protocol, 64]);
                header.extend(source.octets());
                header.extend(destination.octets());
            }
            _ => panic!("two families"),
        }
        header
    }
}

/// The checksum of these bytes (RFC 1071). Their number must be even.
pub fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    !(sum as u16)
}

/// The offset of a frame's packet, after VLAN tags.
fn l3_offset(frame: &[u8]) -> usize {
    let mut offset = 14;
    while [[0x81, 0], [0x88, 0xA8]].contains(&[frame[offset - 2], frame[offset - 1]]) {
        offset += 4;
    }
    offset
}

/// The packet in a frame.
pub fn packet(frame: &[u8]) -> &[u8] {
    &frame[l3_offset(frame)..]
}

/// The frame for the backends, inside this header.
pub fn wrapped(frame: &[u8], outer: &Outer) -> Vec<u8> {
    let (link, packet) = frame.split_at(l3_offset(frame));
    let ethertype = if outer.source.is_ipv4() { [8, 0] } else { [0x86, 0xDD] };
    let (tags, header) = (&link[12..link.len() - 2], outer.header(packet));
    [&BACKENDS_MAC, &OWN_MAC, tags, &ethertype, &header, packet].concat()
}

/// The frame for the clients.
pub fn to_client(frame: &[u8]) -> Vec<u8> {
    [&CLIENTS_MAC, &OWN_MAC, &frame[12..]].concat()
}
