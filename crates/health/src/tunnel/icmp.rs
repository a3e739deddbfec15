//! ICMP errors about probes, in an operator's words.

use hotloop::packet::ip::protocol;
use hotloop::packet::ipv4::Ipv4View;
use hotloop::packet::ipv6::{self, Ipv6View};
use hotloop::packet::own_header::OwnHeader;
use hotloop::packet::{icmp, icmpv6};
use std::net::IpAddr;

/// The beginning of the text for every error.
pub const ICMP: &str = "ICMP ";

/// An ICMP error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IcmpError {
    /// The message and its sender: `ICMP protocol unreachable from 10.0.0.1`.
    pub why: String,
    /// The probe that the error is about.
    pub about: About,
}

/// The quoted packet of an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum About {
    /// A segment from this port.
    Port(u16),
    /// A tunnel packet to this backend; its payload is cut off.
    Backend(IpAddr),
}

impl IcmpError {
    /// Reads the error in a frame with this header; `None` if it has no error.
    pub fn read(frame: &[u8], header: &OwnHeader) -> Option<Self> {
        let is_v4 = header.source.is_ipv4();
        let end = header.l3_offset + header.total_bytes;
        let message = frame.get(header.l4_offset..end.min(frame.len()))?;
        let (&[kind, code, ..], Some(quoted)) = (message, message.get(icmp::HEADER_BYTES..)) else {
            return None;
        };
        let is_error = if is_v4 { icmp::is_error(kind) } else { icmpv6::is_error(kind) };
        if !header.is_icmp() || !is_error {
            return None;
        }
        let what = if is_v4 { what_v4(kind, code) } else { what_v6(kind, code) };
        Some(Self { why: format!("{ICMP}{what} from {}", header.source), about: about(quoted)? })
    }
}

/// The segment that an error quotes, or the tunnel packet around it.
fn about(quoted: &[u8]) -> Option<About> {
    let outer = Quoted::of(quoted)?;
    if !matches!(outer.protocol, protocol::IPV4 | protocol::IPV6) {
        return outer.tcp_port().map(About::Port);
    }
    let inner = Quoted::of(outer.payload).and_then(|inner| inner.tcp_port());
    Some(inner.map_or(About::Backend(outer.destination), About::Port))
}

/// The beginning of an IP packet, as quoted by an error.
struct Quoted<'a> {
    destination: IpAddr,
    protocol: u8,
    payload: &'a [u8],
}

impl<'a> Quoted<'a> {
    fn of(packet: &'a [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => {
                let view = Ipv4View::parse_cut(packet).ok()?;
                let payload = packet.get(view.header_bytes()..)?;
                let destination = view.destination().into();
                Some(Self { destination, protocol: view.protocol(), payload })
            }
            6 => {
                let view = Ipv6View::parse_cut(packet).ok()?;
                let chain = view.chain().ok()?;
                let payload = packet.get(ipv6::HEADER_BYTES + chain.offset_bytes..)?;
                let destination = view.destination().into();
                Some(Self { destination, protocol: chain.protocol, payload })
            }
            _ => None,
        }
    }

    /// The port that the packet comes from.
    fn tcp_port(&self) -> Option<u16> {
        let port = self.payload.first_chunk().filter(|_| self.protocol == protocol::TCP)?;
        Some(u16::from_be_bytes(*port))
    }
}

/// Follows RFC 792, and RFC 1812, section 5.2.7.1.
fn what_v4(kind: u8, code: u8) -> String {
    match (kind, code) {
        (icmp::kind::DESTINATION_UNREACHABLE, 0) => "network unreachable",
        (icmp::kind::DESTINATION_UNREACHABLE, 1) => "host unreachable",
        (icmp::kind::DESTINATION_UNREACHABLE, 2) => "protocol unreachable",
        (icmp::kind::DESTINATION_UNREACHABLE, 3) => "port unreachable",
        (icmp::kind::DESTINATION_UNREACHABLE, 4) => "fragmentation needed",
        (icmp::kind::DESTINATION_UNREACHABLE, 9 | 10 | 13) => "administratively prohibited",
        (icmp::kind::TIME_EXCEEDED, _) => "time exceeded",
        _ => return format!("type {kind}, code {code}"),
    }
    .to_owned()
}

