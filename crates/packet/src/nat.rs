//! Network address translation: a packet's source or destination, rewritten in place.
//!
//! [`rewrite_source`] and [`rewrite_destination`] write an address and a port of the same family
//! and correct every checksum that covers them by the difference only (RFC 1624). A checksum that
//! was wrong stays wrong, so the receiver still notices. The caller chooses a flow's address: look
//! up its [`FlowKey`](crate::flow_key::FlowKey), and rewrite.
//!
//! - TCP and UDP have ports. A UDP checksum of 0, which means "no checksum", stays 0.
//! - The port of an ICMP or ICMPv6 echo is its identifier (RFC 5508, section 3.1).
//! - A later fragment has no transport header: only its address is rewritten.
//! - An ICMP or ICMPv6 error goes the opposite way of the packet that it quotes. Its own address is
//!   rewritten on the named side, and the quoted address and port on the opposite side (RFC 5508,
//!   section 4), as far as they are quoted.
//!
//! So one mapping serves packets and errors alike. For a flow from `10.0.0.1:1000` that leaves as
//! `203.0.113.1:4096`:
//!
//! ```
//! use hotloop_packet::{PacketBuf, build::{tcp, time_exceeded}, memory::MemPacket, nat};
//! use std::net::SocketAddrV4;
//!
//! let inside: SocketAddrV4 = "10.0.0.1:1000".parse()?;
//! let outside: SocketAddrV4 = "203.0.113.1:4096".parse()?;
//! let (sent, left) = [inside, outside].map(|end| tcp().from(end).to("192.0.2.1:80").build()).into();
//!
//! let mut packet = MemPacket::new(&sent);
//! nat::rewrite_source(&mut packet, outside)?;
//! assert_eq!(packet.data(), left);
//!
//! let mut reply = tcp().from("192.0.2.1:80").to(outside).packet_in_memory();
//! nat::rewrite_destination(&mut reply, inside)?;
//! assert_eq!(reply.data(), tcp().from("192.0.2.1:80").to(inside).build());
//!
//! let mut error = time_exceeded(&left).packet_in_memory();
//! nat::rewrite_destination(&mut error, inside)?;
//! assert_eq!(error.data(), time_exceeded(&sent).build());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Both functions skip VLAN tags and IPv6 extension headers, and don't look into tunnels. After
//! rewriting, the offsets of the packet's [`Layout`](crate::classify::Layout) are still right; its
//! hash and shard are those from before.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zerocopy::{FromBytes, big_endian::U16};

use crate::{
    Header, Malformed, PacketBuf,
    checksum::{Change, checksum},
    classify::plain_protocol_v4,
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    icmp::{self, IcmpHeader},
    icmpv6::{self, Icmpv6Header},
    ip::{Fragment, protocol},
    ipv4::{Ipv4Header, Ipv4View},
    ipv6::{self, Chain, Ipv6Header, Ipv6View},
    tcp::{self, TcpHeader},
    udp::UdpHeader,
};

/// Why a packet was not rewritten. The packet is unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NatError {
    /// The frame carries something other than IP.
    #[error("EtherType {ethertype:#06x} is neither IPv4 nor IPv6")]
    NotIp {
        /// The frame's EtherType, after VLAN tags.
        ethertype: u16,
    },
    /// The new address is of the other family.
    #[error("the packet cannot have the address {address}, which is of the other family")]
    MixedFamilies {
        /// The new address.
        address: IpAddr,
    },
    /// A header is cut or inconsistent: the packet's own, or one that an ICMP error quotes.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The packet is not TCP, UDP, an ICMP echo or an ICMP error; or an error quotes such a packet.
    #[error("a packet of protocol {protocol} without a port or an echo's identifier")]
    NoPort {
        /// The packet's protocol: see [`crate::ip::protocol`].
        protocol: u8,
    },
}

/// Rewrites a packet's source. For an ICMP error, also rewrites the quoted packet's destination.
///
/// An error from inside may come from another host, such as a router, than the quoted packet's
/// destination. It gets the new address all the same (RFC 5508, section 4.2, REQ-5).
///
/// # Errors
/// [`NatError`]; the packet is unchanged.
#[inline]
pub fn rewrite_source<P: PacketBuf>(
    packet: &mut P,
    to: impl Into<SocketAddr>,
) -> Result<(), NatError> {
    rewrite_packet(packet, End::Source, to.into())
}

/// Rewrites a packet's destination. For an ICMP error, also rewrites the quoted packet's source
/// (RFC 5508, section 4.2, REQ-4).
///
/// # Errors
/// [`NatError`]; the packet is unchanged.
#[inline]
pub fn rewrite_destination<P: PacketBuf>(
    packet: &mut P,
    to: impl Into<SocketAddr>,
) -> Result<(), NatError> {
    rewrite_packet(packet, End::Destination, to.into())
}

