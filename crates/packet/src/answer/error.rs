//! ICMP errors, each quoting as much as fits of the packet that caused it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::IntoBytes;

use crate::{
    PacketBuf,
    answer::{
        AnswerError,
        about::{About, Ends},
    },
    checksum::Sum,
    icmp::{self, IcmpHeader},
    icmpv6::{self, Icmpv6Header},
    ip::protocol,
    ipv4::{self, Ipv4Header},
    ipv6::{self, Ipv6Header},
};

/// Length in bytes of the longest IPv4 packet that carries an error (RFC 1812, section 4.3.2.3).
const QUOTING_BYTES_MAX_V4: usize = 576;

/// Length in bytes of the longest IPv6 packet that carries an error: IPv6's smallest MTU (RFC 4443,
/// section 2.4 (c)).
const QUOTING_BYTES_MAX_V6: usize = 1280;

/// Differentiated services of errors: the class for network control (RFC 1812, section 4.3.2.5; RFC
/// 2474, section 4.2.2.2).
const DSCP: u8 = 0x30;

/// Length in bytes of an error's headers.
const GROWN_V4: usize = ipv4::HEADER_BYTES + icmp::HEADER_BYTES;
const GROWN_V6: usize = ipv6::HEADER_BYTES + icmpv6::HEADER_BYTES;

/// An ICMP error, for either family: see [`icmp_error`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IcmpError {
    /// The packet's TTL or hop limit ran out (RFC 792; RFC 4443, section 3.3).
    TimeExceeded,
    /// The packet is too big: fragmentation needed (RFC 1191, section 4) or packet too big (RFC
    /// 4443, section 3.2). In IPv4 this is for packets that must not be fragmented; others are
    /// [split](crate::fragment::split).
    TooBig {
        /// The largest packet that fits, IP header included.
        mtu_bytes: u16,
    },
    /// A field of the packet's header is invalid (RFC 792; RFC 4443, section 3.4, code 0).
    ParameterProblem {
        /// The field's offset in bytes from the start of the IP header. IPv4's message holds only
        /// the lowest 8 bits.
        pointer: u32,
    },
    /// There is no route to the destination (RFC 792, code 0; RFC 4443, section 3.1, code 0).
    NoRoute,
    /// The destination doesn't answer on its link (RFC 792, code 1; RFC 4443, section 3.1, code 3).
    HostUnreachable,
    /// Nothing listens to the destination's port (RFC 792, code 3; RFC 4443, section 3.1, code 4).
    PortUnreachable,
    /// A firewall forbids the packet (RFC 1812, section 5.2.7.1, code 13; RFC 4443, section 3.1,
    /// code 1).
    Prohibited,
}

impl IcmpError {
    fn header_v4(self) -> IcmpHeader {
        let unreachable = |code| (icmp::kind::DESTINATION_UNREACHABLE, code, 0);
        let (kind, code, rest) = match self {
            Self::TimeExceeded => (icmp::kind::TIME_EXCEEDED, 0, 0),
            // The MTU lies in the last 16 bits.
            Self::TooBig { mtu_bytes } => {
                let code = icmp::CODE_FRAGMENTATION_NEEDED;
                (icmp::kind::DESTINATION_UNREACHABLE, code, u32::from(mtu_bytes))
            }
            Self::ParameterProblem { pointer } => (icmp::kind::PARAMETER_PROBLEM, 0, pointer << 24),
            Self::NoRoute => unreachable(0),
            Self::HostUnreachable => unreachable(1),
            Self::PortUnreachable => unreachable(3),
            Self::Prohibited => unreachable(13),
        };
        IcmpHeader::new(kind, code, rest)
    }

    fn header_v6(self) -> Icmpv6Header {
        let unreachable = |code| (icmpv6::kind::DESTINATION_UNREACHABLE, code, 0);
        let (kind, code, rest) = match self {
            Self::TimeExceeded => (icmpv6::kind::TIME_EXCEEDED, 0, 0),
            Self::TooBig { mtu_bytes } => (icmpv6::kind::PACKET_TOO_BIG, 0, u32::from(mtu_bytes)),
            Self::ParameterProblem { pointer } => (icmpv6::kind::PARAMETER_PROBLEM, 0, pointer),
            Self::NoRoute => unreachable(0),
            Self::HostUnreachable => unreachable(3),
            Self::PortUnreachable => unreachable(4),
            Self::Prohibited => unreachable(1),
        };
        Icmpv6Header::new(kind, code, rest)
    }
}

