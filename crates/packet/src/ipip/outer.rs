//! The outer header.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{
    checksum::Sum,
    ethernet::ETHERTYPE_IPV6,
    ip::protocol,
    ipip::{OUTER_TTL, encapsulate::Inner},
    ipv4, ipv6,
};

/// The flag that forbids fragments, in the first byte of flags and offset.
const DONT_FRAGMENT: u8 = 0x40;

/// Length in bytes of the EtherType, which is written with each header.
pub(super) const ETHERTYPE_BYTES: usize = 2;

/// EtherType and header.
pub(super) type HeaderV4 = [u8; ETHERTYPE_BYTES + ipv4::HEADER_BYTES];
pub(super) type HeaderV6 = [u8; ETHERTYPE_BYTES + ipv6::HEADER_BYTES];

/// What an outer IPv4 header takes from the flow of its packet and from its sender.
pub(super) struct Flow<'a> {
    pub source: SourceBits,
    pub identifications: &'a mut Identifications,
}

/// What makes the sources of outer IPv4 headers differ by the flow, made of its hash: to be kept with a flow that has
/// many packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SourceBits(u32);

impl SourceBits {
    /// Those of flows with this hash.
    #[inline(always)]
    pub const fn of(flow_hash: u32) -> Self {
        Self((spread(flow_hash) as u32).swap_bytes())
    }
}

/// The identifications of a sender's outer IPv4 headers that do not forbid fragments.
///
/// Senders that share a source address start at different numbers and count in steps of how many they
/// are: then no two of their packets have the same identification until it wraps (RFC 6864, section 5.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Identifications {
    next: u16,
    step: u16,
}

impl Identifications {
    /// Identifications that start at `first` and grow by `step`, modulo 65,536.
    pub const fn new(first: u16, step: u16) -> Self {
        Self { next: first, step }
    }

    /// Returns the next one.
    #[inline(always)]
    const fn take(&mut self) -> u16 {
        let taken = self.next;
        self.next = taken.wrapping_add(self.step);
        taken
    }
}

/// An outer IPv4 header, as far as it is the same for all packets of a tunnel: words in little-endian
/// order, as one's complement sums may be taken in any byte order (RFC 1071, section 2).
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterV4 {
    /// The sum over what is the same, folded. It has the flag that forbids fragments and the protocol of
    /// an inner IPv4 packet, as nearly all packets do.
    sum: u32,
    /// The bits of the source that come from a flow's hash: they are 0 in `addresses`.
    host_mask: u32,
    /// Source and destination.
    addresses: u64,
}

impl OuterV4 {
    #[inline]
    pub(super) fn new(source: Ipv4Addr, destination: Ipv4Addr, host_bits: u8) -> Self {
        let sum = Sum::default()
            .bytes(&[DONT_FRAGMENT, 0, OUTER_TTL, protocol::IPV4])
            .bytes(&source.octets())
            .bytes(&destination.octets());
        let ends = [source, destination].map(|end| u64::from(u32::from_le_bytes(end.octets())));
        Self {
            sum: u32::from((!sum.checksum()).swap_bytes()),
            host_mask: (host_mask(host_bits) as u32).swap_bytes(),
            addresses: ends[0] | ends[1] << 32,
        }
    }

    pub(super) const fn is_spread(&self) -> bool {
        self.host_mask != 0
    }

    pub(super) fn source(&self, flow_hash: u32) -> Ipv4Addr {
        Ipv4Addr::from(
            (self.addresses as u32 | self.host_of(SourceBits::of(flow_hash))).to_le_bytes(),
        )
    }

