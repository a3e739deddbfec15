//! The packet that is to be wrapped.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::{
    Header, Malformed, NoRoom, PacketBuf,
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    ip::protocol,
    ipip::EncapsulateError,
    ipv4::{self, Ipv4Header, Ipv4View},
    ipv6::{self, Ipv6Header, Ipv6View},
};

/// Length in bytes of the headers of a usual packet: Ethernet, and IPv4 without options.
const PLAIN: usize = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES;

/// The same in tunnels.
pub(super) const PLAIN_IN_V4: usize = PLAIN + ipv4::HEADER_BYTES;
pub(super) const PLAIN_IN_V6: usize = PLAIN + ipv6::HEADER_BYTES;

/// The headers of a usual packet.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Front {
    macs: [u8; 12],
    ethertype: [u8; 2],
    ip: Ipv4Header,
}

/// EtherType, version and header length of a usual packet.
const START: [u8; 3] = {
    let [high, low] = ETHERTYPE_IPV4.to_be_bytes();
    [high, low, 0x45]
};

impl Front {
    #[inline(always)]
    const fn start(&self) -> [u8; 3] {
        let [high, low] = self.ethertype;
        [high, low, self.ip.version() << 4 | (self.ip.header_bytes() / 4) as u8]
    }
}

/// What the outer header takes from the packet that is to be wrapped.
pub(super) struct Inner {
    /// Where the packet begins in its frame: 14, 18 or 22.
    pub l3_offset: usize,
    /// Length in bytes of the packet, padding apart.
    pub total_bytes: usize,
    pub protocol: u8,
    pub traffic_class: u8,
    pub dont_fragment: bool,
    /// Of what is wrapped by itself, where nobody counts.
    pub identification: u16,
}

impl Inner {
    /// A usual packet that can be wrapped, but for the room that it needs: IPv4 without options, in
    /// a frame without VLAN tag. [`read`](Self::read) would say the same of it.
    #[inline(always)]
    pub(super) fn plain(frame: &[u8], len_bytes: usize) -> Option<Self> {
        let (front, _) = Front::ref_from_prefix(frame).ok()?;
        let total_bytes = usize::from(front.ip.total_length());
        let is_plain = front.start() == START
            && total_bytes >= ipv4::HEADER_BYTES
            && ethernet::HEADER_BYTES + total_bytes <= len_bytes
            && front.ip.ttl() > 1;
        is_plain.then(|| Self::of_v4(&front.ip, ethernet::HEADER_BYTES))
    }

    /// Checks all that can prevent a packet from being wrapped, but for the room that it needs.
    #[inline]
    pub(super) fn read(frame: &[u8], len_bytes: usize) -> Result<Self, EncapsulateError> {
        let (ethertype, l3_offset) = ethernet::network_layer(frame).ok_or(Malformed::cut(
            Header::Ethernet,
            ethernet::HEADER_BYTES,
            frame.len(),
        ))?;
        let bytes = &frame[l3_offset..];
        let (inner, ttl, header) = match ethertype {
            ETHERTYPE_IPV4 => {
                let view = Ipv4View::parse_cut(bytes)?;
                (Self::of_v4(&view, l3_offset), view.ttl(), Header::Ipv4)
            }
            ETHERTYPE_IPV6 => {
                let view = Ipv6View::parse_cut(bytes)?;
                (Self::of_v6(&view, l3_offset), view.hop_limit(), Header::Ipv6)
            }
            _ => return Err(EncapsulateError::NotIp { ethertype }),
        };
        let available_bytes = len_bytes.saturating_sub(l3_offset);
        if inner.total_bytes > available_bytes {
            return Err(Malformed::cut(header, inner.total_bytes, available_bytes).into());
        }
        if ttl <= 1 {
            return Err(EncapsulateError::TtlExpired);
        }
        Ok(inner)
    }

    #[inline]
    fn of_v4(header: &Ipv4Header, l3_offset: usize) -> Self {
        let offset = (header.fragment_offset_bytes() / 8) as u16;
        Self {
            l3_offset,
            total_bytes: usize::from(header.total_length()),
            protocol: protocol::IPV4,
            traffic_class: header.traffic_class(),
            dont_fragment: header.dont_fragment(),
            identification: header.identification().wrapping_add(offset),
        }
    }

    #[inline]
    fn of_v6(header: &Ipv6Header, l3_offset: usize) -> Self {
        Self {
            l3_offset,
            total_bytes: ipv6::HEADER_BYTES + usize::from(header.payload_length()),
            protocol: protocol::IPV6,
            traffic_class: header.traffic_class(),
            dont_fragment: true,
            identification: 0,
        }
    }
}

/// Makes room, and puts the outer header into it, before a usual packet. `FRONT` is the length in bytes
/// of all headers: 34 + `N`.
#[inline(always)]
pub(super) fn place_plain<P: PacketBuf, const N: usize, const FRONT: usize>(
    packet: &mut P,
    inner: &Inner,
    outer: &[u8; N],
    ethertype: u16,
) -> Result<(), NoRoom> {
    const { assert!(FRONT == PLAIN + N) };
    const MACS: usize = ethernet::HEADER_BYTES - 2;
    let bytes = packet.prepend(N)?;
    if let Some(front) = bytes.first_chunk_mut::<FRONT>() {
        front.copy_within(N..N + MACS, 0);
        front[MACS..ethernet::HEADER_BYTES].copy_from_slice(&ethertype.to_be_bytes());
        front[ethernet::HEADER_BYTES..ethernet::HEADER_BYTES + N].copy_from_slice(outer);
        if let Ok(header) = Ipv4Header::mut_from_bytes(&mut front[ethernet::HEADER_BYTES + N..]) {
            header.decrement_ttl();
        }
    }
    packet.truncate(ethernet::HEADER_BYTES + N + inner.total_bytes);
    Ok(())
}

/// Makes room, and puts the outer header into it: the only thing that can fail comes first.
#[inline]
pub(super) fn place<P: PacketBuf, const N: usize>(
    packet: &mut P,
    inner: &Inner,
    outer: &[u8; N],
    ethertype: u16,
) -> Result<(), NoRoom> {
    let bytes = packet.prepend(N)?;
    let l3_offset = inner.l3_offset;
    if l3_offset == ethernet::HEADER_BYTES {
        // The same as below, with a length that the compiler knows.
        bytes.copy_within(N..N + ethernet::HEADER_BYTES - 2, 0);
    } else {
        bytes.copy_within(N..N + l3_offset - 2, 0);
    }
    bytes[l3_offset - 2..l3_offset].copy_from_slice(&ethertype.to_be_bytes());
    let (head, inner_bytes) = bytes.split_at_mut(l3_offset + N);
    head[l3_offset..].copy_from_slice(outer);
    // Headers are there, and the TTL is above 1: `Inner::read` has seen them.
    if inner.protocol == protocol::IPV4 {
        if let Ok((header, _)) = Ipv4Header::mut_from_prefix(inner_bytes) {
            header.decrement_ttl();
        }
    } else if let Ok((header, _)) = Ipv6Header::mut_from_prefix(inner_bytes) {
        header.decrement_hop_limit();
    }
    packet.truncate(l3_offset + N + inner.total_bytes);
    Ok(())
}
