//! What a packet is to the firewall: where it comes from, and what it means for a connection.

use crate::side::Side;
use hotloop::packet::classify::Layout;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::protocol::{ICMP, ICMPV6, TCP};
use hotloop::packet::ipv4::Ipv4View;
use hotloop::packet::ipv6::Ipv6View;
use hotloop::packet::tcp::{TcpView, flags};
use hotloop::packet::{ethernet, icmp, icmpv6};
use std::net::IpAddr;

/// What a packet means for a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Meaning {
    /// A TCP segment with these flags.
    Segment(u8),
    /// A request for an ICMP echo.
    Request,
    /// An ICMP echo.
    Reply,
    /// Any other ICMP message, which belongs to no connection.
    Message,
    /// A datagram of UDP, or of a protocol that the firewall doesn't know.
    Datagram,
}

impl Meaning {
    /// Whether the packet opens a connection if a rule allows it: of TCP, only a SYN does.
    pub const fn opens(self) -> bool {
        match self {
            Self::Segment(set) => set & (flags::SYN | flags::ACK | flags::RST) == flags::SYN,
            Self::Request | Self::Datagram => true,
            Self::Reply | Self::Message => false,
        }
    }
}

/// A packet of IP, as it was received.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    /// The side that it comes from.
    pub side: Side,
    /// What it is.
    pub layout: Layout,
    /// The key of its flow; for an ICMP error, that of the packet that it quotes.
    pub key: FlowKey,
    /// Its first segment.
    pub frame: &'a [u8],
}

impl<'a> Received<'a> {
    fn payload(&self) -> Option<&'a [u8]> {
        self.frame.get(self.layout.l4_offset(self.frame)?..)
    }

    /// What the packet means. `None` if its header is cut.
    pub fn meaning(&self) -> Option<Meaning> {
        let payload = self.payload()?;
        Some(match (self.key.protocol(), *payload.first()?) {
            (TCP, _) => Meaning::Segment(TcpView::parse(payload).ok()?.flags()),
            (ICMP, icmp::kind::ECHO_REQUEST) | (ICMPV6, icmpv6::kind::ECHO_REQUEST) => {
                Meaning::Request
            }
            (ICMP, icmp::kind::ECHO_REPLY) | (ICMPV6, icmpv6::kind::ECHO_REPLY) => Meaning::Reply,
            (ICMP | ICMPV6, _) => Meaning::Message,
            _ => Meaning::Datagram,
        })
    }

    /// Whether the packet keeps the link itself working: a message of neighbour discovery or of
    /// multicast listener discovery. The hop limits prove that no router has forwarded it (RFC 4861,
    /// section 6.1; RFC 3810, section 5), so that nobody further away passes with it.
    pub fn is_of_the_link(&self) -> bool {
        let kind = self.payload().and_then(|it| it.first()).copied();
        let packet = self.frame.get(self.layout.l3_offset()..).unwrap_or_default();
        let hop_limit = Ipv6View::parse_cut(packet).map(|ip| ip.hop_limit());
        self.layout.is_plain()
            && self.key.protocol() == ICMPV6
            && match hop_limit {
                Ok(255) => kind.is_some_and(icmpv6::is_neighbour_discovery),
                Ok(1) => kind.is_some_and(icmpv6::is_multicast_listener),
                _ => false,
            }
    }

    /// Where an ICMP error goes itself, whatever it quotes. `None` for a redirect, which would have a
    /// host send its packets elsewhere.
    pub fn error_destination(&self) -> Option<IpAddr> {
        let packet = self.frame.get(ethernet::l3_offset(self.frame)?..)?;
        let Ok(ip) = Ipv4View::parse_cut(packet) else {
            return Ipv6View::parse_cut(packet).map(|ip| ip.destination().into()).ok();
        };
        let is_redirect = ip.payload().first() == Some(&icmp::kind::REDIRECT);
        (!is_redirect).then(|| ip.destination().into())
    }
}
