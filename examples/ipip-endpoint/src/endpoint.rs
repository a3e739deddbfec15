//! The network function.
//!
//! - A tunnel packet from a balancer to one of the endpoint's own addresses is unwrapped, and goes
//!   to the kernel.
//! - The kernel's answers go back: unchanged to the client, or wrapped to the balancer.
//! - Everything else is dropped for a named reason: see [`EndpointDrop`]. Nothing is lost by that:
//!   the kernel has the port's interface, too, and sees the same packets.

use crate::arrival::{Arrived, Side};
use crate::outer::{NoHeader, Outer};
use crate::settings::{Answers, Settings, Stations};
use hotloop::packet::answer::{self, IcmpError};
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::fragment::{self, FragmentError};
use hotloop::packet::ip::protocol;
use hotloop::packet::ipip::{self, DecapsulateError, EncapsulateError, Tunnel};
use hotloop::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

drop_reasons! {
    /// Why the endpoint drops packets.
    pub enum EndpointDrop {
        /// The frame is neither IPv4 nor IPv6.
        NotIp = "not_ip",
        /// A header is cut, or is inconsistent in itself or with the headers around it.
        Malformed = "malformed",
        /// The frame ends before its packet does.
        Truncated = "truncated",
        /// From the network, but not a tunnel packet to an own address: the kernel's own business.
        NotOurs = "not_ours",
        /// A tunnel packet to an own address, from an address that is not a known balancer's.
        UnknownBalancer = "unknown_balancer",
        /// A fragment of a tunnel packet. Fragments are not reassembled.
        TunnelFragment = "tunnel_fragment",
        /// The outer header of a tunnel packet has a wrong checksum.
        BadChecksum = "bad_checksum",
        /// A tunnel packet met congestion that its inner packet can't show (RFC 6040, section 4.2).
        Congestion = "congestion",
        /// From the kernel to the stations of its link, such as neighbour discovery.
        OnLink = "on_link",
        /// From the kernel, before the destination of answers is known.
        NoNextHop = "no_next_hop",
        /// From the kernel, and may not be forwarded.
        TtlExpired = "ttl_expired",
        /// From the kernel, and too long for the path to the balancer once wrapped. The kernel
        /// learns this by ICMP.
        TooBig = "too_big",
        /// No packet memory for a fragment.
        NoMbuf = "no_mbuf",
        /// The packet's buffer has no room for the outer header.
        NoHeadroom = "no_headroom",
    }
}

/// The sender of too-big messages to the kernel over IPv4: the address of a router that has none
/// (RFC 7600, section 4.8). An own address would not do, as hosts don't believe their own addresses
/// from outside.
const TELLER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// The same over IPv6: a router on the kernel's link.
const TELLER_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 8);

/// The endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    settings: Settings,
    stations: Stations,
    /// The tunnel back through the balancer, if answers take it.
    tunnel: Option<Tunnel>,
    /// The destination of frames sent out of the port.
    next_hop: Option<MacAddress>,
}

impl Endpoint {
    /// An endpoint with these settings, between these two ports.
    ///
    /// # Errors
    /// [`EncapsulateError::MixedFamilies`] if answers should be tunnelled from an address of one
    /// family to one of the other.
    pub fn new(settings: Settings, stations: Stations) -> Result<Self, EncapsulateError> {
        let tunnel = match settings.answers {
            Answers::Direct => None,
            Answers::Tunnelled { source, destination } => Some(Tunnel::new(source, destination)?),
        };
        let next_hop = settings.next_hop;
        Ok(Self { settings, stations, tunnel, next_hop })
    }

