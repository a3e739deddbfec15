//! The fast path into the tunnel, for packets with all headers at fixed offsets.

use std::hint;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::{
    PacketBuf, ethernet,
    ipip::{
        encapsulate::Inner,
        outer::{ETHERTYPE_BYTES, FlowHeader, Identifications, OuterV6},
    },
    ipv4::{self, Ipv4Header},
    ipv6::{self, Ipv6Header},
};

/// Wraps a plain packet: whole, in a frame without VLAN tags, with an IPv4 header without options.
/// All headers are at fixed offsets, which saves two thirds of the work. Returns `None` for any
/// other packet, or if something is wrong; the packet is then unchanged.
#[inline(always)]
pub(super) fn wrap_plain<P: PacketBuf>(
    packet: &mut P,
    outer: &FlowHeader,
    addresses: Option<&[u8; 12]>,
    identifications: Option<&mut Identifications>,
) -> Option<()> {
    let (front, _) = Plain::ref_from_prefix(packet.data()).ok()?;
    let total_bytes = usize::from(front.ip.total_length());
    let is_plain = front.ethertype == ethernet::ETHERTYPE_IPV4
        && front.ip.version_ihl() == ipv4::VERSION_IHL
        && total_bytes >= ipv4::HEADER_BYTES
        && ethernet::HEADER_BYTES + total_bytes <= packet.len_bytes();
    if !is_plain {
        return None;
    }
    wrap_checked(packet, outer, addresses, identifications, u16::MAX)
}

/// [`wrap_plain`] for a packet that is known to be plain. It is wrapped unless it would exceed
/// `mtu_bytes`.
#[inline(always)]
pub(super) fn wrap_checked<P: PacketBuf>(
    packet: &mut P,
    outer: &FlowHeader,
    addresses: Option<&[u8; 12]>,
    identifications: Option<&mut Identifications>,
    mtu_bytes: u16,
) -> Option<()> {
    const OUTER: usize = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES;
    /// Bytes of [`start`].
    const START: usize = 4;
    let frame_bytes = packet.len_bytes();
    let (plain, _) = Plain::ref_from_prefix(packet.data()).ok()?;
    let addresses = *addresses.unwrap_or(&plain.addresses);
    let inner_bytes = usize::from(plain.ip.total_length());
    let inner_bytes_max = usize::from(mtu_bytes).saturating_sub(ipv4::HEADER_BYTES);
    if inner_bytes > inner_bytes_max || plain.ip.ttl() <= 1 {
        // Two branches that are never taken cost fewer instructions than one combined condition.
        hint::cold_path();
        return None;
    }
    let bytes = packet.prepend(ipv4::HEADER_BYTES).ok()?;
    let bytes = bytes.first_chunk_mut::<{ OUTER + ipv4::HEADER_BYTES }>()?;
    let start_bytes: [u8; START] = *bytes[OUTER - ETHERTYPE_BYTES..].first_chunk()?;
    // Stored at once, so that it doesn't occupy a register for long.
    bytes[12..12 + START].copy_from_slice(&start_bytes);
    let start = u32::from_le_bytes(start_bytes);
    let (ip, _) = Ipv4Header::mut_from_prefix(&mut bytes[OUTER..]).ok()?;
    let inner = Inner::of_v4(ip, ethernet::HEADER_BYTES);
    let inner = Inner { start, total_bytes: inner_bytes, ..inner };
    let header = outer.header(&inner, identifications);
    ip.lower_ttl();
    bytes[..12].copy_from_slice(&addresses);
    bytes[12 + START..OUTER].copy_from_slice(&header[START..]);
    if frame_bytes > ethernet::HEADER_BYTES + inner_bytes {
        packet.truncate(OUTER + inner_bytes);
    }
    Some(())
}

/// [`wrap_checked`] for IPv6.
#[inline(always)]
pub(super) fn wrap_checked_v6<P: PacketBuf>(
    packet: &mut P,
    outer: &OuterV6,
    addresses: &[u8; 12],
    flow_hash: u32,
    mtu_bytes: u16,
) -> Option<()> {
    const OUTER: usize = ethernet::HEADER_BYTES + ipv6::HEADER_BYTES;
    let frame_bytes = packet.len_bytes();
    let front = packet.data().first_chunk::<OUTER>()?;
    let (ip, _) = Ipv6Header::ref_from_prefix(&front[ethernet::HEADER_BYTES..]).ok()?;
    let total_bytes = usize::from(ip.payload_length()) + 2 * ipv6::HEADER_BYTES;
    if total_bytes > usize::from(mtu_bytes) || ip.hop_limit() <= 1 {
        hint::cold_path();
        return None;
    }
    let bytes = packet.prepend(ipv6::HEADER_BYTES).ok()?;
    let bytes = bytes.first_chunk_mut::<{ OUTER + ipv6::HEADER_BYTES }>()?;
    let (ip, _) = Ipv6Header::mut_from_prefix(&mut bytes[OUTER..]).ok()?;
    let inner = Inner::of_v6(ip, ethernet::HEADER_BYTES);
    ip.decrement_hop_limit();
    bytes[..12].copy_from_slice(addresses);
    bytes[12..OUTER].copy_from_slice(&outer.header(&inner, Some(flow_hash)));
    if frame_bytes > ethernet::HEADER_BYTES + inner.total_bytes {
        packet.truncate(ethernet::HEADER_BYTES + total_bytes);
    }
    Some(())
}

/// The first headers of a plain packet.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Plain {
    addresses: [u8; 12],
    ethertype: U16,
    ip: Ipv4Header,
}
