//! The layout that classification leaves in a packet's metadata.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    Header,
    classify::{
        Depth, Kind, Summary,
        fast::{self, HeadersV4, HeadersV6},
        headers,
    },
    ethernet::Station,
    flow_key::{FlowKey, FlowKeyV4, FlowKeyV6},
    ip::Fragment,
    seed::Seed,
};

const KIND: u8 = 0b111;
const KIND_OTHER: u8 = 0;
const KIND_ARP: u8 = 1;
const KIND_IPV4: u8 = 2;
const KIND_IPV6: u8 = 3;
const KIND_MALFORMED: u8 = 4;
/// TCP or UDP that the fast path of classification found, in IPv4 or IPv6, without VLAN tags,
/// options, extension headers or fragments.
const KIND_FAST_V4: u8 = 5;
const KIND_FAST_V6: u8 = 6;
/// Frames for another station.
const KIND_FOREIGN: u8 = 7;
const TUNNEL: u8 = 1 << 3;
const ICMP_ERROR: u8 = 1 << 4;
const FIRST_FRAGMENT: u8 = 1 << 5;
const LATER_FRAGMENT: u8 = 1 << 6;
/// The keyed header is quoted, and the quote ends before the transport header.
const CUT: u8 = 1 << 7;
/// In a malformed frame, which has no other flags, the bits above the kind name the header.
const HEADER_SHIFT: u32 = KIND.count_ones();
/// The bits that are kept of a shard's hash.
const SHARD: u32 = 0xffff_0000;

/// The result of classification in the eight bytes of a packet's metadata: the hash of its flow,
/// its shard, the offset of the keyed header (see [`crate::classify`]), and the kind of packet.
///
/// The flow key is read from the frame when it is needed, so classify a packet again after changing
/// it. With another frame, or a layout made from arbitrary bytes, the answers mean nothing; but no
/// method ever panics.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Layout {
    /// A single word, so that it is built and written as one. From the lowest bit: 8 flags, which
    /// are read most often and can be addressed as a byte register; 8 bits for the offset of the
    /// keyed header; 16 bits for the shard, the upper half of its hash, which is enough to share
    /// flows evenly among 127 workers; 32 bits for the hash.
    bits: u64,
}

impl Layout {
    /// The layout of a frame. `frame` is its first segment, `len_bytes` its length over all
    /// segments, and `depth` selects the keyed header.
    // Inlined always, so that the depth is a constant.
    #[inline(always)]
    pub fn of(frame: &[u8], len_bytes: usize, depth: Depth, seed: &Seed) -> Self {
        match HeadersV4::find(frame, len_bytes) {
            Some(headers) => {
                let key = headers.key();
                Self::plain(KIND_FAST_V4).with_hashes(seed.hash_v4(&key), seed.shard_v4(&key))
            }
            None => match depth {
                Depth::Outermost => Self::of_any::<false>(frame, len_bytes, seed),
                Depth::Innermost => Self::of_any::<true>(frame, len_bytes, seed),
            },
        }
    }

    /// [`of`](Self::of) for any frame. Not inlined, to keep the callers of `of` small.
    #[inline(never)]
    fn of_any<const INNERMOST: bool>(frame: &[u8], len_bytes: usize, seed: &Seed) -> Self {
        let layout = Self::any_at::<INNERMOST>(frame, len_bytes, &Station::ANY);
        match layout.key(frame) {
            Some(key) => layout.with_hashes(seed.hash(&key), seed.shard(&key)),
            None => layout,
        }
    }

    /// The layout of a frame at a station, without hashes: [`hash`](Self::hash) and
    /// [`shard`](Self::shard) are 0. Leaving hashes out saves a third of classification, which pays
    /// off if few packets need them; a [`Seed`] computes them from the [key](Self::key).
    ///
    /// A frame that isn't [for the station](Station::takes) is [foreign](Self::is_foreign), and
    /// isn't classified any further.
    #[inline(always)]
    pub fn at(frame: &[u8], len_bytes: usize, depth: Depth, station: &Station) -> Self {
        match Self::fast_at(frame, len_bytes, station) {
            Some((layout, _)) => layout,
            None => match depth {
                Depth::Outermost => Self::any_at::<false>(frame, len_bytes, station),
                Depth::Innermost => Self::any_at::<true>(frame, len_bytes, station),
            },
        }
    }

