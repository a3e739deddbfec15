//! What classification leaves in a packet's metadata.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    Header,
    classify::{
        Kind, Summary,
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
/// IPv4 and IPv6, as the fast path of classification found them: without VLAN tags, options, extension
/// headers or fragments, and TCP or UDP.
const KIND_FAST_V4: u8 = 5;
const KIND_FAST_V6: u8 = 6;
/// Another station's.
const KIND_FOREIGN: u8 = 7;
const TUNNEL: u8 = 1 << 3;
const ICMP_ERROR: u8 = 1 << 4;
const FIRST_FRAGMENT: u8 = 1 << 5;
const LATER_FRAGMENT: u8 = 1 << 6;
/// The keyed header is quoted, and the quote ends before the transport header.
const CUT: u8 = 1 << 7;
/// In a malformed frame, which has no other flags, the bits above the kind name the header.
const HEADER_SHIFT: u32 = KIND.count_ones();
/// The bits of a hash that are kept of a shard's.
const SHARD: u32 = 0xffff_0000;

/// What classification found, in the eight bytes of a packet's metadata: the hash of its flow, its
/// shard, where the keyed header is (see [`crate::classify`]), and what it is.
///
/// The flow key is read again from the frame's bytes where it is needed. That frame should
/// be as it was when it was classified: a packet that was changed must be classified again. With
/// another frame, or a layout made of any eight bytes, the answers mean nothing; but no method ever
/// panics.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Layout {
    /// From the lowest bits on: 8 flags, which are looked at most and are a byte of a register there; 8
    /// of the offset of the keyed header; 16 of the shard, the upper half of its hash: enough to share
    /// flows evenly among 127 workers; 32 of the hash. One word, which is made and written as one.
    bits: u64,
}

impl Layout {
    /// The layout of a frame. `frame` is its first segment, and `len_bytes` its length over all
    /// segments.
    #[inline]
    pub fn of(frame: &[u8], len_bytes: usize, seed: &Seed) -> Self {
        match HeadersV4::find(frame, len_bytes) {
            Some(headers) => {
                let key = headers.key();
                Self::plain(KIND_FAST_V4).with_hashes(seed.hash_v4(&key), seed.shard_v4(&key))
            }
            None => Self::of_any(frame, len_bytes, seed),
        }
    }

    /// [`of`](Self::of) for any frame. It is not inlined, so that the callers of `of` stay small.
    #[inline(never)]
    fn of_any(frame: &[u8], len_bytes: usize, seed: &Seed) -> Self {
        let layout = Self::any_at(frame, len_bytes, &Station::ANY);
        match layout.key(frame) {
            Some(key) => layout.with_hashes(seed.hash(&key), seed.shard(&key)),
            None => layout,
        }
    }

    /// The layout of a frame at a station, without hashes: [`hash`](Self::hash) and
    /// [`shard`](Self::shard) are 0. Where few packets need theirs, that spares the others a third of
    /// classification; a [`Seed`] makes them of the [key](Self::key).
    ///
    /// A frame that isn't [for the station](Station::takes) is [foreign](Self::is_foreign) there, and
    /// nothing else is found out about it.
    #[inline(always)]
    pub fn at(frame: &[u8], len_bytes: usize, station: &Station) -> Self {
        match Self::fast_at(frame, len_bytes, station) {
            Some((layout, _)) => layout,
            None => Self::any_at(frame, len_bytes, station),
        }
    }

    /// [`at`](Self::at) and the key, for a frame that the [fast path](Self::is_fast_v4) takes; `None` for any
    /// other, and where the first segment has fewer than the 54 bytes of all headers of TCP.
    #[inline(always)]
    pub fn fast_at(frame: &[u8], len_bytes: usize, station: &Station) -> Option<(Self, FlowKeyV4)> {
        // With one look at the length, of whatever protocol it is.
        let front = frame.first_chunk::<{ fast::FRONT_BYTES_V4 }>()?;
        let headers = HeadersV4::find_for(front, len_bytes, station)?;
        Some((Self::plain(KIND_FAST_V4), headers.key()))
    }

