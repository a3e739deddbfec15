//! Frames for tests: a function begins a frame, methods change it, and [`PacketBuilder::build`]
//! finishes it.
//!
//! Defaults: from `10.0.0.1:1000` to `192.0.2.1:80` (from `[2001:db8::1]:1000` to
//! `[2001:db8:ffff::1]:80` if the given end is IPv6), TTL 64, no payload. Lengths and checksums are
//! right.
//!
//! ```
//! use hotloop_packet::build::{tcp, time_exceeded, udp};
//!
//! let expired = udp().ttl(1).to("198.51.100.7:53").payload(b"query").build();
//! assert_eq!(expired.len(), 14 + 20 + 8 + 5);
//! let error = time_exceeded(&expired).from("203.0.113.1").build();
//! assert_eq!(error.len(), 14 + 20 + 8 + 33);
//! let reply = tcp().from("[2001:db8::7]:80").vlan(7).tunnelled("10.9.0.1", "10.9.0.2").build();
//! assert_eq!(reply.len(), 18 + 20 + 40 + 20);
//! ```
//!
//! # Panics
//! Because this is for tests, impossible frames panic with a message that names the mistake: an
//! address that does not parse, two families in one header, options of a wrong length, or more
//! bytes than a length field can count.

mod message;
mod network;

use std::{
    fmt::Display,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use self::{
    message::{Error, Message, written},
    network::{IpFields, Packet},
};
use crate::{
    PacketBuf,
    arp::{ArpMessage, Neighbour, operation},
    ethernet::{
        self, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_QINQ, ETHERTYPE_VLAN,
        EthernetHeader, MacAddress, VlanTag,
    },
    memory::MemPacket,
    tcp::flags,
};

/// The default Ethernet source.
pub const SOURCE_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 1]);

/// The default Ethernet destination.
pub const DESTINATION_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 2]);

/// Length in bytes of the shortest frame on a wire, without its check sequence.
const FRAME_BYTES_MIN: usize = 60;

/// A frame that is being built.
#[derive(Clone, Debug)]
#[must_use]
pub struct PacketBuilder {
    macs: (MacAddress, MacAddress),
    tags: Vec<VlanTag>,
    is_padded: bool,
    source: Endpoint,
    destination: Endpoint,
    ip: IpFields,
    message: Message,
    payload: Vec<u8>,
    /// From innermost to outermost.
    tunnels: Vec<(IpAddr, IpAddr)>,
}

/// An optional address, and a port.
#[derive(Clone, Copy, Debug)]
struct Endpoint {
    address: Option<IpAddr>,
    port: u16,
}

/// Begins a UDP datagram.
pub fn udp() -> PacketBuilder {
    PacketBuilder::new(Message::Udp)
}

/// Begins a TCP segment: a SYN, unless [`PacketBuilder::tcp_flags`] sets other flags.
pub fn tcp() -> PacketBuilder {
    let options = Vec::new();
    PacketBuilder::new(Message::Tcp { flags: flags::SYN, sequence: 1, acknowledgment: 0, options })
}

/// Begins an ICMP or ICMPv6 echo request.
pub fn echo_request(identifier: u16, sequence: u16) -> PacketBuilder {
    PacketBuilder::new(Message::Echo { is_reply: false, identifier, sequence })
}

/// Begins an ICMP or ICMPv6 echo reply.
pub fn echo_reply(identifier: u16, sequence: u16) -> PacketBuilder {
    PacketBuilder::new(Message::Echo { is_reply: true, identifier, sequence })
}

/// Begins an IP packet with this protocol and any payload.
pub fn protocol(protocol: u8) -> PacketBuilder {
    PacketBuilder::new(Message::Other { protocol })
}

/// Begins the ICMP or ICMPv6 error that no program listens on the port to which the frame
/// `about` was sent.
///
/// The error comes from a router, `192.0.2.254` or `2001:db8::fe`, unless [`PacketBuilder::from`]
/// sets another source. It goes to the quoted packet's source, and quotes as much of that packet as
/// fits into 576 or 1,280 bytes.
pub fn unreachable(about: &[u8]) -> PacketBuilder {
    PacketBuilder::error(Error::PortUnreachable, about)
}

/// Begins the ICMP or ICMPv6 error that the frame `about` took too many hops; see
/// [`unreachable()`].
pub fn time_exceeded(about: &[u8]) -> PacketBuilder {
    PacketBuilder::error(Error::TimeExceeded, about)
}

/// Begins the ICMP or ICMPv6 error that the frame `about` exceeds a link's MTU; see
/// [`unreachable()`].
pub fn too_big(about: &[u8], mtu_bytes: u16) -> PacketBuilder {
    PacketBuilder::error(Error::TooBig { mtu_bytes }, about)
}

