//! Puts packets into tunnels.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::FromBytes;

use crate::{
    Header, Malformed, NoRoom, PacketBuf,
    classify::Layout,
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    ip::protocol,
    ipip::{
        EncapsulateError, Identifications, TunnelError,
        fast::{wrap_checked_v6, wrap_plain},
        outer::{ETHERTYPE_BYTES, FlowHeader, OuterV4, OuterV6},
    },
    ipv4::{self, Ipv4Header, Ipv4View},
    ipv6::{self, Ipv6Header, Ipv6View},
};

/// Wraps the IP packet of a frame into an outer IP packet from `source` to `destination`.
///
/// The outer header:
/// - TTL 64; protocol 4 or 41 by the inner family;
/// - differentiated services and congestion mark copied (RFC 2983, section 3.1; RFC 6040, section
///   4.1, normal mode);
/// - an outer IPv4 header forbids fragments if the inner one does, or if the inner packet is IPv6.
///   Its identification is then 0 (RFC 6864). Otherwise it is the inner packet's plus the
///   fragment's offset, so that the fragments of one inner datagram differ;
/// - an outer IPv6 header's flow label is 0.
///
/// The inner TTL is reduced by one (RFC 2003, section 3.1), and its checksum corrected. Padding
/// after the inner packet, as in short Ethernet frames, is cut off first.
///
/// For many packets to one destination, use a [`Tunnel`].
///
/// # Errors
/// [`EncapsulateError`]; the packet is unchanged.
#[inline]
pub fn encapsulate<P: PacketBuf>(
    packet: &mut P,
    source: impl Into<IpAddr>,
    destination: impl Into<IpAddr>,
) -> Result<(), EncapsulateError> {
    Tunnel::new(source, destination)?.wrap(packet)
}

/// The part of the outer header that is the same for all packets to one destination.
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

    /// A tunnel to `destination` with sources from a prefix, given as an address in the prefix and
    /// its length in bits. [`wrap_flow`](Self::wrap_flow) picks the source by flow, so that a
    /// receiver that distributes work by outer addresses distributes flows.
    ///
    /// For IPv6 prefixes shorter than 64 bits, the bits from the prefix to the 64th are 0.
    ///
    /// # Errors
    /// [`TunnelError`]: the ends are of two families, or the prefix has more bits than an address.
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

    /// The source that [`wrap_flow`](Self::wrap_flow) uses for a flow with this hash.
    #[inline]
    pub fn source(&self, flow_hash: u32) -> IpAddr {
        match &self.outer {
            Outer::V4(outer) => outer.source(flow_hash).into(),
            Outer::V6(outer) => outer.source(flow_hash).into(),
        }
    }

    /// The tunnel's destination.
    #[inline]
    pub fn destination(&self) -> IpAddr {
        match &self.outer {
            Outer::V4(outer) => outer.destination().into(),
            Outer::V6(outer) => outer.destination().into(),
        }
    }

    /// Whether the [source](Self::source) depends on the flow.
    #[inline]
    pub const fn is_spread(&self) -> bool {
        match &self.outer {
            Outer::V4(outer) => outer.is_spread(),
            Outer::V6(outer) => outer.is_spread(),
        }
    }

    /// The number of bytes that wrapping adds to a packet: 20 or 40.
    #[inline]
    pub const fn outer_header_bytes(&self) -> usize {
        match &self.outer {
            Outer::V4(_) => ipv4::HEADER_BYTES,
            Outer::V6(_) => ipv6::HEADER_BYTES,
        }
    }

    /// Wraps the IP packet of a frame, as [`encapsulate`] does. If the tunnel is spread, the source
    /// is the first address of its prefix.
    ///
    /// # Errors
    /// [`EncapsulateError`]; the packet is unchanged.
    #[inline]
    pub fn wrap<P: PacketBuf>(&self, packet: &mut P) -> Result<(), EncapsulateError> {
        match &self.outer {
            Outer::V4(outer)
                if wrap_plain(packet, &outer.flow_header(None), None, None).is_some() =>
            {
                Ok(())
            }
            _ => self.wrap_any(packet, None, None),
        }
    }

    /// Wraps the IP packet of a frame as [`encapsulate`] does, with these differences:
    /// - the frame gets these addresses: destination and source, of six bytes each;
    /// - if the tunnel is [spread](Self::spread), the source is [`source`](Self::source) for this
    ///   flow hash;
    /// - an outer IPv4 header that does not forbid fragments has the next identification.
    ///
    /// # Errors
    /// [`EncapsulateError`]; the packet is unchanged.
    #[inline(always)]
    pub fn wrap_flow<P: PacketBuf>(
        &self,
        packet: &mut P,
        addresses: &[u8; 12],
        hash: u32,
        identifications: &mut Identifications,
    ) -> Result<(), EncapsulateError> {
        if let Outer::V4(outer) = &self.outer {
            let header = outer.flow_header(Some(hash));
            if wrap_plain(packet, &header, Some(addresses), Some(identifications)).is_some() {
                return Ok(());
            }
        }
        self.wrap_any(packet, Some(addresses), Some((hash, identifications)))
    }

    /// The outer header for packets of the flow with this hash, used by the [fast
    /// path](FlowHeader::wrap_fast). `None` for an IPv6 tunnel.
    #[inline(always)]
    pub fn flow_header(&self, flow_hash: u32) -> Option<FlowHeader> {
        match &self.outer {
            Outer::V4(outer) => Some(outer.flow_header(Some(flow_hash))),
            Outer::V6(_) => None,
        }
    }

    /// [`FlowHeader::wrap_fast`] for an IPv6 tunnel and a packet for which [`Layout::is_fast_v6`]
    /// is true.
    #[inline(always)]
    pub fn wrap_fast_v6<P: PacketBuf>(
        &self,
        packet: &mut P,
        layout: Layout,
        mtu_bytes: u16,
        addresses: &[u8; 12],
        flow_hash: u32,
    ) -> bool {
        let Outer::V6(outer) = &self.outer else { return false };
        layout.is_fast_v6()
            && wrap_checked_v6(packet, outer, addresses, flow_hash, mtu_bytes).is_some()
    }

    /// Wraps any packet. Not inlined, to keep its callers small.
    #[inline(never)]
    fn wrap_any<P: PacketBuf>(
        &self,
        packet: &mut P,
        addresses: Option<&[u8; 12]>,
        flow: Option<(u32, &mut Identifications)>,
    ) -> Result<(), EncapsulateError> {
        let inner = Inner::read(packet.data(), packet.len_bytes())?;
        let packet_bytes = inner.total_bytes;
        let counted_bytes = match &self.outer {
            Outer::V4(_) => packet_bytes + ipv4::HEADER_BYTES,
            Outer::V6(_) => packet_bytes,
        };
        if counted_bytes > usize::from(u16::MAX) {
            return Err(EncapsulateError::TooBig { packet_bytes });
        }
        match &self.outer {
            Outer::V4(outer) => {
                let (hash, identifications) = flow.unzip();
                let header = outer.flow_header(hash);
                place(packet, &inner, || header.header(&inner, identifications))?;
            }
            Outer::V6(outer) => {
                let flow_hash = flow.map(|(hash, _)| hash);
                place(packet, &inner, || outer.header(&inner, flow_hash))?;
            }
        }
        if let Some((addresses, front)) = addresses.zip(packet.data_mut().first_chunk_mut()) {
            *front = *addresses;
        }
        Ok(())
    }
}

