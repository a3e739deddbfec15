//! Into the tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    PacketBuf, ethernet,
    ip::protocol,
    ipip::{
        EncapsulateError, TunnelError,
        inner::{Front, Inner, outer_identification, place},
        outer::{Fields, Flow, OuterV4, OuterV6},
    },
    ipv4, ipv6,
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
/// The inner TTL is reduced by one (RFC 2003, section 3.1), its checksum corrected. Padding after
/// the inner packet, as short Ethernet frames have, is cut off first.
///
/// For many packets to one destination, keep a [`Tunnel`].
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
    V4(OuterV4),
    V6(OuterV6),
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
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Outer::V4(OuterV4::new(source, destination, 0))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Outer::V6(OuterV6::new(source, destination, 0))
            }
            (source_address, destination) => {
                return Err(EncapsulateError::MixedFamilies { source_address, destination });
            }
        };
        Ok(Self { outer })
    }

    /// A tunnel to `destination` from the addresses of a prefix, which is given by an address in it
    /// and its length in bits: [`wrap_flow`](Self::wrap_flow) takes one by the flow, so that a
    /// receiver which shares its work out by outer addresses shares out flows.
    ///
    /// Of IPv6 prefixes shorter than 64 bits the bits from the prefix to the 64th are 0.
    ///
    /// # Errors
    /// [`TunnelError`]: the ends are of two families, or there are no prefixes of such a length.
    pub fn spread(
        source: (IpAddr, u8),
        destination: impl Into<IpAddr>,
    ) -> Result<Self, TunnelError> {
        let (address, prefix_bits) = source;
        let bits_max: u8 = if address.is_ipv4() { 32 } else { 128 };
        let Some(host_bits) = bits_max.checked_sub(prefix_bits) else {
            return Err(TunnelError::Prefix { address, prefix_bits, bits_max });
        };
        let shift = u32::from(host_bits);
        let outer = match (address, destination.into()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mask = u32::MAX.checked_shl(shift).unwrap_or(0);
                let source = Ipv4Addr::from_bits(source.to_bits() & mask);
                Outer::V4(OuterV4::new(source, destination, host_bits))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mask = u128::MAX.checked_shl(shift).unwrap_or(0);
                let source = Ipv6Addr::from_bits(source.to_bits() & mask);
                Outer::V6(OuterV6::new(source, destination, host_bits.min(64)))
            }
            (source_address, destination) => {
                return Err(TunnelError::MixedFamilies { source_address, destination });
            }
        };
        Ok(Self { outer })
    }

    /// The source of what [`wrap_flow`](Self::wrap_flow) sends for a flow with this hash.
    #[inline]
    pub fn source(&self, flow_hash: u32) -> IpAddr {
        match &self.outer {
            Outer::V4(outer) => outer.source(flow_hash).into(),
            Outer::V6(outer) => outer.source(flow_hash).into(),
        }
    }

    /// The number of bytes by which a packet grows: 20 or 40.
    #[inline]
    pub const fn outer_header_bytes(&self) -> usize {
        match &self.outer {
            Outer::V4(_) => ipv4::HEADER_BYTES,
            Outer::V6(_) => ipv6::HEADER_BYTES,
        }
    }

    /// Wraps the IP packet of a frame, as [`encapsulate`] says. The source of a tunnel that is spread
    /// is the first address of its prefix.
    ///
    /// # Errors
    /// [`EncapsulateError`]; the packet is as it was.
    #[inline]
    pub fn wrap<P: PacketBuf>(&self, packet: &mut P) -> Result<(), EncapsulateError> {
        self.wrap_as(packet, None)
    }

    /// Wraps the IP packet of a frame, as [`encapsulate`] says, but
    /// - where the tunnel is [spread](Self::spread), the source is the one for the flow with this hash:
    ///   [`source`](Self::source);
    /// - an outer IPv4 header that does not forbid fragments has this identification. So the sender of
    ///   all tunnel packets can count them (RFC 6864, section 5.3).
    ///
    /// # Errors
    /// [`EncapsulateError`]; the packet is as it was.
    #[inline]
    pub fn wrap_flow<P: PacketBuf>(
        &self,
        packet: &mut P,
        flow_hash: u32,
        identification: u16,
    ) -> Result<(), EncapsulateError> {
        self.wrap_as(packet, Some(Flow { hash: flow_hash, identification }))
    }

    /// The fast path: does what [`wrap_flow`](Self::wrap_flow) and
    /// [`set_addresses`](crate::ethernet::set_addresses) do, for a packet of which
    /// [`Layout::is_fast_v4`](crate::classify::Layout::is_fast_v4) holds. Its headers have been checked
    /// and are at fixed offsets, so that a third of the work remains. `addresses` are destination and
    /// source of the frame.
    ///
    /// Returns whether the identification was used. `None`, and the packet is as it was, where the fast
    /// path cannot take it: its TTL has expired, it would be longer than `mtu_bytes` once wrapped,
    /// there is no headroom, or the tunnel is IPv6.
    #[inline(always)]
    pub fn wrap_fast<P: PacketBuf>(
        &self,
        packet: &mut P,
        addresses: &[u8; 12],
        flow_hash: u32,
        identification: u16,
        mtu_bytes: u16,
    ) -> Option<bool> {
        let Outer::V4(outer) = &self.outer else { return None };
        wrap_v4_in_v4(packet, outer, addresses, outer.host(flow_hash), identification, mtu_bytes)
    }

    #[inline(always)]
    fn wrap_as<P: PacketBuf>(
        &self,
        packet: &mut P,
        flow: Option<Flow>,
    ) -> Result<(), EncapsulateError> {
        if let Outer::V4(outer) = &self.outer
            && let Some(front) = Front::of(packet.data())
            && front.is_right(packet.len_bytes())
        {
            let addresses = front.addresses;
            let (host, identification) = match flow {
                Some(flow) => (outer.host(flow.hash), flow.identification),
                None => (0, outer_identification(&front.ip)),
            };
            if wrap_v4_in_v4(packet, outer, &addresses, host, identification, u16::MAX).is_some() {
                return Ok(());
            }
        }
        self.wrap_any(packet, flow)
    }

    /// Wraps any packet. It is not inlined, so that its callers stay small.
    #[inline(never)]
    fn wrap_any<P: PacketBuf>(
        &self,
        packet: &mut P,
        flow: Option<Flow>,
    ) -> Result<(), EncapsulateError> {
        let inner = Inner::read(packet.data(), packet.len_bytes())?;
        match &self.outer {
            Outer::V4(outer) => place(packet, &inner, &outer.header(&inner, flow)?)?,
            Outer::V6(outer) => place(packet, &inner, &outer.header(&inner, flow)?)?,
        }
        Ok(())
    }
}

