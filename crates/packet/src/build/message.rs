//! Messages in built packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{
    checksum, ethernet, icmp, icmpv6,
    ip::protocol,
    ipv4::Ipv4View,
    ipv6::{self, Ipv6View},
    udp,
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
        let (mut bytes, checksum_offset) = match self {
            Self::Udp => {
                let length = u16::try_from(udp::HEADER_BYTES + payload.len())
                    .unwrap_or_else(|_| panic!("{} bytes in one datagram", payload.len()));
                let words = [source.port(), destination.port(), length, 0];
                (words.map(u16::to_be_bytes).concat(), 6)
            }
            Self::Tcp { flags, sequence, acknowledgment, options } => {
                let numbers = (*sequence, *acknowledgment);
                (tcp_header(source.port(), destination.port(), numbers, *flags, options), 16)
            }
            Self::Echo { is_reply, identifier, sequence } => {
                let kind = match (is_reply, is_v6) {
                    (false, false) => icmp::kind::ECHO_REQUEST,
                    (true, false) => icmp::kind::ECHO_REPLY,
                    (false, true) => icmpv6::kind::ECHO_REQUEST,
                    (true, true) => icmpv6::kind::ECHO_REPLY,
                };
                let words = [u16::from(kind) << 8, 0, *identifier, *sequence];
                (words.map(u16::to_be_bytes).concat(), 2)
            }
            Self::Error(error) => (error.header(is_v6), 2),
            Self::Other { .. } => return payload.to_vec(),
        };
        bytes.extend_from_slice(payload);
        let sum = self.checksum(source.ip(), destination.ip(), &bytes);
        bytes[checksum_offset..checksum_offset + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn checksum(&self, source: IpAddr, destination: IpAddr, bytes: &[u8]) -> u16 {
        let protocol = self.protocol(source.is_ipv6());
        let sum = match (source, destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) if protocol == protocol::ICMP => {
                checksum::checksum(bytes)
            }
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                checksum::transport_v4(source, destination, protocol, bytes)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                checksum::transport_v6(source, destination, protocol, bytes)
            }
            _ => panic!("from {source} to {destination}: two families"),
        };
        if sum == 0 && protocol == protocol::UDP { 0xffff } else { sum }
    }
}

impl Error {
    fn header(self, is_v6: bool) -> Vec<u8> {
        let (kind, code, rest) = match (self, is_v6) {
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
        };
        let mut header = vec![kind, code, 0, 0];
        header.extend(u32::to_be_bytes(rest));
        header
    }
}

fn tcp_header(
    source_port: u16,
    destination_port: u16,
    (sequence, acknowledgment): (u32, u32),
    flags: u8,
    options: &[u8],
) -> Vec<u8> {
    let option_bytes = options.len();
    assert!(
        option_bytes <= 40 && option_bytes.is_multiple_of(4),
        "{option_bytes} bytes of TCP options"
    );
    let mut header = [source_port, destination_port].map(u16::to_be_bytes).concat();
    header.extend([sequence, acknowledgment].map(u32::to_be_bytes).concat());
    let data_offset = (20 + option_bytes) / 4;
    header.extend([(data_offset as u8) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    header.extend_from_slice(options);
    header
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