    pub(super) fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from(((self.addresses >> 32) as u32).to_le_bytes())
    }

    /// The bits of the source that come from a flow's hash.
    #[inline(always)]
    const fn host_of(&self, source: SourceBits) -> u32 {
        source.0 & self.host_mask
    }

    /// The EtherType and the header of a packet, which has at most 65,515 bytes; of no flow where none is
    /// given.
    #[inline(always)]
    pub(super) fn header(&self, inner: &Inner, flow: Option<Flow<'_>>) -> HeaderV4 {
        let total = (inner.total_bytes + ipv4::HEADER_BYTES) as u16;
        let total = u32::from(total.swap_bytes());
        let protocol = u32::from(inner.protocol);
        let host = flow.as_ref().map_or(0, |flow| self.host_of(flow.source));
        let mut sum = self.sum + (inner.start >> 16) + total;
        sum += (protocol << 8) - (u32::from(protocol::IPV4) << 8);
        let mut length = total;
        let mut ttl = u32::from_le_bytes([DONT_FRAGMENT, 0, OUTER_TTL, 0]) | protocol << 24;
        if !inner.dont_fragment {
            let taken = flow.map_or(inner.identification, |flow| flow.identifications.take());
            let identification = u32::from(taken.swap_bytes());
            sum += identification + u32::from(!u16::from(DONT_FRAGMENT));
            length |= identification << 16;
            ttl &= !u32::from(DONT_FRAGMENT);
        }
        // The carry comes in again at the other end.
        let (sum, carry) = sum.overflowing_add(host);
        let sum = sum + u32::from(carry);
        // Both halves added twice, so that the upper sum has the carry of the lower.
        let sum = sum.wrapping_add(sum.rotate_left(16)) >> 16;

        let mut bytes = [0; _];
        bytes[..4].copy_from_slice(&inner.start.to_le_bytes());
        let middle = u64::from(length) | u64::from(ttl) << 32;
        bytes[4..12].copy_from_slice(&middle.to_le_bytes());
        bytes[12..14].copy_from_slice(&(!sum as u16).to_le_bytes());
        bytes[14..].copy_from_slice(&(self.addresses | u64::from(host)).to_le_bytes());
        bytes
    }
}

/// An outer IPv6 header, as far as it is the same for all packets of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterV6 {
    /// Source and destination.
    addresses: [Ipv6Addr; 2],
    /// How many bits of the source come from a flow's hash, the lowest ones: they are 0 in `addresses`.
    host_bits: u8,
}

impl OuterV6 {
    #[inline]
    pub(super) fn new(source: Ipv6Addr, destination: Ipv6Addr, host_bits: u8) -> Self {
        Self { addresses: [source, destination], host_bits }
    }

    pub(super) const fn is_spread(&self) -> bool {
        self.host_bits != 0
    }

    pub(super) fn source(&self, flow_hash: u32) -> Ipv6Addr {
        let host = spread(flow_hash) & host_mask(self.host_bits);
        Ipv6Addr::from_bits(self.addresses[0].to_bits() | u128::from(host))
    }

    pub(super) const fn destination(&self) -> Ipv6Addr {
        self.addresses[1]
    }

    /// The EtherType and the header of a packet, which has at most 65,535 bytes, and of its flow this hash; of no flow
    /// where none is given.
    #[inline(always)]
    pub(super) fn header(&self, inner: &Inner, flow_hash: Option<u32>) -> HeaderV6 {
        let mut bytes = [0; _];
        let (ethertype, header) = bytes.split_at_mut(ETHERTYPE_BYTES);
        ethertype.copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
        let traffic_class = (inner.start >> 24) as u8;
        header[..2].copy_from_slice(&[0x60 | traffic_class >> 4, traffic_class << 4]);
        header[4..6].copy_from_slice(&(inner.total_bytes as u16).to_be_bytes());
        header[6..8].copy_from_slice(&[inner.protocol, OUTER_TTL]);
        let [source, destination] = self.addresses.map(|it| it.octets());
        header[8..24].copy_from_slice(&source);
        header[24..].copy_from_slice(&destination);
        if let Some(flow_hash) = flow_hash
            && self.is_spread()
        {
            header[8..24].copy_from_slice(&self.source(flow_hash).octets());
        }
        bytes
    }
}

/// The bits of a source that come from a flow's hash: the lowest ones, up to 64.
const fn host_mask(host_bits: u8) -> u64 {
    match u64::MAX.checked_shl(host_bits as u32) {
        Some(prefix) => !prefix,
        None => u64::MAX,
    }
}

/// 64 bits that differ by the flow. The lower half depends on all bits of the hash.
#[inline(always)]
const fn spread(flow_hash: u32) -> u64 {
    // By an odd number, so that no two hashes share a product. Its upper half is the better one.
    (flow_hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}