/// The end of a packet to rewrite.
#[derive(Clone, Copy)]
enum End {
    Source,
    Destination,
}

impl End {
    const fn opposite(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// The place of a packet. A quoted packet may consist of only its header.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Place {
    Frame,
    Quote,
}

#[inline(always)]
fn rewrite_packet<P: PacketBuf>(packet: &mut P, end: End, to: SocketAddr) -> Result<(), NatError> {
    let len_bytes = packet.len_bytes();
    let frame = packet.data_mut();
    if let SocketAddr::V4(plain_to) = to
        && let Some((header, transport)) = split_plain(frame, len_bytes)
    {
        let change = Ip::V4(header, *plain_to.ip()).set_address(end);
        transport.set_port(end, plain_to.port(), change);
        return Ok(());
    }
    rewrite_frame(frame, end, to)
}

/// The headers of a packet with all headers at fixed offsets, as in nearly all IPv4 packets.
#[inline(always)]
fn split_plain(frame: &mut [u8], len_bytes: usize) -> Option<(&mut Ipv4Header, Transport<'_>)> {
    let protocol = plain_protocol_v4(frame, len_bytes)?;
    let packet = frame.get_mut(ethernet::HEADER_BYTES..)?;
    let (header, message) = Ipv4Header::mut_from_prefix(packet).ok()?;
    let transport = match protocol {
        protocol::TCP => Transport::Tcp(TcpHeader::mut_from_prefix(message).ok()?.0),
        _ => Transport::Udp(UdpHeader::mut_from_prefix(message).ok()?.0),
    };
    Some((header, transport))
}

/// Any frame. It is not inlined, so that the callers of [`rewrite_packet`] stay small.
#[inline(never)]
fn rewrite_frame(frame: &mut [u8], end: End, to: SocketAddr) -> Result<(), NatError> {
    let cut = Malformed::cut(Header::Ethernet, ethernet::HEADER_BYTES, frame.len());
    let (ethertype, l3_offset) = ethernet::network_layer(frame).ok_or(cut)?;
    match (ethertype, to) {
        (ETHERTYPE_IPV4, SocketAddr::V4(_)) | (ETHERTYPE_IPV6, SocketAddr::V6(_)) => {
            let packet = frame.get_mut(l3_offset..).unwrap_or_default();
            rewrite(packet, Place::Frame, end, to)
        }
        (ETHERTYPE_IPV4 | ETHERTYPE_IPV6, _) => Err(NatError::MixedFamilies { address: to.ip() }),
        _ => Err(NatError::NotIp { ethertype }),
    }
}

/// Rewrites a packet of the family of `to`: all that can fail comes before the first change.
fn rewrite(packet: &mut [u8], place: Place, end: End, to: SocketAddr) -> Result<(), NatError> {
    let (ip, mut transport) = match to.ip() {
        IpAddr::V4(address) => split_v4(packet, place, address)?,
        IpAddr::V6(address) => split_v6(packet, place, address)?,
    };
    match &mut transport {
        Transport::Icmp(header, quote) if icmp::is_error(header.kind()) => {
            header.update_checksum(rewrite_quote(quote, end.opposite(), to)?);
        }
        Transport::Icmpv6(header, quote) if icmpv6::is_error(header.kind()) => {
            header.update_checksum(rewrite_quote(quote, end.opposite(), to)?);
        }
        _ => {}
    }
    let change = ip.set_address(end);
    transport.set_port(end, to.port(), change);
    Ok(())
}

/// Rewrites the quote of an ICMP error, and returns the change of the error's payload.
fn rewrite_quote(quote: &mut [u8], end: End, to: SocketAddr) -> Result<Change, NatError> {
    let before = checksum(quote);
    rewrite(quote, Place::Quote, end, to)?;
    // A sum is the complement of a checksum.
    Ok(Change::of_word(!before, !checksum(quote)))
}

/// An IP header and its new address.
enum Ip<'a> {
    V4(&'a mut Ipv4Header, Ipv4Addr),
    V6(&'a mut Ipv6Header, Ipv6Addr),
}

impl Ip<'_> {
    fn set_address(self, end: End) -> Change {
        match (self, end) {
            (Self::V4(header, to), End::Source) => header.set_source(to),
            (Self::V4(header, to), End::Destination) => header.set_destination(to),
            (Self::V6(header, to), End::Source) => header.set_source(to),
            (Self::V6(header, to), End::Destination) => header.set_destination(to),
        }
    }
}

/// The header after the IP header.
enum Transport<'a> {
    /// There is none, or not enough of it: in a later fragment, and in a short quote.
    Hidden,
    /// Both ports of TCP, in a quote that ends before the checksum.
    Ports(&'a mut [U16; 2]),
    Tcp(&'a mut TcpHeader),
    Udp(&'a mut UdpHeader),
    /// An echo or an error, and the bytes after its header.
    Icmp(&'a mut IcmpHeader, &'a mut [u8]),
    Icmpv6(&'a mut Icmpv6Header, &'a mut [u8]),
}

impl<'a> Transport<'a> {
    /// The header at the start of `message`, of one of the protocols that have ports.
    fn parse(protocol: u8, message: &'a mut [u8], place: Place) -> Result<Self, NatError> {
        let shown_bytes = message.len();
        // A quote shows eight bytes or more (RFC 792), else no port is known.
        if place == Place::Quote && shown_bytes < 8 {
            return Ok(Self::Hidden);
        }
        match protocol {
            protocol::TCP if place == Place::Quote && shown_bytes < tcp::HEADER_BYTES => {
                let ports = <[U16; 2]>::mut_from_prefix(message);
                Ok(ports.map_or(Self::Hidden, |(ports, _)| Self::Ports(ports)))
            }
            protocol::TCP => Ok(Self::Tcp(TcpHeader::parse_mut(message)?)),
            protocol::UDP => Ok(Self::Udp(UdpHeader::parse_mut(message)?)),
            protocol::ICMP => {
                let Ok((header, rest)) = IcmpHeader::mut_from_prefix(message) else {
                    return Err(
                        Malformed::cut(Header::Icmp, icmp::HEADER_BYTES, shown_bytes).into()
                    );
                };
                let is_error = place == Place::Frame && icmp::is_error(header.kind());
                if !icmp::is_echo(header.kind()) && !is_error {
                    return Err(NatError::NoPort { protocol });
                }
                Ok(Self::Icmp(header, rest))
            }
            protocol::ICMPV6 => {
                let Ok((header, rest)) = Icmpv6Header::mut_from_prefix(message) else {
                    let wanted_bytes = icmpv6::HEADER_BYTES;
                    return Err(Malformed::cut(Header::Icmpv6, wanted_bytes, shown_bytes).into());
                };
                let is_error = place == Place::Frame && icmpv6::is_error(header.kind());
                if !icmpv6::is_echo(header.kind()) && !is_error {
                    return Err(NatError::NoPort { protocol });
                }
                Ok(Self::Icmpv6(header, rest))
            }
            _ => Err(NatError::NoPort { protocol }),
        }
    }

    /// Writes the port, and corrects the checksum by that and by the change of the address.
    fn set_port(self, end: End, port: u16, address: Change) {
        match self {
            Self::Hidden => {}
            Self::Ports(ports) => ports[end as usize].set(port),
            Self::Tcp(header) => {
                header.update_checksum(address);
                match end {
                    End::Source => header.set_source_port(port),
                    End::Destination => header.set_destination_port(port),
                }
            }
            Self::Udp(header) => {
                header.update_checksum(address);
                match end {
                    End::Source => header.set_source_port(port),
                    End::Destination => header.set_destination_port(port),
                }
            }
            // An error has no identifier and stays.
            Self::Icmp(header, _) => {
                header.set_echo_identifier(port);
            }
            Self::Icmpv6(header, _) => {
                header.update_checksum(address);
                header.set_echo_identifier(port);
            }
        }
    }
}

fn split_v4(
    packet: &mut [u8],
    place: Place,
    to: Ipv4Addr,
) -> Result<(Ip<'_>, Transport<'_>), NatError> {
    let view = Ipv4View::parse_cut(packet)?;
    let (protocol, fragment) = (view.protocol(), view.fragment());
    let (header_bytes, payload_bytes) = (view.header_bytes(), view.payload().len());
    let (header, rest) = packet.split_at_mut(header_bytes);
    let transport = match (fragment, protocol) {
        (Fragment::Later, _) => Transport::Hidden,
        (_, protocol::ICMPV6) => return Err(NatError::NoPort { protocol }),
        _ => Transport::parse(protocol, &mut rest[..payload_bytes], place)?,
    };
    Ok((Ip::V4(Ipv4Header::parse_mut(header)?, to), transport))
}

fn split_v6(
    packet: &mut [u8],
    place: Place,
    to: Ipv6Addr,
) -> Result<(Ip<'_>, Transport<'_>), NatError> {
    let view = Ipv6View::parse_cut(packet)?;
    let payload_bytes = view.payload().len();
    let chain = view.chain();
    let (header, rest) = packet.split_at_mut(ipv6::HEADER_BYTES);
    let transport = match chain {
        Ok(chain) if chain.fragment == Fragment::Later => Transport::Hidden,
        Ok(Chain { protocol: protocol @ protocol::ICMP, .. }) => {
            return Err(NatError::NoPort { protocol });
        }
        Ok(Chain { protocol, offset_bytes, .. }) => {
            Transport::parse(protocol, &mut rest[offset_bytes..payload_bytes], place)?
        }
        // The quote ends within the extension headers.
        Err(_) if place == Place::Quote => Transport::Hidden,
        Err(error) => return Err(error.into()),
    };
    Ok((Ip::V6(Ipv6Header::parse_mut(header)?, to), transport))
}