/// Follows RFC 4443, section 3.
fn what_v6(kind: u8, code: u8) -> String {
    match (kind, code) {
        (icmpv6::kind::DESTINATION_UNREACHABLE, 0) => "no route to destination",
        (icmpv6::kind::DESTINATION_UNREACHABLE, 1) => "administratively prohibited",
        (icmpv6::kind::DESTINATION_UNREACHABLE, 3) => "address unreachable",
        (icmpv6::kind::DESTINATION_UNREACHABLE, 4) => "port unreachable",
        (icmpv6::kind::PACKET_TOO_BIG, _) => "packet too big",
        (icmpv6::kind::TIME_EXCEEDED, _) => "time exceeded",
        (icmpv6::kind::PARAMETER_PROBLEM, 1) => "next header unknown",
        _ => return format!("type {kind}, code {code}"),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::packet::build::{PacketBuilder, tcp, time_exceeded, udp, unreachable};

    fn read(packet: PacketBuilder) -> Option<IcmpError> {
        let frame = packet.build();
        IcmpError::read(&frame, &OwnHeader::of(&frame)?)
    }

    #[test]
    fn an_error_names_the_probe_that_it_quotes() {
        let probe = || tcp().from("192.0.2.9:40000").to("203.0.113.10:80");
        let error = read(unreachable(&probe().build()).from("10.0.0.1").to("192.0.2.9")).unwrap();
        assert_eq!(error.about, About::Port(40_000));
        assert!(error.why.starts_with(ICMP) && error.why.ends_with("from 10.0.0.1"), "{error:?}");

        let tunnelled = || probe().tunnelled("192.0.2.1", "10.0.0.1").build();
        let error = read(time_exceeded(&tunnelled()).from("10.9.0.1").to("192.0.2.1")).unwrap();
        assert_eq!(
            (error.about, &*error.why),
            (About::Port(40_000), "ICMP time exceeded from 10.9.0.1")
        );
        // No more than RFC 792 requires: the outer header and eight bytes.
        let cut = unreachable(&tunnelled()).quote_bytes(28).from("10.0.0.1").to("192.0.2.1");
        assert_eq!(read(cut).unwrap().about, About::Backend("10.0.0.1".parse().unwrap()));

        let v6 = tcp().from("[2001:db8::9]:41000").to("[2001:db8:f::1]:80");
        let v6 = v6.tunnelled("2001:db8::1", "2001:db8:b::1").build();
        let error = read(unreachable(&v6).from("2001:db8:b::1").to("2001:db8::1")).unwrap();
        assert_eq!(error.about, About::Port(41_000));
    }

    #[test]
    fn what_is_no_error_about_a_probe_is_none() {
        assert_eq!(read(udp().from("10.0.0.1:1").to("192.0.2.1:2")), None);
        let datagram = udp().from("192.0.2.9:1").to("10.0.0.1:2").build();
        assert_eq!(read(unreachable(&datagram).from("10.0.0.1").to("192.0.2.9")), None);
        let frame = unreachable(&datagram).from("10.0.0.1").to("192.0.2.9").build();
        let header = OwnHeader::of(&frame).unwrap();
        for len in 0..frame.len() {
            let _ = IcmpError::read(&frame[..len], &header);
        }
    }

    #[test]
    fn errors_have_their_names() {
        assert_eq!(what_v4(3, 2), "protocol unreachable");
        assert_eq!(what_v4(3, 13), "administratively prohibited");
        assert_eq!(what_v4(12, 0), "type 12, code 0");
        assert_eq!(what_v6(1, 4), "port unreachable");
        assert_eq!(what_v6(4, 1), "next header unknown");
    }
}
