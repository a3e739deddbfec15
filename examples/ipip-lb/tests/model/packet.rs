//! Operations on packets: unwrapping, wrapping, fragmenting, answering. All of them are written
//! byte by byte, and every checksum is computed in full.

use super::deliver::Error;
use super::wire::{self, ICMP, ICMPV6, IPV4, IPV6, Ip, Piece, be16, put16};
use std::net::IpAddr;

/// A frame: its link header, tags and EtherType included, and its IP packet without padding.
#[derive(Clone, Debug)]
pub struct Packet {
    pub link: Vec<u8>,
    pub bytes: Vec<u8>,
    /// Free bytes before the link header.
    pub headroom_bytes: usize,
}

impl Packet {
    /// The IP packet of a valid frame.
    pub fn of(frame: &[u8], headroom_bytes: usize) -> Self {
        let mut l3_offset = 14;
        while l3_offset < 22 && matches!(be16(frame, l3_offset - 2), 0x8100 | 0x88A8) {
            l3_offset += 4;
        }
        let (link, bytes) = frame.split_at(l3_offset);
        let mut packet = Self { link: link.to_vec(), bytes: bytes.to_vec(), headroom_bytes };
        packet.bytes.truncate(packet.ip().total_bytes);
        packet
    }

    pub fn ip(&self) -> Ip {
        Ip::read(&self.bytes)
    }

    /// The packet's payload.
    pub fn payload(&self) -> &[u8] {
        let ip = self.ip();
        &self.bytes[ip.header_bytes..ip.total_bytes]
    }

    /// The frame, as it leaves from one station to another.
    pub fn frame(mut self, (from, to): ([u8; 6], [u8; 6])) -> Vec<u8> {
        let ethertype = if self.bytes[0] >> 4 == 4 { 0x0800 } else { 0x86DD };
        let type_offset = self.link.len() - 2;
        put16(&mut self.link, type_offset, ethertype);
        self.link[..6].copy_from_slice(&to);
        self.link[6..12].copy_from_slice(&from);
        self.link.extend(self.bytes);
        self.link
    }

    /// The type of its message, if it is a whole message of its family's ICMP.
    pub fn icmp_kind(&self) -> Option<u8> {
        let ip = self.ip();
        (ip.is_icmp() && ip.piece == Piece::Whole).then(|| self.payload()[0])
    }

    /// Whether it is an IP-in-IP packet that isn't a fragment.
    pub fn is_tunnel(&self) -> bool {
        let ip = self.ip();
        ip.piece == Piece::Whole && matches!(ip.protocol, IPV4 | IPV6)
    }