/// Turns a packet into an ICMP error from `from` to its source.
///
/// The message quotes the packet unchanged, up to the end of its first segment and to a total of
/// 576 bytes for IPv4 or 1,280 for IPv6. Other segments are freed.
///
/// # Errors
/// [`AnswerError`]; the packet is unchanged.
pub fn icmp_error<P: PacketBuf>(
    packet: &mut P,
    from: impl Into<IpAddr>,
    error: IcmpError,
) -> Result<(), AnswerError> {
    let about = About::read(packet)?;
    let is_too_big = matches!(error, IcmpError::TooBig { .. });
    about.allow_error(packet.data(), is_too_big)?;
    quote(packet, &about, from.into(), error)
}

/// Puts the error's headers in front of the packet. The only step that can fail comes first.
fn quote<P: PacketBuf>(
    packet: &mut P,
    about: &About,
    from: IpAddr,
    error: IcmpError,
) -> Result<(), AnswerError> {
    let back = about.back_from(from)?;
    let l3_offset = about.l3_offset;
    let (grown_bytes, bytes_max) = match back {
        Ends::V4(..) => (GROWN_V4, QUOTING_BYTES_MAX_V4),
        Ends::V6(..) => (GROWN_V6, QUOTING_BYTES_MAX_V6),
    };
    let shown_bytes = packet.data().len().saturating_sub(l3_offset);
    let quoted_bytes = about.total_bytes.min(shown_bytes).min(bytes_max - grown_bytes);
    let bytes = packet.prepend(grown_bytes)?;
    bytes.copy_within(grown_bytes..grown_bytes + l3_offset, 0);
    packet.truncate(l3_offset + grown_bytes + quoted_bytes);
    let answer = packet.data_mut().get_mut(l3_offset..).unwrap_or_default();
    match back {
        Ends::V4(source, destination) => fill_v4(answer, source, destination, error),
        Ends::V6(source, destination) => fill_v6(answer, source, destination, error),
    }
    Ok(())
}

/// Writes the headers of an answer that already holds its quote.
fn fill_v4(answer: &mut [u8], source: Ipv4Addr, destination: Ipv4Addr, error: IcmpError) {
    let total_bytes = answer.len() as u16;
    let Some((headers, quote)) = answer.split_first_chunk_mut::<GROWN_V4>() else { return };
    let mut ip = Ipv4Header::new(source, destination, protocol::ICMP);
    ip.set_dscp(DSCP);
    let icmp = error.header_v4().completed(Sum::default().bytes(quote));
    headers[..ipv4::HEADER_BYTES].copy_from_slice(ip.completed(total_bytes).as_bytes());
    headers[ipv4::HEADER_BYTES..].copy_from_slice(icmp.as_bytes());
}

/// [`fill_v4`] for IPv6.
fn fill_v6(answer: &mut [u8], source: Ipv6Addr, destination: Ipv6Addr, error: IcmpError) {
    let payload_bytes = answer.len().saturating_sub(ipv6::HEADER_BYTES) as u16;
    let Some((headers, quote)) = answer.split_first_chunk_mut::<GROWN_V6>() else { return };
    let mut ip = Ipv6Header::new(source, destination, protocol::ICMPV6);
    ip.set_dscp(DSCP);
    let _ = ip.set_payload_length(payload_bytes);
    let length = u32::from(payload_bytes);
    let pseudo = Sum::default().pseudo_v6(source, destination, protocol::ICMPV6, length);
    let icmp = error.header_v6().completed(pseudo.bytes(quote));
    headers[..ipv6::HEADER_BYTES].copy_from_slice(ip.as_bytes());
    headers[ipv6::HEADER_BYTES..].copy_from_slice(icmp.as_bytes());
}
