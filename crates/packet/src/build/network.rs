//! The IP header of a built packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::IntoBytes;

use crate::{
    build::message::written,
    ip::{Ecn, protocol},
    ipv4::{self, Ipv4Header},
    ipv6::{self, FragmentHeader, Ipv6Header},
    memory::MemPacket,
};

#[derive(Clone, Debug)]
pub(super) struct IpFields {
    pub ttl: u8,
    pub tos: u8,
    pub identification: u16,
    pub dont_fragment: bool,
    /// IPv4 only.
    pub options: Vec<u8>,
    /// IPv6 only: the next-header value of each extension header, and its bytes after the first
    /// two.
    pub extensions: Vec<(u8, Vec<u8>)>,
}

impl Default for IpFields {
    fn default() -> Self {
        Self {
            ttl: 64,
            tos: 0,
            identification: 1,
            dont_fragment: false,
            options: Vec::new(),
            extensions: Vec::new(),
        }
    }
}

/// An IP packet that may be cut into fragments.
#[derive(Debug)]
pub(super) struct Packet {
    fields: IpFields,
    addresses: Addresses,
    protocol: u8,
    message: Vec<u8>,
}

#[derive(Debug)]
enum Addresses {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

/// The position of a fragment in its datagram.
#[derive(Clone, Copy)]
struct Position {
    offset_bytes: usize,
    more: bool,
}

const WHOLE: Position = Position { offset_bytes: 0, more: false };

/// Protocol number of the inner packet in a tunnel's outer header.
pub(super) const fn tunnel_protocol(is_v6: bool) -> u8 {
    if is_v6 { protocol::IPV6 } else { protocol::IPV4 }
}

impl Packet {
    pub(super) fn new(
        fields: IpFields,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        message: Vec<u8>,
    ) -> Self {
        let addresses = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4(source, destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6(source, destination),
            _ => panic!("from {source} to {destination}: two families"),
        };
        Self { fields, addresses, protocol, message }
    }

    pub(super) fn is_v6(&self) -> bool {
        matches!(self.addresses, Addresses::V6(..))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        match self.addresses {
            Addresses::V4(source, destination) => {
                self.v4(source, destination, &self.message, WHOLE)
            }
            Addresses::V6(source, destination) => {
                let (first, mut rest) = extensions(&self.fields.extensions, self.protocol);
                rest.extend_from_slice(&self.message);
                self.v6(source, destination, first, &rest)
            }
        }
    }

    pub(super) fn fragments(&self, mtu_bytes: usize) -> Vec<Vec<u8>> {
        let whole = self.bytes();
        if whole.len() <= mtu_bytes {
            return vec![whole];
        }
        match self.addresses {
            Addresses::V4(source, destination) => {
                let header_bytes = ipv4::HEADER_BYTES + self.fields.options.len();
                pieces(&self.message, mtu_bytes.saturating_sub(header_bytes))
                    .map(|(position, piece)| self.v4(source, destination, piece, position))
                    .collect()
            }
            Addresses::V6(source, destination) => self.fragments_v6(source, destination, mtu_bytes),
        }
    }

    fn v4(&self, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8], at: Position) -> Vec<u8> {
        let IpFields { ttl, tos, identification, dont_fragment, ref options, .. } = self.fields;
        let option_bytes = options.len();
        assert!(
            option_bytes <= 40 && option_bytes.is_multiple_of(4),
            "{option_bytes} bytes of IPv4 options"
        );
        let mut header = Ipv4Header::new(source, destination, self.protocol);
        header.set_ttl(ttl);
        header.set_dscp(tos >> 2);
        header.set_ecn(Ecn::of(tos));
        header.set_identification(identification);
        header.set_dont_fragment(dont_fragment);
        header.set_fragment(at.offset_bytes, at.more);
        let payload = [options, payload].concat();
        let mut packet = MemPacket::with_room(&payload, ipv4::HEADER_BYTES, 0);
        let bytes = written(ipv4::push_alone(&mut packet, header));
        // The options were written as if they were payload.
        bytes[0] += (option_bytes / 4) as u8;
        ipv4::fill_checksum(bytes).expect("a header that was just built");
        bytes.to_vec()
    }

    fn v6(&self, source: Ipv6Addr, destination: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
        let mut header = Ipv6Header::new(source, destination, next);
        header.set_hop_limit(self.fields.ttl);
        header.set_dscp(self.fields.tos >> 2);
        header.set_ecn(Ecn::of(self.fields.tos));
        let mut packet = MemPacket::with_room(payload, ipv6::HEADER_BYTES, 0);
        written(ipv6::push_alone(&mut packet, header)).to_vec()
    }

    /// Repeats headers up to the last one that routers read in each fragment, and fragments the
    /// rest (RFC 8200, section 4.5).
    fn fragments_v6(&self, source: Ipv6Addr, destination: Ipv6Addr, mtu: usize) -> Vec<Vec<u8>> {
        let all = &self.fields.extensions;
        let is_repeated =
            |(kind, _): &(u8, Vec<u8>)| matches!(*kind, protocol::HOP_BY_HOP | protocol::ROUTING);
        let repeated_count = all.iter().rposition(is_repeated).map_or(0, |index| index + 1);
        let (repeated, rest) = all.split_at(repeated_count);
        let (first, repeated) = extensions(repeated, protocol::FRAGMENT);
        let (next_header, mut fragmented) = extensions(rest, self.protocol);
        fragmented.extend_from_slice(&self.message);

        let identification = u32::from(self.fields.identification);
        let header_bytes = ipv6::HEADER_BYTES + repeated.len() + 8;
        let fragment = |(position, piece): (Position, &[u8])| {
            let Position { offset_bytes, more } = position;
            let header = FragmentHeader::new(next_header, offset_bytes, more, identification);
            let payload = [&repeated, header.as_bytes(), piece].concat();
            self.v6(source, destination, first, &payload)
        };
        pieces(&fragmented, mtu.saturating_sub(header_bytes)).map(fragment).collect()
    }
}

/// Cuts `bytes` into pieces of at most `bytes_max` bytes. Lengths are multiples of eight, except
/// the last.
fn pieces(bytes: &[u8], bytes_max: usize) -> impl Iterator<Item = (Position, &[u8])> {
    let step = bytes_max & !7;
    assert!(step > 0, "an MTU that leaves {bytes_max} bytes for a fragment");
    bytes.chunks(step).enumerate().map(move |(index, piece)| {
        let offset_bytes = index * step;
        (Position { offset_bytes, more: offset_bytes + piece.len() < bytes.len() }, piece)
    })
}

/// The kind of the first of these extension headers, and the bytes of all; `last` follows them.
fn extensions(headers: &[(u8, Vec<u8>)], last: u8) -> (u8, Vec<u8>) {
    let mut bytes = Vec::new();
    for (index, (kind, body)) in headers.iter().enumerate() {
        let next = headers.get(index + 1).map_or(last, |(kind, _)| *kind);
        let header_bytes = body.len() + 2;
        let (unit_bytes, units_min) =
            if *kind == protocol::AUTHENTICATION { (4, 2) } else { (8, 1) };
        let units = header_bytes / unit_bytes;
        let is_whole = header_bytes.is_multiple_of(unit_bytes) && header_bytes >= 8 && units < 256;
        assert!(is_whole, "an extension header of {header_bytes} bytes");
        bytes.extend([next, (units - units_min) as u8]);
        bytes.extend_from_slice(body);
    }
    (headers.first().map_or(last, |(kind, _)| *kind), bytes)
}