/// The first four bytes of EtherType and outer IPv4 header, up to the traffic class, in memory
/// order from the lowest byte.
const fn start(traffic_class: u8) -> u32 {
    let [high, low] = ETHERTYPE_IPV4.to_be_bytes();
    u32::from_le_bytes([high, low, ipv4::VERSION_IHL, traffic_class])
}

/// The inputs of the outer header that come from the packet to be wrapped.
pub(super) struct Inner {
    /// Offset of the packet in its frame: 14, 18 or 22.
    pub l3_offset: usize,
    /// Length in bytes of the packet, without padding.
    pub total_bytes: usize,
    pub protocol: u8,
    /// [`start`] with the packet's traffic class.
    pub start: u32,
    pub dont_fragment: bool,
    /// The outer header's identification, unless the flow provides one.
    pub identification: u16,
}

impl Inner {
    /// Checks everything that can prevent wrapping, except the room for the header.
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

    #[inline(always)]
    pub(super) fn of_v4(header: &Ipv4Header, l3_offset: usize) -> Self {
        // With the offset, so that the fragments of one inner datagram differ.
        let fragment_offset = (header.fragment_offset_bytes() / 8) as u16;
        Self {
            l3_offset,
            total_bytes: usize::from(header.total_length()),
            protocol: protocol::IPV4,
            start: start(header.traffic_class()),
            dont_fragment: header.dont_fragment(),
            identification: header.identification().wrapping_add(fragment_offset),
        }
    }

    #[inline]
    pub(super) fn of_v6(header: &Ipv6Header, l3_offset: usize) -> Self {
        Self {
            l3_offset,
            total_bytes: ipv6::HEADER_BYTES + usize::from(header.payload_length()),
            protocol: protocol::IPV6,
            start: start(header.traffic_class()),
            dont_fragment: true,
            identification: 0,
        }
    }
}

/// Makes room and writes the outer EtherType and header. All steps that can fail come first.
#[inline]
fn place<P: PacketBuf, const N: usize>(
    packet: &mut P,
    inner: &Inner,
    outer: impl FnOnce() -> [u8; N],
) -> Result<(), NoRoom> {
    let grown_bytes = N - ETHERTYPE_BYTES;
    let bytes = packet.prepend(grown_bytes)?;
    let ethertype_offset = inner.l3_offset - ETHERTYPE_BYTES;
    bytes.copy_within(grown_bytes..grown_bytes + ethertype_offset, 0);
    bytes[ethertype_offset..ethertype_offset + N].copy_from_slice(&outer());
    let inner_bytes = &mut bytes[ethertype_offset + N..];
    // The header is there and the TTL is above 1: `Inner::read` has checked both.
    if inner.protocol == protocol::IPV4 {
        if let Ok((header, _)) = Ipv4Header::mut_from_prefix(inner_bytes) {
            header.decrement_ttl();
        }
    } else if let Ok((header, _)) = Ipv6Header::mut_from_prefix(inner_bytes) {
        header.decrement_hop_limit();
    }
    packet.truncate(inner.l3_offset + grown_bytes + inner.total_bytes);
    Ok(())
}
