//! Messages in built packets.

use std::{
    fmt::Display,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use crate::{
    PacketBuf,
    checksum::Sum,
    ethernet,
    icmp::{self, IcmpHeader},
    icmpv6::{self, Icmpv6Header},
    ip::protocol,
    ipv4::Ipv4View,
    ipv6::{self, Ipv6View},
    memory::MemPacket,
    tcp::{self, TcpHeader},
    udp::{self, UdpHeader},
    write::Field,
};

#[derive(Clone, Debug)]
pub(super) enum Message {
    Udp,
    Tcp { flags: u8, sequence: u32, acknowledgment: u32, options: Vec<u8> },
    Echo { is_reply: bool, identifier: u16, sequence: u16 },
    Error(Error),
    Other { protocol: u8 },
}

/// ICMP and ICMPv6 errors.
#[derive(Clone, Copy, Debug)]
pub(super) enum Error {
    PortUnreachable,
    TimeExceeded,
    TooBig { mtu_bytes: u16 },
    ParameterProblem,
    SourceQuench,
    Redirect { gateway: Ipv4Addr },
}

impl Message {
    pub(super) fn protocol(&self, is_v6: bool) -> u8 {
        match self {
            Self::Udp => protocol::UDP,
            Self::Tcp { .. } => protocol::TCP,
            Self::Echo { .. } | Self::Error(_) if is_v6 => protocol::ICMPV6,
            Self::Echo { .. } | Self::Error(_) => protocol::ICMP,
            Self::Other { protocol } => *protocol,
        }
    }

    /// The message, with its checksum.
    pub(super) fn bytes(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
        payload: &[u8],
    ) -> Vec<u8> {
        let is_v6 = source.is_ipv6();
        let mut packet =
            MemPacket::with_room(payload, tcp::HEADER_BYTES + tcp::OPTION_BYTES_MAX, 0);
        match self {
            Self::Udp => {
                let header = UdpHeader::new(source.port(), destination.port());
                written(udp::push(&mut packet, header));
            }
            Self::Tcp { flags, sequence, acknowledgment, options } => {
                let mut header = TcpHeader::new(source.port(), destination.port(), *flags);
                header.set_sequence_number(*sequence);
                header.set_acknowledgment_number(*acknowledgment);
                assert!(options.len().is_multiple_of(4), "{} bytes of TCP options", options.len());
                written(tcp::push(&mut packet, header, options));
            }
            Self::Echo { is_reply, identifier, sequence } => {
                let kind = match (is_reply, is_v6) {
                    (false, false) => icmp::kind::ECHO_REQUEST,
                    (true, false) => icmp::kind::ECHO_REPLY,
                    (false, true) => icmpv6::kind::ECHO_REQUEST,
                    (true, true) => icmpv6::kind::ECHO_REPLY,
                };
                let rest = u32::from(*identifier) << 16 | u32::from(*sequence);
                push_icmp(&mut packet, is_v6, (kind, 0, rest));
            }
            Self::Error(error) => push_icmp(&mut packet, is_v6, error.fields(is_v6)),
            Self::Other { .. } => return payload.to_vec(),
        }
        let protocol = self.protocol(is_v6);
        let len_bytes = packet.len_bytes();
        let pseudo = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Sum::default().pseudo_v4(source, destination, protocol, len_bytes as u16)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Sum::default().pseudo_v6(source, destination, protocol, len_bytes as u32)
            }
            _ => panic!("from {source} to {destination}: two families"),
        };
        let field = Field::of(&packet, (protocol, 0), pseudo);
        if let Some(field) = field.expect("a header that was just built") {
            field.write(packet.data_mut());
        }
        packet.data().to_vec()
    }
}

fn push_icmp(packet: &mut MemPacket, is_v6: bool, (kind, code, rest): (u8, u8, u32)) {
    written(if is_v6 {
        icmpv6::push(packet, Icmpv6Header::new(kind, code, rest))
    } else {
        icmp::push(packet, IcmpHeader::new(kind, code, rest))
    });
}

/// The result of a function that writes a header.
pub(super) fn written<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

impl Error {
    /// Type, code and the four bytes that depend on the type.
    fn fields(self, is_v6: bool) -> (u8, u8, u32) {
        match (self, is_v6) {
            (Self::PortUnreachable, false) => (icmp::kind::DESTINATION_UNREACHABLE, 3, 0),
            (Self::PortUnreachable, true) => (icmpv6::kind::DESTINATION_UNREACHABLE, 4, 0),
            (Self::TimeExceeded, false) => (icmp::kind::TIME_EXCEEDED, 0, 0),
            (Self::TimeExceeded, true) => (icmpv6::kind::TIME_EXCEEDED, 0, 0),
            // The MTU lies in the last 16 bits for IPv4, and in all 32 for IPv6.
            (Self::TooBig { mtu_bytes }, false) => {
                let code = icmp::CODE_FRAGMENTATION_NEEDED;
                (icmp::kind::DESTINATION_UNREACHABLE, code, u32::from(mtu_bytes))
            }
            (Self::TooBig { mtu_bytes }, true) => {
                (icmpv6::kind::PACKET_TOO_BIG, 0, u32::from(mtu_bytes))
            }
            // Both point to the protocol: the first byte of IPv4's four, or all four.
            (Self::ParameterProblem, false) => (icmp::kind::PARAMETER_PROBLEM, 0, 9 << 24),
            (Self::ParameterProblem, true) => (icmpv6::kind::PARAMETER_PROBLEM, 1, 6),
            (Self::SourceQuench, false) => (icmp::kind::SOURCE_QUENCH, 0, 0),
            (Self::Redirect { gateway }, false) => (icmp::kind::REDIRECT, 1, gateway.to_bits()),
            (Self::SourceQuench | Self::Redirect { .. }, true) => {
                panic!("ICMPv6 has no {self:?} that quotes as IPv4's does")
            }
        }
    }
}

/// The source of the IP packet in the frame `about`, and the part that an error quotes.
pub(super) fn quote(about: &[u8]) -> (IpAddr, Vec<u8>) {
    let l3_offset = ethernet::l3_offset(about).unwrap_or(about.len());
    let bytes = &about[l3_offset..];
    if let Ok(view) = Ipv4View::parse(bytes) {
        let quoted_bytes = usize::from(view.total_length()).min(576 - 28);
        return (view.source().into(), bytes[..quoted_bytes].to_vec());
    }
    let Ok(view) = Ipv6View::parse(bytes) else { panic!("no IP packet to quote: {about:02x?}") };
    let total = ipv6::HEADER_BYTES + usize::from(view.payload_length());
    (view.source().into(), bytes[..total.min(1280 - 48)].to_vec())
}

/// The source of errors to this destination.
pub(super) fn router(destination: IpAddr) -> IpAddr {
    match destination {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 254).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe).into(),
    }
}
