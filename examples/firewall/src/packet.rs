//! The fields of a packet that decide: its side, its key, and its meaning for a connection.

use hotloop::packet::ip::protocol;
use hotloop::packet::own_header::OwnHeader;
use hotloop::packet::{icmp, icmpv6};
use hotloop::prelude::FlowKey;
use serde::{Deserialize, Serialize};

/// One side of the firewall, that a packet comes from or goes to.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The protected side.
    Inside,
    /// Everything else.
    Outside,
}

impl Side {
    /// The side to which packets from this side pass.
    pub const fn other(self) -> Self {
        if matches!(self, Self::Inside) { Self::Outside } else { Self::Inside }
    }

    /// The key under which a packet from this side is tracked: that of the direction from the inside
    /// to the outside. Both directions have the same, and a packet that claims the address of a
    /// station on the other side has another one.
    pub const fn oriented(self, key: FlowKey) -> FlowKey {
        if matches!(self, Self::Inside) { key } else { key.reversed() }
    }
}

/// The meaning of a packet for a connection.
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

/// A packet of IP, as it was received.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    /// The side that it comes from.
    pub side: Side,
    /// The key of its flow; for an ICMP error, that of the packet that it quotes.
    pub key: FlowKey,
    /// Its own header, whatever it quotes.
    pub own: OwnHeader,
    /// Its first segment.
    pub frame: &'a [u8],
}

impl Packet<'_> {
    /// Returns the meaning of the packet for a connection.
    pub fn meaning(&self) -> Meaning {
        match (self.own.protocol, self.own.icmp_kind(self.frame)) {
            (protocol::TCP, _) => Meaning::Segment(self.own.tcp_flags(self.frame)),
            (protocol::ICMP, Some(icmp::kind::ECHO_REQUEST)) => Meaning::Request,
            (protocol::ICMPV6, Some(icmpv6::kind::ECHO_REQUEST)) => Meaning::Request,
            (protocol::ICMP, Some(icmp::kind::ECHO_REPLY)) => Meaning::Reply,
            (protocol::ICMPV6, Some(icmpv6::kind::ECHO_REPLY)) => Meaning::Reply,
            (_, Some(_)) => Meaning::Message,
            _ => Meaning::Datagram,
        }
    }
}