    /// [`at`](Self::at) and the key, for a frame that the [fast path](Self::is_fast_v4) takes.
    /// `None` for any other frame, or if the first segment has fewer than the 54 bytes of all
    /// headers of TCP. No depth is needed, because a tunnel packet isn't taken.
    #[inline(always)]
    pub fn fast_at(frame: &[u8], len_bytes: usize, station: &Station) -> Option<(Self, FlowKeyV4)> {
        // A single check of the length covers both protocols.
        let front = frame.first_chunk::<{ fast::FRONT_BYTES_V4 }>()?;
        let headers = HeadersV4::find_for(front, len_bytes, station)?;
        Some((Self::plain(KIND_FAST_V4), headers.key()))
    }

    /// [`at`](Self::at) for any frame. Not inlined, to keep the callers of `at` small.
    #[inline(never)]
    fn any_at<const INNERMOST: bool>(frame: &[u8], len_bytes: usize, station: &Station) -> Self {
        if !station.takes(frame) {
            return Self::new(0, KIND_FOREIGN);
        }
        let is_short = frame.len() < fast::FRONT_BYTES_V4;
        if is_short && HeadersV4::find_for(frame, len_bytes, station).is_some() {
            return Self::plain(KIND_FAST_V4);
        }
        match HeadersV6::find(frame, len_bytes) {
            Some(_) => Self::plain(KIND_FAST_V6),
            None => Self::walk::<INNERMOST>(frame, len_bytes),
        }
    }

    #[inline(always)]
    const fn plain(flags: u8) -> Self {
        Self::new(fast::L3_OFFSET as u8, flags)
    }

    #[inline(always)]
    const fn new(l3_offset: u8, flags: u8) -> Self {
        Self { bits: (l3_offset as u64) << 8 | flags as u64 }
    }

    #[inline(always)]
    const fn with_hashes(self, hash: u32, shard: u32) -> Self {
        let shard = (shard & SHARD) as u64;
        Self { bits: self.bits | shard | (hash as u64) << 32 }
    }

    #[inline(always)]
    const fn flags(&self) -> u8 {
        self.bits as u8
    }

    /// Walks header by header. Not inlined, so that the code before this call saves no registers.
    #[inline(never)]
    fn walk<const INNERMOST: bool>(frame: &[u8], len_bytes: usize) -> Self {
        let summary = Summary::walk::<INNERMOST>(frame, len_bytes);
        let fragment = match summary.fragment {
            Fragment::None => 0,
            Fragment::First => FIRST_FRAGMENT,
            Fragment::Later => LATER_FRAGMENT,
        };
        let tunnel = if summary.is_tunnel { TUNNEL } else { 0 };
        let icmp_error = if summary.is_icmp_error { ICMP_ERROR } else { 0 };
        let is_cut =
            summary.is_icmp_error && summary.l4_offset == 0 && summary.fragment != Fragment::Later;
        let cut = if is_cut { CUT } else { 0 };
        Self::new(
            summary.l3_offset as u8,
            kind_bits(summary.kind) | fragment | tunnel | icmp_error | cut,
        )
    }

    /// The layout in these eight bytes of [`PacketBuf::metadata`](crate::PacketBuf::metadata).
    #[inline]
    pub const fn from_metadata(metadata: [u8; 8]) -> Self {
        zerocopy::transmute!(metadata)
    }

    /// The layout's eight bytes, for [`PacketBuf::set_metadata`](crate::PacketBuf::set_metadata).
    #[inline]
    pub const fn to_metadata(self) -> [u8; 8] {
        zerocopy::transmute!(self)
    }