/// Begins the ICMP or ICMPv6 error that the protocol or next-header field in the frame `about` is
/// wrong. See [`unreachable()`].
pub fn parameter_problem(about: &[u8]) -> PacketBuilder {
    PacketBuilder::error(Error::ParameterProblem, about)
}

/// Begins the ICMP message that a router was congested when the IPv4 frame `about` came
/// (RFC 6633: no longer sent). See [`unreachable()`].
pub fn source_quench(about: &[u8]) -> PacketBuilder {
    PacketBuilder::error(Error::SourceQuench, about)
}

/// Begins the ICMP message that `gateway` is a better next hop for the IPv4 frame `about`. See
/// [`unreachable()`].
pub fn redirect(about: &[u8], gateway: Ipv4Addr) -> PacketBuilder {
    PacketBuilder::error(Error::Redirect { gateway }, about)
}

/// The frame in which `sender` asks for the Ethernet address of `target`.
pub fn arp_request(sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let sender = Neighbour { mac: SOURCE_MAC, address: sender };
    let target = Neighbour { mac: MacAddress::default(), address: target };
    let message = ArpMessage::new(operation::REQUEST, sender, target).to_bytes();
    ethernet((SOURCE_MAC, MacAddress::BROADCAST), &[], ETHERTYPE_ARP, &message)
}

impl PacketBuilder {
    fn new(message: Message) -> Self {
        Self {
            macs: (SOURCE_MAC, DESTINATION_MAC),
            tags: Vec::new(),
            is_padded: false,
            source: Endpoint { address: None, port: 1000 },
            destination: Endpoint { address: None, port: 80 },
            ip: IpFields::default(),
            message,
            payload: Vec::new(),
            tunnels: Vec::new(),
        }
    }

    fn error(error: Error, about: &[u8]) -> Self {
        let (source, quote) = message::quote(about);
        let mut builder = Self::new(Message::Error(error)).payload(quote);
        builder.source.address = Some(message::router(source));
        builder.destination.address = Some(source);
        builder
    }

    /// Sets the packet's source: an address, or an address and a port.
    pub fn from(mut self, source: impl Display) -> Self {
        self.source.set(&source.to_string());
        self
    }

    /// Sets the packet's destination: an address, or an address and a port.
    pub fn to(mut self, destination: impl Display) -> Self {
        self.destination.set(&destination.to_string());
        self
    }

    /// Sets the message's payload, or an error's quote.
    pub fn payload(mut self, payload: impl AsRef<[u8]>) -> Self {
        self.payload = payload.as_ref().to_vec();
        self
    }

    /// Cuts the payload to `len_bytes` bytes: for errors that quote little.
    pub fn quote_bytes(mut self, len_bytes: usize) -> Self {
        self.payload.truncate(len_bytes);
        self
    }