    /// Prepares a packet from the network for the kernel.
    #[inline]
    fn unwrap<P: PacketBuf>(&mut self, packet: &mut P) -> Result<(), EndpointDrop> {
        let frame = packet.data();
        let outer = Outer::of(frame, packet.len_bytes())?;
        let is_tunnel = matches!(outer.protocol, protocol::IPV4 | protocol::IPV6);
        if !is_tunnel || !self.settings.addresses.contains(&outer.destination) {
            return Err(EndpointDrop::NotOurs);
        }
        if !self.settings.balancers.iter().any(|prefix| prefix.contains(outer.source)) {
            return Err(EndpointDrop::UnknownBalancer);
        }
        let sender = ethernet::EthernetView::parse(frame).map(|view| view.source());
        ipip::decapsulate(packet)?;
        if self.settings.next_hop.is_none() {
            self.next_hop = sender.ok();
        }
        ethernet::set_addresses(packet, self.stations.wire, self.stations.kernel);
        Ok(())
    }

    /// Reads the header of a packet from the kernel, if the packet may be forwarded.
    #[inline]
    fn forwardable<P: PacketBuf>(&self, packet: &P) -> Result<Outer, EndpointDrop> {
        let outer = Outer::of(packet.data(), packet.len_bytes())?;
        if outer.is_on_link() {
            return Err(EndpointDrop::OnLink);
        }
        if self.next_hop.is_none() {
            return Err(EndpointDrop::NoNextHop);
        }
        if self.tunnel.is_some() && outer.hops <= 1 {
            return Err(EndpointDrop::TtlExpired);
        }
        Ok(outer)
    }

    /// The longest packet from the kernel that fits, in bytes.
    #[inline]
    fn packet_bytes_max(&self) -> usize {
        let outer_bytes = self.tunnel.as_ref().map_or(0, Tunnel::outer_header_bytes);
        usize::from(self.settings.mtu_bytes).saturating_sub(outer_bytes)
    }

    /// Prepares a packet from the kernel that fits for the network.
    #[inline]
    fn wrap<P: PacketBuf>(&self, packet: &mut P) -> Result<(), EndpointDrop> {
        if let Some(tunnel) = &self.tunnel {
            tunnel.wrap(packet)?;
        }
        let next_hop = self.next_hop.ok_or(EndpointDrop::NoNextHop)?;
        ethernet::set_addresses(packet, self.stations.wire, next_hop);
        Ok(())
    }

    /// Processes a packet from the kernel.
    #[inline]
    fn forward<P: PacketBuf>(
        &self,
        mut packet: P,
        cx: &mut Cx<'_, EndpointDrop>,
        out: &mut Output<'_, Routed<P, Side>>,
    ) {
        let outcome = match self.forwardable(&packet) {
            Ok(outer) if outer.total_bytes > self.packet_bytes_max() => {
                return self.too_big(packet, &outer, cx, out);
            }
            Ok(_) => self.wrap(&mut packet),
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok(()) => out.push(to_wire(packet)),
            Err(reason) => cx.discard(packet, reason),
        }
    }

    /// Fragments a packet if its sender allows it, and notifies the sender otherwise.
    #[cold]
    fn too_big<P: PacketBuf>(
        &self,
        packet: P,
        outer: &Outer,
        cx: &mut Cx<'_, EndpointDrop>,
        out: &mut Output<'_, Routed<P, Side>>,
    ) {
        if outer.may_fragment {
            return self.fragment(packet, cx, out);
        }
        let mut packet = cx.reuse(packet, EndpointDrop::TooBig);
        let teller: IpAddr =
            if outer.source.is_ipv4() { TELLER_V4.into() } else { TELLER_V6.into() };
        let mtu_bytes = self.packet_bytes_max() as u16;
        // A packet that may not be answered (RFC 1122, section 3.2.2) is just dropped.
        if answer::icmp_error(&mut packet, teller, IcmpError::TooBig { mtu_bytes }).is_ok() {
            ethernet::set_addresses(&mut packet, self.stations.wire, self.stations.kernel);
            out.push_created(Routed { packet, route: Side::Kernel });
        }
    }