    /// The symmetric hash of the flow's five fields: [`Seed::hash`]. 0 if the frame is not IP, or
    /// if the layout was made [without hashes](Self::at).
    #[inline]
    pub const fn hash(&self) -> u32 {
        (self.bits >> 32) as u32
    }

    /// Whether the frame is for another station than the one given to [`at`](Self::at). Its
    /// [kind](Self::kind) is [`Kind::Other`].
    #[inline]
    pub const fn is_foreign(&self) -> bool {
        self.flags() == KIND_FOREIGN
    }

    /// The kind of frame.
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self.flags() & KIND {
            KIND_ARP => Kind::Arp,
            KIND_IPV4 | KIND_FAST_V4 => Kind::Ipv4,
            KIND_IPV6 | KIND_FAST_V6 => Kind::Ipv6,
            KIND_MALFORMED => Kind::Malformed(Header::from_index(self.flags() >> HEADER_SHIFT)),
            _ => Kind::Other,
        }
    }

    /// Whether there is a keyed header, so that the packet belongs to a flow.
    #[inline]
    pub const fn is_ip(&self) -> bool {
        matches!(self.flags() & KIND, KIND_IPV4 | KIND_IPV6 | KIND_FAST_V4 | KIND_FAST_V6)
    }

    /// Whether the packet is plain IP: not tunnelled, not an ICMP error, not a fragment.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        matches!(self.flags(), KIND_IPV4 | KIND_IPV6 | KIND_FAST_V4 | KIND_FAST_V6)
    }

    #[inline]
    const fn has(&self, flag: u8) -> bool {
        self.is_ip() && self.flags() & flag != 0
    }

    /// Whether the keyed header is inside an IP-in-IP tunnel, which only [`Depth::Innermost`] looks
    /// into. The outer one begins at [`ethernet::l3_offset`](crate::ethernet::l3_offset).
    #[inline]
    pub const fn is_tunnel(&self) -> bool {
        self.has(TUNNEL)
    }

    /// Whether the keyed header is quoted by an ICMP or ICMPv6 error. Its source sent the packet
    /// that caused the error, and receives the error.
    ///
    /// Anybody can send an error and quote what they like, so a function that lets errors pass
    /// because their flow is known must check more of them:
    ///
    /// - The error came from the side to which the quoted packet went: its flow is that of the
    ///   [key](Self::key) in the opposite direction.
    /// - Its own destination ([`OwnHeader::of`](crate::own_header::OwnHeader::of)) is the quoted
    ///   packet's source.
    /// - It isn't an ICMP redirect or a source quench, which are errors as well (RFC 1122, section
    ///   3.2.2): a redirect would let strangers choose the next hop of hosts. See
    ///   [`OwnHeader::is_hop_by_hop`](crate::own_header::OwnHeader::is_hop_by_hop).
    ///
    /// And it must not keep the flow alive (RFC 5508, section 4.3): find the flow by a table's
    /// `peek`.
    #[inline]
    pub const fn is_icmp_error(&self) -> bool {
        self.has(ICMP_ERROR)
    }

    /// The part of a datagram that follows the keyed header.
    #[inline]
    pub const fn fragment(&self) -> Fragment {
        if self.has(LATER_FRAGMENT) {
            Fragment::Later
        } else if self.has(FIRST_FRAGMENT) {
            Fragment::First
        } else {
            Fragment::None
        }
    }

    /// Offset of the keyed header in bytes; 0 if there is none.
    #[inline]
    pub const fn l3_offset(&self) -> usize {
        (self.bits >> 8) as u8 as usize
    }

    /// Offset of the keyed header's payload in bytes. `frame` is the first segment of the packet
    /// that was classified. `None` for later fragments, for quotes that end before, and for packets
    /// without a keyed header.
    #[inline]
    pub fn l4_offset(&self, frame: &[u8]) -> Option<usize> {
        if self.flags() & (LATER_FRAGMENT | CUT) != 0 {
            return None;
        }
        match self.flags() & KIND {
            KIND_FAST_V4 => Some(fast::L4_OFFSET_V4),
            KIND_FAST_V6 => Some(fast::L4_OFFSET_V6),
            KIND_IPV4 => headers::payload_v4(frame, self.l3_offset()),
            KIND_IPV6 => headers::payload_v6(frame, self.l3_offset()),
            _ => None,
        }
    }

    /// The key of the packet's flow, oriented as described at [`FlowKey`]. `frame` is the first
    /// segment of the packet that was classified. `None` if the packet is not IP.
    #[inline]
    pub fn key(&self, frame: &[u8]) -> Option<FlowKey> {
        if let Some(key) = self.fast_key_v4(frame) {
            return Some(FlowKey::V4(key));
        }
        self.any_key(frame)
    }

    /// The key of a packet for which [`is_fast_v4`](Self::is_fast_v4) is true, read from `frame`;
    /// `None` for any other. [`key`](Self::key) returns the same.
    #[inline(always)]
    pub fn fast_key_v4(&self, frame: &[u8]) -> Option<FlowKeyV4> {
        if self.flags() != KIND_FAST_V4 {
            return None;
        }
        HeadersV4::ref_from_prefix(frame).ok().map(|(headers, _)| headers.key())
    }

    /// [`fast_key_v4`](Self::fast_key_v4) for IPv6: the key of a packet for which
    /// [`is_fast_v6`](Self::is_fast_v6) is true.
    #[inline(always)]
    pub fn fast_key_v6(&self, frame: &[u8]) -> Option<FlowKeyV6> {
        if !self.is_fast_v6() {
            return None;
        }
        HeadersV6::ref_from_prefix(frame).ok().map(|(headers, _)| headers.key())
    }

    /// Whether the packet is a whole TCP or UDP packet in IPv6, without extension headers, tunnel
    /// or VLAN tag. All of its headers are at fixed offsets.
    #[inline(always)]
    pub const fn is_fast_v6(&self) -> bool {
        self.flags() == KIND_FAST_V6
    }

    /// Whether the fast path takes the packet: whole TCP or UDP in IPv4, without options,
    /// fragmentation, tunnel or VLAN tag. Nearly all IPv4 packets are like that, and all of their
    /// headers are at fixed offsets.
    #[inline(always)]
    pub const fn is_fast_v4(&self) -> bool {
        self.flags() == KIND_FAST_V4
    }

    #[inline(never)]
    fn any_key(&self, frame: &[u8]) -> Option<FlowKey> {
        let l3_offset = self.l3_offset();
        if self.flags() & (KIND | LATER_FRAGMENT | CUT) == KIND_IPV4
            && let Some(key) = fast::key_v4(frame, l3_offset)
        {
            return Some(FlowKey::V4(key));
        }
        let l4_offset = self.l4_offset(frame).unwrap_or(0);
        match self.flags() & KIND {
            KIND_IPV4 | KIND_FAST_V4 => {
                headers::key_v4(frame, l3_offset, l4_offset).map(FlowKey::V4)
            }
            KIND_IPV6 | KIND_FAST_V6 => {
                let is_later = self.flags() & LATER_FRAGMENT != 0;
                headers::key_v6(frame, l3_offset, l4_offset, is_later).map(FlowKey::V6)
            }
            _ => None,
        }
    }

    /// The upper half of the symmetric hash of the flow's two addresses, [`Seed::shard`], in the
    /// upper half of the result. 0 if the frame is not IP, or if the layout was made [without
    /// hashes](Self::at).
    #[inline]
    pub const fn shard(&self) -> u32 {
        self.bits as u32 & SHARD
    }
}

#[inline]
const fn kind_bits(kind: Kind) -> u8 {
    match kind {
        Kind::Other => KIND_OTHER,
        Kind::Arp => KIND_ARP,
        Kind::Ipv4 => KIND_IPV4,
        Kind::Ipv6 => KIND_IPV6,
        Kind::Malformed(header) => KIND_MALFORMED | (header as u8) << HEADER_SHIFT,
    }
}