    /// [`at`](Self::at) for any frame. It is not inlined, so that the callers of `at` stay small.
    #[inline(never)]
    fn any_at(frame: &[u8], len_bytes: usize, station: &Station) -> Self {
        if !station.takes(frame) {
            return Self::new(0, KIND_FOREIGN);
        }
        let is_short = frame.len() < fast::FRONT_BYTES_V4;
        if is_short && HeadersV4::find_for(frame, len_bytes, station).is_some() {
            return Self::plain(KIND_FAST_V4);
        }
        match HeadersV6::find(frame, len_bytes) {
            Some(_) => Self::plain(KIND_FAST_V6),
            None => Self::walk(frame, len_bytes),
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

    /// Header by header. It is not inlined, so that what comes ahead of it saves no registers.
    #[inline(never)]
    fn walk(frame: &[u8], len_bytes: usize) -> Self {
        let summary = Summary::walk(frame, len_bytes);
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

    /// The layout that these eight bytes hold: [`PacketBuf::metadata`](crate::PacketBuf::metadata).
    #[inline]
    pub const fn from_metadata(metadata: [u8; 8]) -> Self {
        zerocopy::transmute!(metadata)
    }

    /// The layout's eight bytes, for [`PacketBuf::set_metadata`](crate::PacketBuf::set_metadata).
    #[inline]
    pub const fn to_metadata(self) -> [u8; 8] {
        zerocopy::transmute!(self)
    }

    /// The symmetric hash of the flow's five fields: [`Seed::hash`]; 0 if the frame is not IP, and where
    /// the layout was made [without hashes](Self::at).
    #[inline]
    pub const fn hash(&self) -> u32 {
        (self.bits >> 32) as u32
    }

    /// Whether the frame is for another station than the one that it was classified [at](Self::at).
    /// Its [kind](Self::kind) is [`Kind::Other`].
    #[inline]
    pub const fn is_foreign(&self) -> bool {
        self.flags() == KIND_FOREIGN
    }

    /// What the frame carries.
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

    /// Whether it is plain IP: no tunnel, no ICMP error, no fragment.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        matches!(self.flags(), KIND_IPV4 | KIND_IPV6 | KIND_FAST_V4 | KIND_FAST_V6)
    }

    #[inline]
    const fn has(&self, flag: u8) -> bool {
        self.is_ip() && self.flags() & flag != 0
    }

    /// Whether the keyed header is inside an IP-in-IP tunnel. The outer one begins at
    /// [`ethernet::l3_offset`](crate::ethernet::l3_offset).
    #[inline]
    pub const fn is_tunnel(&self) -> bool {
        self.has(TUNNEL)
    }

    /// Whether the keyed header is quoted by an ICMP or ICMPv6 error: its source sent the packet that
    /// the error is about, and receives the error.
    #[inline]
    pub const fn is_icmp_error(&self) -> bool {
        self.has(ICMP_ERROR)
    }

    /// Which part of a datagram the keyed header begins.
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

    /// Where the keyed header begins, in bytes; 0 if there is none.
    #[inline]
    pub const fn l3_offset(&self) -> usize {
        (self.bits >> 8) as u8 as usize
    }

    /// Where what the keyed header carries begins, in bytes, read from `frame`: the first segment of
    /// the packet that the layout is of. `None` for later fragments, for quotes that end before, and
    /// where there is no keyed header.
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

    /// The key of the packet's flow, oriented as [`FlowKey`] says, read from `frame`: the first
    /// segment of the packet that the layout is of. `None` if it is not IP.
    #[inline]
    pub fn key(&self, frame: &[u8]) -> Option<FlowKey> {
        if let Some(key) = self.fast_key_v4(frame) {
            return Some(FlowKey::V4(key));
        }
        self.any_key(frame)
    }

    /// The key of a packet of which [`is_fast_v4`](Self::is_fast_v4) holds, read from `frame`; `None` of
    /// any other. [`key`](Self::key) returns the same.
    #[inline(always)]
    pub fn fast_key_v4(&self, frame: &[u8]) -> Option<FlowKeyV4> {
        if self.flags() != KIND_FAST_V4 {
            return None;
        }
        HeadersV4::ref_from_prefix(frame).ok().map(|(headers, _)| headers.key())
    }

    /// [`fast_key_v4`](Self::fast_key_v4) for IPv6: the key of a packet of which
    /// [`is_fast_v6`](Self::is_fast_v6) holds.
    #[inline(always)]
    pub fn fast_key_v6(&self, frame: &[u8]) -> Option<FlowKeyV6> {
        if !self.is_fast_v6() {
            return None;
        }
        HeadersV6::ref_from_prefix(frame).ok().map(|(headers, _)| headers.key())
    }

    /// Whether the packet is TCP or UDP, whole, in IPv6 without extension headers, in no tunnel, in a frame
    /// without VLAN tag: all of its headers are at fixed offsets.
    #[inline(always)]
    pub const fn is_fast_v6(&self) -> bool {
        self.flags() == KIND_FAST_V6
    }

    /// Whether the fast path takes the packet: it is TCP or UDP, whole, in IPv4 without options, in no
    /// tunnel and no fragment, in a frame without VLAN tag. So are nearly all packets of IPv4, and all of
    /// their headers are at fixed offsets.
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
    /// upper half of the result; 0 if the frame is not IP, and where the layout was made
    /// [without hashes](Self::at).
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