    /// Sends a packet in fragments. The last is the original packet; those before it were made
    /// here.
    fn fragment<P: PacketBuf>(
        &self,
        packet: P,
        cx: &mut Cx<'_, EndpointDrop>,
        out: &mut Output<'_, Routed<P, Side>>,
    ) {
        let mut last: Option<P> = None;
        let split = fragment::split(packet, self.packet_bytes_max(), |piece| {
            if let Some(mut before) = last.replace(piece)
                && self.wrap(&mut before).is_ok()
            {
                out.push_created(to_wire(before));
            }
        });
        let (mut packet, error) = match (split, last) {
            (Ok(()), Some(packet)) => (packet, None),
            (Ok(()), None) => return,
            (Err((packet, error)), before) => {
                if let Some(mut before) = before
                    && self.wrap(&mut before).is_ok()
                {
                    out.push_created(to_wire(before));
                }
                (packet, Some(EndpointDrop::from(error)))
            }
        };
        match error.map_or_else(|| self.wrap(&mut packet), Err) {
            Ok(()) => out.push(to_wire(packet)),
            Err(reason) => cx.discard(packet, reason),
        }
    }
}

fn to_wire<P>(packet: P) -> Routed<P, Side> {
    Routed { packet, route: Side::Wire }
}

impl<P: PacketBuf> BurstStage<Arrived<P>> for Endpoint {
    type Out = Routed<P, Side>;
    type Drop = EndpointDrop;

    #[inline]
    fn process(
        &mut self,
        cx: &mut Cx<'_, EndpointDrop>,
        input: &mut Burst<Arrived<P>>,
        out: &mut Output<'_, Routed<P, Side>>,
    ) {
        input.fetch();
        while let Some(Arrived { mut packet, side }) = input.pop() {
            match side {
                Side::Kernel => self.forward(packet, cx, out),
                Side::Wire => match self.unwrap(&mut packet) {
                    Ok(()) => out.push(Routed { packet, route: Side::Kernel }),
                    Err(reason) => cx.discard(packet, reason),
                },
            }
        }
    }
}

impl From<NoHeader> for EndpointDrop {
    fn from(none: NoHeader) -> Self {
        match none {
            NoHeader::NotIp => Self::NotIp,
            NoHeader::Malformed => Self::Malformed,
            NoHeader::Truncated => Self::Truncated,
        }
    }
}

impl From<DecapsulateError> for EndpointDrop {
    fn from(error: DecapsulateError) -> Self {
        match error {
            DecapsulateError::Checksum => Self::BadChecksum,
            DecapsulateError::Fragment => Self::TunnelFragment,
            DecapsulateError::Congestion => Self::Congestion,
            DecapsulateError::NotIp { .. } => Self::NotIp,
            DecapsulateError::NotTunnel { .. }
            | DecapsulateError::Malformed(_)
            | DecapsulateError::NoRoom(_) => Self::Malformed,
        }
    }
}

impl From<EncapsulateError> for EndpointDrop {
    fn from(error: EncapsulateError) -> Self {
        match error {
            EncapsulateError::TtlExpired => Self::TtlExpired,
            EncapsulateError::TooBig { .. } => Self::TooBig,
            EncapsulateError::NoRoom(_) => Self::NoHeadroom,
            EncapsulateError::NotIp { .. } => Self::NotIp,
            EncapsulateError::Malformed(_) | EncapsulateError::MixedFamilies { .. } => {
                Self::Malformed
            }
        }
    }
}

impl From<FragmentError> for EndpointDrop {
    fn from(error: FragmentError) -> Self {
        match error {
            FragmentError::NoMemory => Self::NoMbuf,
            FragmentError::Forbidden { .. } | FragmentError::MtuTooSmall { .. } => Self::TooBig,
            FragmentError::Checksum
            | FragmentError::NotIpv4 { .. }
            | FragmentError::Malformed(_) => Self::Malformed,
        }
    }
}