    /// TTL or hop limit.
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ip.ttl = ttl;
        self
    }

    /// TOS or traffic class: differentiated services and congestion mark.
    pub fn tos(mut self, tos: u8) -> Self {
        self.ip.tos = tos;
        self
    }

    /// Identification: of any packet in IPv4, of fragments in IPv6. 1 by default.
    pub fn identification(mut self, identification: u16) -> Self {
        self.ip.identification = identification;
        self
    }

    /// Forbids routers to fragment the packet (IPv4).
    pub fn dont_fragment(mut self) -> Self {
        self.ip.dont_fragment = true;
        self
    }

    /// IPv4 options: a multiple of four bytes, up to 40.
    pub fn ipv4_options(mut self, options: &[u8]) -> Self {
        self.ip.options = options.to_vec();
        self
    }

    /// Adds an IPv6 extension header after those added before. `body` is the header without its
    /// first two bytes, next header and length. The whole header must be a multiple of eight bytes
    /// long (of four for the authentication header).
    pub fn extension(mut self, next_header: u8, body: &[u8]) -> Self {
        self.ip.extensions.push((next_header, body.to_vec()));
        self
    }

    /// TCP: the segment's flags (see [`crate::tcp::flags`]).
    pub fn tcp_flags(mut self, new: u8) -> Self {
        if let Message::Tcp { flags, .. } = &mut self.message {
            *flags = new;
        }
        self
    }

    /// TCP: sequence and acknowledgement number.
    pub fn sequence(mut self, number: u32, acknowledged: u32) -> Self {
        if let Message::Tcp { sequence, acknowledgment, .. } = &mut self.message {
            (*sequence, *acknowledgment) = (number, acknowledged);
        }
        self
    }

    /// TCP: options, a multiple of four bytes, up to 40.
    pub fn tcp_options(mut self, bytes: &[u8]) -> Self {
        if let Message::Tcp { options, .. } = &mut self.message {
            *options = bytes.to_vec();
        }
        self
    }

    /// The frame's source and destination.
    pub fn macs(mut self, source: MacAddress, destination: MacAddress) -> Self {
        self.macs = (source, destination);
        self
    }

    /// Adds a VLAN tag (802.1Q) after those added before.
    pub fn vlan(mut self, vlan: u16) -> Self {
        self.tags.push(VlanTag::new(ETHERTYPE_VLAN, vlan));
        self
    }

    /// Adds two VLAN tags, the outer one of type 802.1ad.
    pub fn qinq(mut self, outer: u16, inner: u16) -> Self {
        self.tags.push(VlanTag::new(ETHERTYPE_QINQ, outer));
        self.vlan(inner)
    }

    /// Pads the frame with zeroes to 60 bytes, as a network card does.
    pub fn padded(mut self) -> Self {
        self.is_padded = true;
        self
    }

    /// Wraps the packet into an IP-in-IP packet. Further calls add more tunnels around that.
    pub fn tunnelled(mut self, source: impl Display, destination: impl Display) -> Self {
        let ends = [source.to_string(), destination.to_string()]
            .map(|text| text.parse().unwrap_or_else(|_| panic!("{text:?} is no IP address")));
        self.tunnels.push(ends.into());
        self
    }

    /// The frame.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        let packet = self.packet();
        let bytes = packet.bytes();
        self.finish(packet.is_v6(), bytes)
    }

    /// The frames of the packet's fragments, each with an IP packet of at most `mtu_bytes` bytes; a
    /// single unfragmented frame if the packet fits. Each fragment is wrapped in the tunnels.
    #[must_use]
    pub fn build_fragments(self, mtu_bytes: usize) -> Vec<Vec<u8>> {
        let packet = self.packet();
        let fragments = packet.fragments(mtu_bytes);
        fragments.into_iter().map(|bytes| self.finish(packet.is_v6(), bytes)).collect()
    }

    /// The frame, as a packet in memory.
    #[must_use]
    pub fn packet_in_memory(self) -> MemPacket {
        MemPacket::from(self.build())
    }

    fn packet(&self) -> Packet {
        let given = self.destination.address.or(self.source.address);
        let (source, destination) = match given {
            Some(IpAddr::V6(_)) => ("2001:db8::1", "2001:db8:ffff::1"),
            _ => ("10.0.0.1", "192.0.2.1"),
        };
        let source = self.source.or(source);
        let destination = self.destination.or(destination);
        let message = self.message.bytes(source, destination, &self.payload);
        let protocol = self.message.protocol(source.is_ipv6());
        Packet::new(self.ip.clone(), source.ip(), destination.ip(), protocol, message)
    }

    /// Puts tunnels and Ethernet around a packet.
    fn finish(&self, is_v6: bool, packet: Vec<u8>) -> Vec<u8> {
        let (mut is_v6, mut bytes) = (is_v6, packet);
        for (source, destination) in &self.tunnels {
            let protocol = network::tunnel_protocol(is_v6);
            let outer = Packet::new(IpFields::default(), *source, *destination, protocol, bytes);
            (is_v6, bytes) = (outer.is_v6(), outer.bytes());
        }
        let ethertype = if is_v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        let mut frame = ethernet(self.macs, &self.tags, ethertype, &bytes);
        if self.is_padded && frame.len() < FRAME_BYTES_MIN {
            frame.resize(FRAME_BYTES_MIN, 0);
        }
        frame
    }
}

impl From<PacketBuilder> for Vec<u8> {
    fn from(builder: PacketBuilder) -> Self {
        builder.build()
    }
}

impl From<PacketBuilder> for MemPacket {
    fn from(builder: PacketBuilder) -> Self {
        builder.packet_in_memory()
    }
}

impl Endpoint {
    fn set(&mut self, text: &str) {
        if let Ok(both) = text.parse::<SocketAddr>() {
            (self.address, self.port) = (Some(both.ip()), both.port());
        } else if let Ok(address) = text.parse() {
            self.address = Some(address);
        } else {
            panic!("{text:?} is neither an IP address nor one with a port");
        }
    }

    fn or(&self, default: &str) -> SocketAddr {
        let address = self.address.or_else(|| default.parse().ok());
        SocketAddr::new(address.expect("defaults are addresses"), self.port)
    }
}

fn ethernet(
    (source, destination): (MacAddress, MacAddress),
    tags: &[VlanTag],
    ethertype: u16,
    payload: &[u8],
) -> Vec<u8> {
    let room_bytes = ethernet::HEADER_BYTES + size_of_val(tags);
    let mut packet = MemPacket::with_room(payload, room_bytes, 0);
    written(ethernet::push(&mut packet, EthernetHeader::new(source, destination, ethertype)));
    for tag in tags.iter().rev() {
        written(ethernet::insert_tag(&mut packet, *tag));
    }
    packet.data().to_vec()
}
