//! The claims in a frame, read byte by byte.

use super::{Mac, OWN_V4, OWN_V6};
use hotloop::stage::neighbours::Link;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The solicited-node group of the own address.
pub const OWN_GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1);

pub enum Heard {
    Nothing,
    /// A message that RFC 4861, section 7.1, has silently discarded.
    Forbidden,
    Said(Said),
}

/// A claim that an address is at a station.
pub struct Said {
    pub address: IpAddr,
    pub mac: Option<Mac>,
    pub how: How,
}

#[derive(Clone, Copy, Eq, PartialEq)]
pub enum How {
    Answers,
    AsksForUs,
    Announces,
    /// A claim that no station should believe.
    Wrong,
}

pub fn said(link: Link, frame: &[u8]) -> Heard {
    let Some(to) = frame.first_chunk::<6>() else { return Heard::Nothing };
    let at = match frame.get(12..16) {
        Some([0x81, 0x00, high, 0]) if high & 15 == 0 => 16,
        _ => 12,
    };
    let Some((kind, packet)) = frame[at.min(frame.len())..].split_at_checked(2) else {
        return Heard::Nothing;
    };
    let is_to_us = *to == link.mac.bytes();
    let heard = match (kind, link.address) {
        ([0x08, 0x06], IpAddr::V4(_)) => arp(is_to_us, *to == [0xff; 6], packet),
        ([0x86, 0xdd], IpAddr::V6(_)) => discovery(is_to_us, *to, packet),
        _ => return Heard::Nothing,
    };
    let Heard::Said(mut said) = heard else { return heard };
    if !is_one_station(said.address) {
        return Heard::Nothing;
    }
    let is_bad = |mac: Mac| mac[0] & 1 == 1 || mac == [0; 6] || mac == link.mac.bytes();
    if said.mac.is_some_and(is_bad) || said.address == link.address {
        said.how = How::Wrong;
    }
    Heard::Said(said)
}

/// Whether an address is neither unspecified, nor a group's, nor for use within a host.
fn is_one_station(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            (1..224).contains(&address.octets()[0]) && address.octets()[0] != 127
        }
        IpAddr::V6(address) => address.octets()[0] != 0xff && address.to_bits() > 1,
    }
}

fn arp(is_to_us: bool, is_to_all: bool, message: &[u8]) -> Heard {
    let Some(message) = message.first_chunk::<28>() else { return Heard::Nothing };
    if message[..6] != [0, 1, 8, 0, 6, 4] {
        return Heard::Nothing;
    }
    let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&message[at..at + 4]).unwrap());
    let (sender, target) = (address(14), address(24));
    let operation = u16::from_be_bytes([message[6], message[7]]);
    let how = if !is_to_us && !is_to_all || !(1..=2).contains(&operation) {
        How::Wrong
    } else if target == OWN_V4 {
        if operation == 1 { How::AsksForUs } else { How::Answers }
    } else if target == sender {
        How::Announces
    } else if operation == 1 && is_to_all {
        return Heard::Nothing;
    } else {
        How::Wrong
    };
    Heard::Said(Said { address: sender.into(), mac: message[8..14].try_into().ok(), how })
}

fn discovery(is_to_us: bool, to: Mac, packet: &[u8]) -> Heard {
    if packet.get(6) != Some(&58) || !matches!(packet.get(40), Some(135 | 136)) {
        return Heard::Nothing;
    }
    let Some(message) = Message::valid(packet) else { return Heard::Forbidden };
    let Message { source, destination, .. } = message;
    let is_reached = match destination {
        ALL_NODES => to == [0x33, 0x33, 0, 0, 0, 1],
        OWN_GROUP => to == [0x33, 0x33, 0xff, 0, 0, 1],
        OWN_V6 => is_to_us,
        _ => false,
    };
    let (address, how) = match message.kind {
        135 if message.target != OWN_V6 || message.mac.is_none() => return Heard::Nothing,
        135 => (source, How::AsksForUs),
        _ if message.is_solicited => (message.target, How::Answers),
        _ => (message.target, How::Announces),
    };
    // ::ffff:0:0/96 is not used as an address on links.
    if address.octets()[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] {
        return Heard::Nothing;
    }
    let is_wrong = !is_reached || source == OWN_V6 || !is_one_station(source.into());
    let how = if is_wrong { How::Wrong } else { how };
    Heard::Said(Said { address: address.into(), mac: message.mac, how })
}

struct Message {
    kind: u8,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    target: Ipv6Addr,
    is_solicited: bool,
    mac: Option<Mac>,
}

impl Message {
    /// The checks in RFC 4861, sections 7.1.1 and 7.1.2.
    fn valid(packet: &[u8]) -> Option<Self> {
        let address = |at: usize| -> Option<Ipv6Addr> {
            packet.get(at..at + 16)?.first_chunk::<16>().map(|octets| (*octets).into())
        };
        let length = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
        let message = packet.get(40..40 + length)?;
        let (source, destination, target) = (address(8)?, address(24)?, address(48)?);
        if packet[0] >> 4 != 6 || packet[7] != 255 || message.len() < 24 || message[1] != 0 {
            return None;
        }
        if target.is_multicast() || checksum(source, destination, message) != 0xffff {
            return None;
        }
        let (kind, is_solicited) = (message[0], message[0] == 136 && message[4] & 0x40 != 0);
        let (mut options, mut mac) = (&message[24..], None);
        while !options.is_empty() {
            let length = 8 * usize::from(*options.get(1)?);
            if length == 0 || length > options.len() {
                return None;
            }
            if options[0] == kind - 134 && mac.is_none() {
                mac = options[2..8].try_into().ok();
            }
            options = &options[length..];
        }
        let searches = source.is_unspecified();
        let is_valid = match kind {
            135 => !searches || (mac.is_none() && destination == group_of(target)),
            _ => !destination.is_multicast() || !is_solicited,
        };
        is_valid.then_some(Self { kind, source, destination, target, is_solicited, mac })
    }
}

fn group_of(address: Ipv6Addr) -> Ipv6Addr {
    let low = address.to_bits() & 0xff_ffff;
    Ipv6Addr::from_bits("ff02::1:ff00:0".parse::<Ipv6Addr>().unwrap().to_bits() | low)
}

/// The one's-complement sum of an ICMPv6 message and its pseudo-header: all ones if its checksum is
/// right.
pub fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let bytes = [&source.octets(), &destination.octets(), message].concat();
    let words = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low)));
    let mut sum = words.sum::<u64>() + message.len() as u64 + 58;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
