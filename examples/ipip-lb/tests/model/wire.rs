//! Headers, read and written simply: whole sums, no cleverness.
//!
//! Classification has found these packets valid, and the model uses its verdict on malformed
//! frames: only quotes may end anywhere.

use hotloop::packet::flow_key::FlowKey;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub const ICMP: u8 = 1;
pub const IPV4: u8 = 4;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const IPV6: u8 = 41;
pub const ICMPV6: u8 = 58;

/// A packet's part of a datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Piece {
    Whole,
    First,
    Later,
}

/// The fields of an IP header, including extension headers.
#[derive(Clone, Copy, Debug)]
pub struct Ip {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// After all extension headers that the packet shows.
    pub protocol: u8,
    pub piece: Piece,
    /// The values that a fragment has in common with the others of its datagram, besides the
    /// addresses: the protocol (0 in IPv6, because RFC 8200, section 4.5, uses only addresses and
    /// identification, and later fragments need not name the first one's protocol), and the
    /// identification.
    pub datagram: (u8, u32),
    pub ttl: u8,
    pub traffic_class: u8,
    pub dont_fragment: bool,
    /// Including options or extension headers.
    pub header_bytes: usize,
    pub total_bytes: usize,
}

pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}

pub fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn v4_address(bytes: &[u8], at: usize) -> IpAddr {
    Ipv4Addr::from_bits(be32(bytes, at)).into()
}

fn v6_address(bytes: &[u8], at: usize) -> IpAddr {
    let octets: [u8; 16] = bytes[at..at + 16].try_into().expect("sixteen bytes");
    Ipv6Addr::from(octets).into()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

impl Ip {
    /// The valid header at the beginning of `bytes`.
    pub fn read(bytes: &[u8]) -> Self {
        if bytes[0] >> 4 == 4 { Self::read_v4(bytes) } else { Self::read_v6(bytes, bytes.len()) }
    }

    fn read_v4(bytes: &[u8]) -> Self {
        let fragment = be16(bytes, 6);
        let piece = match (fragment & 0x1FFF, fragment & 0x2000) {
            (0, 0) => Piece::Whole,
            (0, _) => Piece::First,
            _ => Piece::Later,
        };
        Self {
            source: v4_address(bytes, 12),
            destination: v4_address(bytes, 16),
            protocol: bytes[9],
            piece,
            datagram: (bytes[9], u32::from(be16(bytes, 4))),
            ttl: bytes[8],
            traffic_class: bytes[1],
            dont_fragment: fragment & 0x4000 != 0,
            header_bytes: usize::from(bytes[0] & 15) * 4,
            total_bytes: usize::from(be16(bytes, 2)),
        }
    }

    /// The header of a packet that is shown up to `shown_bytes`. If extension headers, or the first
    /// eight bytes after them, are missing, only the addresses identify the packet.
    fn read_v6(bytes: &[u8], shown_bytes: usize) -> Self {
        let total_bytes = 40 + usize::from(be16(bytes, 4));
        let mut ip = Self {
            source: v6_address(bytes, 8),
            destination: v6_address(bytes, 24),
            protocol: bytes[6],
            piece: Piece::Whole,
            datagram: (0, 0),
            ttl: bytes[7],
            traffic_class: (be16(bytes, 0) >> 4) as u8,
            dont_fragment: true,
            header_bytes: 40,
            total_bytes,
        };
        let unknown = Self { header_bytes: total_bytes.min(shown_bytes), ..ip };
        if ip.walk(&bytes[..total_bytes.min(shown_bytes)]) { ip } else { unknown }
    }

    /// Goes through the extension headers. Returns whether they are all present.
    fn walk(&mut self, packet: &[u8]) -> bool {
        const EXTENSIONS: [u8; 8] = [0, 43, 44, 51, 60, 135, 139, 140];
        for _ in 0..8 {
            let rest = &packet[self.header_bytes..];
            if !EXTENSIONS.contains(&self.protocol) {
                return true;
            }
            if rest.len() < 8 {
                return false;
            }
            let bytes = match self.protocol {
                44 => 8,
                51 => (usize::from(rest[1]) + 2) * 4,
                _ => (usize::from(rest[1]) + 1) * 8,
            };
            if rest.len() < bytes {
                return false;
            }
            if self.protocol == 44 && be16(rest, 2) & 0xFFF9 != 0 {
                self.piece = if be16(rest, 2) & 0xFFF8 == 0 { Piece::First } else { Piece::Later };
                self.datagram = (0, be32(rest, 4));
            }
            self.protocol = rest[0];
            self.header_bytes += bytes;
            if self.piece == Piece::Later {
                return true;
            }
        }
        !EXTENSIONS.contains(&self.protocol)
    }

    pub const fn is_v6(&self) -> bool {
        self.source.is_ipv6()
    }

    /// Whether the packet carries its own family's ICMP.
    pub const fn is_icmp(&self) -> bool {
        self.protocol == if self.is_v6() { ICMPV6 } else { ICMP }
    }

    /// The packet that an ICMP error quotes, with the shown part of its payload: empty if that is
    /// less than eight bytes.
    pub fn read_quote(quote: &[u8], is_v6: bool) -> (Self, &[u8]) {
        let ip = if is_v6 { Self::read_v6(quote, quote.len()) } else { Self::read_v4(quote) };
        let shown_end = ip.total_bytes.min(quote.len());
        let payload = quote.get(ip.header_bytes..shown_end).unwrap_or_default();
        if ip.piece == Piece::Later {
            return (ip, &[]);
        }
        if payload.len() >= 8 {
            return (ip, payload);
        }
        let cut = Self { protocol: if is_v6 { quote[6] } else { ip.protocol }, ..ip };
        (Self { piece: if is_v6 { Piece::Whole } else { ip.piece }, ..cut }, &[])
    }

    /// The key of the flow of a packet with this `payload`.
    pub fn key(&self, payload: &[u8]) -> FlowKey {
        let (source_port, destination_port) = self.ports(payload);
        let source = SocketAddr::new(self.source, source_port);
        let destination = SocketAddr::new(self.destination, destination_port);
        FlowKey::new(source, destination, self.protocol).expect("both of one family")
    }

    fn ports(&self, payload: &[u8]) -> (u16, u16) {
        if self.piece == Piece::Later || payload.is_empty() {
            return (0, 0);
        }
        match self.protocol {
            TCP | UDP => (be16(payload, 0), be16(payload, 2)),
            _ if self.is_icmp() && is_echo(payload[0], self.is_v6()) => {
                (be16(payload, 4), be16(payload, 4))
            }
            _ => (0, 0),
        }
    }
}

pub const fn is_echo(kind: u8, is_v6: bool) -> bool {
    if is_v6 { matches!(kind, 128 | 129) } else { matches!(kind, 0 | 8) }
}

/// Whether messages of this kind quote a packet.
pub const fn is_quoting(kind: u8, is_v6: bool) -> bool {
    if is_v6 { matches!(kind, 1..=4) } else { matches!(kind, 3 | 4 | 5 | 11 | 12) }
}

/// The Internet checksum (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

/// The checksum of TCP, UDP or ICMPv6, whose own field must be 0.
pub fn transport_checksum(ip: &Ip, message: &[u8]) -> u16 {
    let mut bytes = [octets(ip.source), octets(ip.destination)].concat();
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, ip.protocol]);
    bytes.extend_from_slice(message);
    checksum(&bytes)
}