    /// Removes the outer header. Returns the reason if that isn't possible.
    pub fn unwrap(&mut self) -> Result<(), &'static str> {
        let outer = self.ip();
        if outer.piece != Piece::Whole {
            return Err("tunnel_fragment");
        }
        if !outer.is_v6() && !wire::is_sum_right(&self.bytes) {
            return Err("bad_checksum");
        }
        let mut inner = self.bytes[outer.header_bytes..].to_vec();
        inner.truncate(Ip::read(&inner).total_bytes);
        let class = Ip::read(&inner).traffic_class;
        // RFC 6040, figure 4: rows are the inner mark (not, 1, 0, congestion), columns the outer.
        const DROP: u8 = 0xFF;
        const MARKS: [[u8; 4]; 4] = [[0, 0, 0, DROP], [1, 1, 1, 3], [2, 1, 2, 3], [3, 3, 3, 3]];
        let mark = MARKS[usize::from(class & 3)][usize::from(outer.traffic_class & 3)];
        if mark == DROP {
            return Err("congestion");
        }
        if mark != class & 3 {
            wire::set_traffic_class(&mut inner, class & !3 | mark);
        }
        self.bytes = inner;
        self.headroom_bytes += outer.header_bytes;
        Ok(())
    }

    /// The packet in a tunnel, as far as it is present: headers may be cut only in a fragment.
    pub fn inner(&self) -> Option<Self> {
        let ip = self.ip();
        let bytes = self.bytes[ip.header_bytes..].to_vec();
        let header_bytes = if ip.protocol == IPV6 { 40 } else { 20 };
        let version = if ip.protocol == IPV6 { 6 } else { 4 };
        let is_there = bytes.len() >= header_bytes && bytes[0] >> 4 == version;
        let is_there = is_there
            && (version == 6 || {
                let (header_bytes, total_bytes) = (usize::from(bytes[0] & 15) * 4, be16(&bytes, 2));
                (20..=bytes.len().min(total_bytes.into())).contains(&header_bytes)
            });
        is_there.then(|| Self { bytes, ..self.clone() })
    }

    /// The offset, in bytes from the IPv6 header, of the statement that a packet may enter no
    /// further tunnel: in destination options before any fragment header (RFC 2473, section 4.1.1).
    pub fn spent_limit(&self) -> Option<u32> {
        if !self.ip().is_v6() {
            return None;
        }
        let (mut kind, mut at) = (self.bytes[6], 40);
        for _ in 0..8 {
            let bytes = match kind {
                0 | 43 | 60 | 135 | 139 | 140 => (usize::from(self.bytes[at + 1]) + 1) * 8,
                51 => (usize::from(self.bytes[at + 1]) + 2) * 4,
                _ => return None,
            };
            let mut option = at + 2;
            while kind == 60 && option + 1 < at + bytes {
                match self.bytes[option..at + bytes] {
                    [0, ..] => option += 1,
                    [4, 1, 0, ..] => return Some(option as u32 + 2),
                    [4, 1, _, ..] => return None,
                    [_, length, ..] => option += 2 + usize::from(length),
                    _ => break,
                }
            }
            (kind, at) = (self.bytes[at], at + bytes);
        }
        None
    }

    /// Puts an outer header around the packet, and counts the hop.
    pub fn wrapped(mut self, ends: (IpAddr, IpAddr), identification: u16) -> Self {
        let inner = self.ip();
        wire::spend_hop(&mut self.bytes);
        let protocol = if inner.is_v6() { IPV6 } else { IPV4 };
        let class = inner.traffic_class;
        let mut bytes = if ends.0.is_ipv4() {
            let fragments = if inner.dont_fragment { (0, 0x4000) } else { (identification, 0) };
            wire::v4_header(ends, class, protocol, 20 + self.bytes.len(), fragments)
        } else {
            wire::v6_header(ends, class, protocol, self.bytes.len())
        };
        bytes.extend(self.bytes);
        Self { bytes, ..self }
    }

    /// The fragments of an IPv4 packet, each of at most `bytes_max` bytes (RFC 791, section 3.2).
    pub fn fragments(&self, bytes_max: usize) -> Vec<Self> {
        let ip = self.ip();
        let offset = usize::from(be16(&self.bytes, 6) & 0x1FFF);
        let is_followed = be16(&self.bytes, 6) & 0x2000 != 0;
        let first_header = self.bytes[..ip.header_bytes].to_vec();
        let mut later_header = self.bytes[..20].to_vec();
        later_header.extend(copied_options(&self.bytes[20..ip.header_bytes]));
        let (mut pieces, mut rest, mut units) = (Vec::new(), self.payload(), offset);
        loop {
            let mut header = if pieces.is_empty() { &first_header } else { &later_header }.clone();
            let room = bytes_max - header.len();
            let is_last = rest.len() <= room;
            let (piece, remainder) = rest.split_at(if is_last { rest.len() } else { room / 8 * 8 });
            header[0] = 0x40 | (header.len() / 4) as u8;
            let total = (header.len() + piece.len()) as u16;
            put16(&mut header, 2, total);
            let more = if is_followed || !is_last { 0x2000 } else { 0 };
            put16(&mut header, 6, more | units as u16);
            put16(&mut header, 10, 0);
            let sum = wire::checksum(&header);
            put16(&mut header, 10, sum);
            let bytes = [&header, piece].concat();
            pieces.push(Self { link: self.link.clone(), bytes, headroom_bytes: 128 });
            if is_last {
                return pieces;
            }
            (rest, units) = (remainder, units + piece.len() / 8);
        }
    }

    /// The error about it from `from`; `None` if none is permitted.
    pub fn error(&self, from: IpAddr, error: Error) -> Option<Self> {
        let ip = self.ip();
        let is_error = |kind: u8| match ip.is_v6() {
            true => kind < 128 || kind == 137,
            false => wire::is_quoting(kind, false),
        };
        let about_error = ip.is_icmp() && ip.piece == Piece::First && is_error(self.payload()[0])
            || self.icmp_kind().is_some_and(is_error);
        let is_broken = !ip.is_v6() && !wire::is_sum_right(&self.bytes);
        if about_error || is_broken || ip.piece == Piece::Later || !is_single_host(ip.source) {
            return None;
        }
        let (kind, code, rest) = match (ip.is_v6(), error) {
            (false, Error::TimeExceeded) => (11, 0, 0),
            (true, Error::TimeExceeded) => (3, 0, 0),
            (false, Error::TooBig { mtu_bytes }) => (3, 4, mtu_bytes as u16),
            (true, Error::TooBig { mtu_bytes }) => (2, 0, mtu_bytes as u16),
            (_, Error::Limit { pointer }) => (4, 0, pointer as u16),
        };
        let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
        put16(&mut message, 6, rest);
        let quote_bytes_max = if ip.is_v6() { 1280 - 48 } else { 576 - 28 };
        message.extend_from_slice(&self.bytes[..self.bytes.len().min(quote_bytes_max)]);
        Some(self.answer(from, ip.source, 0xC0, 0x4000, message))
    }

    /// The reply to an echo request; `None` if none is permitted. An error if a checksum is wrong.
    pub fn echo_reply(&self) -> Result<Option<Self>, &'static str> {
        let ip = self.ip();
        if !ip.is_v6() && !wire::is_sum_right(&self.bytes) {
            return Err("bad_checksum");
        }
        if !is_single_host(ip.source) || !is_single_host(ip.destination) {
            return Ok(None);
        }
        // With the checksum in its place, a right message sums to zero (RFC 1071, section 1).
        let left = match ip.is_v6() {
            true => wire::transport_checksum(&ip, self.payload()),
            false => wire::checksum(self.payload()),
        };
        if left != 0 {
            return Err("bad_checksum");
        }
        let mut message = self.payload().to_vec();
        message[0] = if ip.is_v6() { 129 } else { 0 };
        let class = ip.traffic_class & !3;
        let flags = if ip.dont_fragment { 0x4000 } else { 0 };
        let mut reply = self.answer(ip.destination, ip.source, class, flags, message);
        if !ip.is_v6() {
            wire::change_v4(&mut reply.bytes, |bytes| put16(bytes, 4, ip.datagram.1 as u16));
        }
        Ok(Some(reply))
    }

    /// The checksum that an ICMP message should have.
    fn message_due(&self) -> u16 {
        let ip = self.ip();
        let mut message = self.payload().to_vec();
        put16(&mut message, 2, 0);
        match ip.is_v6() {
            true => wire::transport_checksum(&ip, &message),
            false => wire::checksum(&message),
        }
    }

    /// An ICMP packet with this message. Its checksum must still be filled in.
    fn answer(
        &self,
        from: IpAddr,
        to: IpAddr,
        class: u8,
        flags: u16,
        mut message: Vec<u8>,
    ) -> Self {
        let protocol = if from.is_ipv6() { ICMPV6 } else { ICMP };
        let mut bytes = if from.is_ipv6() {
            wire::v6_header((from, to), class, protocol, message.len())
        } else {
            wire::v4_header((from, to), class, protocol, 20 + message.len(), (0, flags))
        };
        put16(&mut message, 2, 0);
        bytes.extend_from_slice(&message);
        let mut packet = Self { link: self.link.clone(), bytes, headroom_bytes: 0 };
        let sum = packet.message_due();
        let header_bytes = packet.ip().header_bytes;
        put16(&mut packet.bytes, header_bytes + 2, sum);
        packet
    }

    /// Lowers the MSS option of a SYN with ACK.
    pub fn clamp_mss(&mut self, mss_max: u16) -> bool {
        let ip = self.ip();
        let start = ip.header_bytes;
        let segment = self.payload().to_vec();
        let options_end = usize::from(segment[12] >> 4) * 4;
        let (mut at, mut is_lowered, mut clamped) = (20, false, segment.clone());
        while at < options_end && segment[at] != 0 {
            let length = match segment[at] {
                1 => 1,
                _ => usize::from(*segment.get(at + 1).unwrap_or(&0)),
            };
            if length == 0 || at + length > options_end || length == 1 && segment[at] != 1 {
                break;
            }
            if segment[at] == 2 && length == 4 && be16(&segment, at + 2) > mss_max {
                put16(&mut clamped, at + 2, mss_max);
                is_lowered = true;
            }
            at += length;
        }
        if is_lowered {
            let sum = adjusted_sum(&ip, &segment, &clamped);
            put16(&mut clamped, 16, sum);
            self.bytes.splice(start.., clamped);
        }
        is_lowered
    }
}

/// TCP's checksum of a changed segment: as right or wrong as it was.
fn adjusted_sum(ip: &Ip, before: &[u8], after: &[u8]) -> u16 {
    let due = |segment: &[u8]| {
        let mut segment = segment.to_vec();
        put16(&mut segment, 16, 0);
        wire::transport_checksum(ip, &segment)
    };
    wire::as_wrong_as(be16(before, 16), due(before), due(after))
}

/// Whether an address may be a single host's on a network (RFC 1122, section 3.2.1.3).
pub fn is_single_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !matches!(address.octets()[0], 0 | 127 | 224..=255),
        IpAddr::V6(address) => {
            !(address.is_unspecified() || address.is_loopback() || address.is_multicast())
        }
    }
}

/// The options that go into every fragment, padded with ends of the list.
fn copied_options(mut options: &[u8]) -> Vec<u8> {
    let mut copied = Vec::new();
    while let Some(kind) = options.first().copied().filter(|kind| *kind != 0) {
        let length = if kind == 1 { 1 } else { usize::from(options[1]) };
        if kind & 0x80 != 0 {
            copied.extend_from_slice(&options[..length]);
        }
        options = &options[length..];
    }
    copied.resize(copied.len().next_multiple_of(4), 0);
    copied
}
