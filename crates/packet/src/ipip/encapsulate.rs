//! Into the tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::FromBytes;

use crate::{
    Header, Malformed, NoRoom, PacketBuf,
    checksum::Sum,
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    ip::protocol,
    ipip::{EncapsulateError, OUTER_TTL},
    ipv4::{self, Ipv4Header, Ipv4View},
    ipv6::{self, Ipv6Header, Ipv6View},
};

/// Wraps the IP packet of a frame into an outer IP packet from `source` to `destination`.
///
/// The outer header:
/// - TTL 64; protocol 4 or 41 by the inner family;
/// - differentiated services and congestion mark copied (RFC 2983, section 3.1; RFC 6040, section
///   4.1, normal mode);
/// - an outer IPv4 header forbids fragments where the inner one does, and around IPv6. Then the
///   identification is 0 (RFC 6864), else it is the inner one's plus the fragment's offset, so that
///   the fragments of one inner datagram differ;
/// - an outer IPv6 header's flow label is 0.
///
/// The inner TTL is reduced by one (RFC 2003, section 3.1), its checksum corrected. Padding behind
/// the inner packet, as short Ethernet frames have, is cut off first.
///
/// For many packets to one backend, keep a [`Tunnel`].
///
/// # Errors
/// [`EncapsulateError`]; the packet is as it was.
#[inline]
pub fn encapsulate<P: PacketBuf>(
    packet: &mut P,
    source: impl Into<IpAddr>,
    destination: impl Into<IpAddr>,
) -> Result<(), EncapsulateError> {
    Tunnel::new(source, destination)?.wrap(packet)
}

/// The outer header of packets to one destination, as far as it is the same for all.
///
/// ```
/// use hotloop_packet::{PacketBuf, build::tcp, ipip::Tunnel, memory::MemPacket};
/// use std::net::Ipv4Addr;
///
/// let tunnel = Tunnel::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 0, 0, 7))?;
/// let mut packet = MemPacket::new(&tcp().to("203.0.113.10:80").build());
/// tunnel.wrap(&mut packet)?;
/// assert_eq!(packet.len_bytes(), 14 + tunnel.outer_header_bytes() + 40);
/// # Ok::<(), hotloop_packet::ipip::EncapsulateError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tunnel {
    outer: Outer,
}

#[derive(Clone, Copy, Debug)]
enum Outer {
    V4 {
        header: [u8; ipv4::HEADER_BYTES],
        /// The sum over `header`.
        sum: Sum,
    },
    V6 {
        header: [u8; ipv6::HEADER_BYTES],
    },
}

impl Tunnel {
    /// A tunnel from `source` to `destination`.
    ///
    /// # Errors
    /// [`EncapsulateError::MixedFamilies`].
    #[inline]
    pub fn new(
        source: impl Into<IpAddr>,
        destination: impl Into<IpAddr>,
    ) -> Result<Self, EncapsulateError> {
        let outer = match (source.into(), destination.into()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Outer::v4(source, destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Outer::v6(source, destination),
            (source_address, destination) => {
                return Err(EncapsulateError::MixedFamilies { source_address, destination });
            }
        };
        Ok(Self { outer })
    }

    /// By how many bytes a packet grows: 20 or 40.
    #[inline]
    pub const fn outer_header_bytes(&self) -> usize {
        match &self.outer {
            Outer::V4 { header, .. } => header.len(),
            Outer::V6 { header } => header.len(),
        }
    }

    /// Wraps the IP packet of a frame, as [`encapsulate`] says.
    ///
    /// # Errors
    /// [`EncapsulateError`]; the packet is as it was.
    #[inline]
    pub fn wrap<P: PacketBuf>(&self, packet: &mut P) -> Result<(), EncapsulateError> {
        let inner = Inner::read(packet.data(), packet.len_bytes())?;
        let too_big = |_| EncapsulateError::TooBig { packet_bytes: inner.total_bytes };
        match &self.outer {
            Outer::V4 { header, sum } => {
                let total = inner.total_bytes + ipv4::HEADER_BYTES;
                let total = u16::try_from(total).map_err(too_big)?;
                let header = outer_v4(*header, *sum, total, &inner);
                place(packet, &inner, &header, ETHERTYPE_IPV4)?;
            }
            Outer::V6 { header } => {
                let payload_bytes = u16::try_from(inner.total_bytes).map_err(too_big)?;
                let header = outer_v6(*header, payload_bytes, &inner);
                place(packet, &inner, &header, ETHERTYPE_IPV6)?;
            }
        }
        Ok(())
    }
}

impl Outer {
    #[inline]
    fn v4(source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        let mut header = [0; ipv4::HEADER_BYTES];
        header[0] = 0x45;
        header[8] = OUTER_TTL;
        header[12..16].copy_from_slice(&source.octets());
        header[16..].copy_from_slice(&destination.octets());
        let sum = Sum::default().bytes(&header);
        Self::V4 { header, sum }
    }