/// Changes an IPv4 header so that a right checksum stays right, and a wrong one as wrong as it was
/// (RFC 1624, section 3).
pub fn change_v4(packet: &mut [u8], change: impl FnOnce(&mut [u8])) {
    let header_bytes = usize::from(packet[0] & 15) * 4;
    let found = be16(packet, 10);
    let due = whole_sum(packet, header_bytes);
    change(packet);
    let due_now = whole_sum(packet, header_bytes);
    let now = as_wrong_as(found, due, due_now);
    put16(packet, 10, now);
}

/// The checksum after a change: right if it was right before, else as wrong as it was, like an
/// incremental correction.
pub fn as_wrong_as(found: u16, due_before: u16, due_now: u16) -> u16 {
    if found == due_before {
        return due_now;
    }
    let sum = u32::from(!found) + u32::from(due_before) + u32::from(!due_now);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    !(((sum & 0xFFFF) + (sum >> 16)) as u16)
}

fn whole_sum(packet: &[u8], header_bytes: usize) -> u16 {
    let mut header = packet[..header_bytes].to_vec();
    put16(&mut header, 10, 0);
    checksum(&header)
}

/// Whether a frame has a whole IP header with a length beyond the end of the frame.
pub fn ends_within_its_packet(frame: &[u8]) -> bool {
    let mut l3_offset = 14;
    while l3_offset < 22
        && frame.len() >= l3_offset
        && matches!(be16(frame, l3_offset - 2), 0x8100 | 0x88A8)
    {
        l3_offset += 4;
    }
    let Some((link, packet)) = frame.split_at_checked(l3_offset) else { return false };
    match (be16(link, l3_offset - 2), packet) {
        (0x0800, [first, ..]) if packet.len() >= 20 && first >> 4 == 4 => {
            let (header_bytes, total_bytes) = (usize::from(first & 15) * 4, be16(packet, 2).into());
            (20..=packet.len().min(total_bytes)).contains(&header_bytes)
                && total_bytes > packet.len()
        }
        (0x86DD, [first, ..]) if packet.len() >= 40 && first >> 4 == 6 => {
            40 + usize::from(be16(packet, 4)) > packet.len()
        }
        _ => false,
    }
}

/// Whether an IPv4 header's checksum is right.
pub fn is_sum_right(packet: &[u8]) -> bool {
    checksum(&packet[..usize::from(packet[0] & 15) * 4]) == 0
}

/// Counts a hop.
pub fn spend_hop(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        change_v4(packet, |packet| packet[8] -= 1);
    } else {
        packet[7] -= 1;
    }
}

pub fn set_traffic_class(packet: &mut [u8], traffic_class: u8) {
    if packet[0] >> 4 == 4 {
        change_v4(packet, |packet| packet[1] = traffic_class);
    } else {
        packet[0] = 0x60 | traffic_class >> 4;
        packet[1] = packet[1] & 15 | traffic_class << 4;
    }
}

/// A new IPv4 header without options, with its sum.
pub fn v4_header(
    (source, destination): (IpAddr, IpAddr),
    traffic_class: u8,
    protocol: u8,
    total_bytes: usize,
    (identification, flags): (u16, u16),
) -> Vec<u8> {
    let mut header = vec![0x45, traffic_class, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    put16(&mut header, 2, total_bytes as u16);
    put16(&mut header, 4, identification);
    put16(&mut header, 6, flags);
    header.extend(octets(source));
    header.extend(octets(destination));
    let sum = checksum(&header);
    put16(&mut header, 10, sum);
    header
}

/// A new IPv6 header.
pub fn v6_header(
    (source, destination): (IpAddr, IpAddr),
    traffic_class: u8,
    next_header: u8,
    payload_bytes: usize,
) -> Vec<u8> {
    let mut header =
        vec![0x60 | traffic_class >> 4, traffic_class << 4, 0, 0, 0, 0, next_header, 64];
    put16(&mut header, 4, payload_bytes as u16);
    header.extend(octets(source));
    header.extend(octets(destination));
    header
}
