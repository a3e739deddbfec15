//! The outer header.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{
    PacketBuf,
    checksum::Sum,
    classify::Layout,
    ethernet::ETHERTYPE_IPV6,
    ip::protocol,
    ipip::{OUTER_TTL, encapsulate::Inner, fast::wrap_checked},
    ipv4, ipv6,
};

/// The flag that forbids fragments, in the first byte of flags and offset.
const DONT_FRAGMENT: u8 = 0x40;

/// Length in bytes of the EtherType, which is written with each header.
pub(super) const ETHERTYPE_BYTES: usize = 2;

/// EtherType and header.
pub(super) type HeaderV4 = [u8; ETHERTYPE_BYTES + ipv4::HEADER_BYTES];
pub(super) type HeaderV6 = [u8; ETHERTYPE_BYTES + ipv6::HEADER_BYTES];

/// The identifications of a sender's outer IPv4 headers that do not forbid fragments.
///
/// Senders that share a source address start at different numbers and count in steps of the number
/// of senders: no two of their packets have the same identification until it wraps (RFC 6864,
/// section 5.3).
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

    /// Returns the next identification.
    #[inline(always)]
    const fn take(&mut self) -> u16 {
        let taken = self.next;
        self.next = taken.wrapping_add(self.step);
        taken
    }
}

/// The part of an outer IPv4 header that is the same for all packets of a tunnel. Words are
/// little-endian, as one's complement sums may be taken in any byte order (RFC 1071, section 2).
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterV4 {
    /// The folded sum over the constant part, with the don't-fragment flag and the protocol of an
    /// inner IPv4 packet, as nearly all packets have them.
    sum: u32,
    /// The bits of the source that come from a flow's hash. They are 0 in `addresses`.
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
        Ipv4Addr::from((self.addresses as u32 | self.host(flow_hash)).to_le_bytes())
    }

    pub(super) fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from(((self.addresses >> 32) as u32).to_le_bytes())
    }

    /// The bits of the source that come from a flow's hash.
    #[inline(always)]
    const fn host(&self, flow_hash: u32) -> u32 {
        (spread(flow_hash) as u32).swap_bytes() & self.host_mask
    }

    /// The header for packets of the flow with this hash, or for no particular flow if `None`.
    #[inline(always)]
    pub(super) fn flow_header(&self, flow_hash: Option<u32>) -> FlowHeader {
        let host = flow_hash.map_or(0, |hash| self.host(hash));
        let sum = self.sum + (host & 0xffff) + (host >> 16);
        FlowHeader { sum, addresses: (self.addresses | u64::from(host)).to_le_bytes() }
    }
}

/// The part of an outer IPv4 header that is the same for all packets of a flow: 12 bytes to store
/// with a flow that has many packets. [`Tunnel::flow_header`](super::Tunnel::flow_header) makes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlowHeader {
    /// The sum of [`OuterV4`] including the whole source; below 2^18.
    sum: u32,
    /// Source and destination in header order.
    addresses: [u8; 8],
}

impl FlowHeader {
    /// A placeholder that belongs to no flow and is never written to a packet.
    pub const UNSPECIFIED: Self = Self { sum: 0, addresses: [0; 8] };

    /// The EtherType and header of a packet of at most 65,515 bytes. If fragments are allowed, the
    /// identification is the sender's next one, or the one in [`Inner`] without a sender.
    #[inline(always)]
    pub(super) fn header(
        &self,
        inner: &Inner,
        identifications: Option<&mut Identifications>,
    ) -> HeaderV4 {
        let total = (inner.total_bytes + ipv4::HEADER_BYTES) as u16;
        let total = u32::from(total.swap_bytes());
        let protocol = u32::from(inner.protocol);
        let mut sum = self.sum + (inner.start >> 16) + total;
        sum += (protocol << 8) - (u32::from(protocol::IPV4) << 8);
        let mut length = total;
        let mut ttl = u32::from_le_bytes([DONT_FRAGMENT, 0, OUTER_TTL, 0]) | protocol << 24;
        if !inner.dont_fragment {
            let taken = identifications.map_or(inner.identification, Identifications::take);
            let identification = u32::from(taken.swap_bytes());
            sum += identification + u32::from(!u16::from(DONT_FRAGMENT));
            length |= identification << 16;
            ttl &= !u32::from(DONT_FRAGMENT);
        }
        // Adding the sum rotated by half makes the upper half include the carry of the lower.
        let sum = sum.wrapping_add(sum.rotate_left(16)) >> 16;

        let mut bytes = [0; _];
        bytes[..4].copy_from_slice(&inner.start.to_le_bytes());
        let middle = u64::from(length) | u64::from(ttl) << 32;
        bytes[4..12].copy_from_slice(&middle.to_le_bytes());
        bytes[12..14].copy_from_slice(&(!sum as u16).to_le_bytes());
        bytes[14..].copy_from_slice(&self.addresses);
        bytes
    }

    /// Wraps the IP packet of a frame as [`Tunnel::wrap_flow`](super::Tunnel::wrap_flow) does for
    /// the flow. `layout` must report an IPv4 packet for the [fast path](Layout::is_fast_v4): its
    /// headers are not checked again.
    ///
    /// Returns whether the packet was wrapped. If not, it is unchanged, and `wrap_flow` wraps it or
    /// returns the reason: the fast path does not take it, its TTL has expired, there is no
    /// headroom, or it would be longer than `mtu_bytes`, outer header included.
    #[inline(always)]
    pub fn wrap_fast<P: PacketBuf>(
        &self,
        packet: &mut P,
        layout: Layout,
        mtu_bytes: u16,
        addresses: &[u8; 12],
        identifications: &mut Identifications,
    ) -> bool {
        let (addresses, identifications) = (Some(addresses), Some(identifications));
        layout.is_fast_v4()
            && wrap_checked(packet, self, addresses, identifications, mtu_bytes).is_some()
    }
}

/// The part of an outer IPv6 header that is the same for all packets of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterV6 {
    /// Source and destination.
    addresses: [Ipv6Addr; 2],
    /// The number of bits of the source that come from a flow's hash, the lowest ones. They are 0
    /// in `addresses`.
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

    /// The EtherType and header of a packet of at most 65,535 bytes, for the flow with this hash,
    /// or for no particular flow if `None`.
    #[inline(always)]
    pub(super) fn header(&self, inner: &Inner, flow_hash: Option<u32>) -> HeaderV6 {
        let mut bytes = [0; _];
        let (ethertype, header) = bytes.split_at_mut(ETHERTYPE_BYTES);
        ethertype.copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
        let traffic_class = (inner.start >> 24) as u8;
        header[..2].copy_from_slice(&[0x60 | traffic_class >> 4, traffic_class << 4]);
        header[4..6].copy_from_slice(&(inner.total_bytes as u16).to_be_bytes());
        header[6..8].copy_from_slice(&[inner.protocol, OUTER_TTL]);
        let [source, destination] = self.addresses.map(|address| address.octets());
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

/// 64 bits that differ by flow. The lower half depends on all bits of the hash.
#[inline(always)]
const fn spread(flow_hash: u32) -> u64 {
    // The multiplier is odd, so no two hashes share a product. The upper half is better mixed.
    (flow_hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}