    #[inline]
    fn v6(source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        let mut header = [0; ipv6::HEADER_BYTES];
        header[0] = 0x60;
        header[7] = OUTER_TTL;
        header[8..24].copy_from_slice(&source.octets());
        header[24..].copy_from_slice(&destination.octets());
        Self::V6 { header }
    }
}

#[inline]
fn outer_v4(
    mut header: [u8; ipv4::HEADER_BYTES],
    sum: Sum,
    total: u16,
    inner: &Inner,
) -> [u8; ipv4::HEADER_BYTES] {
    let (identification, flags) =
        if inner.dont_fragment { (0, 0x4000u16) } else { (inner.identification, 0) };
    header[1] = inner.traffic_class;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    header[6..8].copy_from_slice(&flags.to_be_bytes());
    header[9] = inner.protocol;
    let sum = sum
        .number(u16::from(inner.traffic_class))
        .number(total)
        .number(identification)
        .number(flags)
        .number(u16::from(inner.protocol));
    header[10..12].copy_from_slice(&sum.checksum().to_be_bytes());
    header
}

#[inline]
fn outer_v6(
    mut header: [u8; ipv6::HEADER_BYTES],
    payload_bytes: u16,
    inner: &Inner,
) -> [u8; ipv6::HEADER_BYTES] {
    header[0] |= inner.traffic_class >> 4;
    header[1] = inner.traffic_class << 4;
    header[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
    header[6] = inner.protocol;
    header
}

/// What the outer header takes from the packet that is to be wrapped.
struct Inner {
    /// Where the packet begins in its frame: 14, 18 or 22.
    l3_offset: usize,
    /// Length in bytes of the packet, padding apart.
    total_bytes: usize,
    protocol: u8,
    traffic_class: u8,
    dont_fragment: bool,
    identification: u16,
}

impl Inner {
    /// Checks all that can prevent a packet from being wrapped, but for the room that it needs.
    #[inline]
    fn read(frame: &[u8], len_bytes: usize) -> Result<Self, EncapsulateError> {
        let (ethertype, l3_offset) = ethernet::network_layer(frame).ok_or(Malformed::cut(
            Header::Ethernet,
            ethernet::HEADER_BYTES,
            frame.len(),
        ))?;
        let bytes = &frame[l3_offset..];
        let (inner, ttl, header) = match ethertype {
            ETHERTYPE_IPV4 => {
                let view = Ipv4View::parse_cut(bytes)?;
                (Self::v4(&view, l3_offset), view.ttl(), Header::Ipv4)
            }
            ETHERTYPE_IPV6 => {
                let view = Ipv6View::parse_cut(bytes)?;
                (Self::v6(&view, l3_offset), view.hop_limit(), Header::Ipv6)
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
    fn v4(view: &Ipv4View<'_>, l3_offset: usize) -> Self {
        let offset = (view.fragment_offset_bytes() / 8) as u16;
        Self {
            l3_offset,
            total_bytes: usize::from(view.total_length()),
            protocol: protocol::IPV4,
            traffic_class: view.tos(),
            dont_fragment: view.dont_fragment(),
            identification: view.identification().wrapping_add(offset),
        }
    }

    #[inline]
    fn v6(view: &Ipv6View<'_>, l3_offset: usize) -> Self {
        Self {
            l3_offset,
            total_bytes: ipv6::HEADER_BYTES + usize::from(view.payload_length()),
            protocol: protocol::IPV6,
            traffic_class: view.traffic_class(),
            dont_fragment: true,
            identification: 0,
        }
    }
}

/// Makes room, and puts the outer header into it: the only thing that can fail comes first.
#[inline]
fn place<P: PacketBuf, const N: usize>(
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