/// Wraps a packet with the headers of a [`Front`]. Returns what
/// [`Tunnel::wrap_fast`] does.
#[inline(always)]
fn wrap_v4_in_v4<P: PacketBuf>(
    packet: &mut P,
    outer: &OuterV4,
    addresses: &[u8; 12],
    host: u32,
    identification: u16,
    mtu_bytes: u16,
) -> Option<bool> {
    const INNER: usize = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES;
    let Front { ip, .. } = Front::of(packet.data())?;
    let total = u32::from(ip.total_length()) + ipv4::HEADER_BYTES as u32;
    let ttl = ip.ttl();
    if total > u32::from(mtu_bytes) || ttl <= 1 {
        return None;
    }
    let identification = (!ip.dont_fragment()).then_some(identification);
    let fields = Fields {
        traffic_class: ip.traffic_class(),
        total: total as u16,
        identification,
        protocol: protocol::IPV4,
        host,
    };
    let bytes = packet.prepend(ipv4::HEADER_BYTES).ok()?;
    let bytes = bytes.first_chunk_mut::<{ ipv4::HEADER_BYTES + INNER }>()?;
    bytes[..12].copy_from_slice(addresses);
    outer.write(bytes[12..].first_chunk_mut()?, &fields);
    bytes[42] = ttl - 1;
    // RFC 1624, with words as little-endian numbers: one less in the first byte of one.
    let sum = u32::from(!u16::from_le_bytes([bytes[44], bytes[45]])) + 0xfffe;
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[44..46].copy_from_slice(&sum.to_le_bytes());
    packet.truncate(ethernet::HEADER_BYTES + total as usize);
    Some(identification.is_some())
}
