//! The fields of a packet that the NAT reads before any change.

use crate::drops::NatDrop;
use hotloop::flow::Hint;
use hotloop::packet::ip::{Fragment, is_truncated, protocol};
use hotloop::packet::ipv4::{Ipv4Header, Ipv4View};
use hotloop::packet::{classify::Kind, flow_key::FlowKeyV4, icmp::IcmpView, tcp::TcpView};
use hotloop::prelude::*;

/// The two sides of the NAT.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The side of the hosts that share an address.
    Lan,
    /// The side of all other hosts.
    Wan,
}

/// The facts about a packet that can be translated.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The key of its connection, as [`outward_key`] reads it.
    pub key: FlowKeyV4,
    /// The hint for the connection's place in the table.
    pub hint: Hint,
    /// Whether the packet is an ICMP error, which is about another packet of the connection.
    pub is_error: bool,
    /// The packet's own header.
    pub ip: Ipv4Header,
    /// TCP's flags, if the packet is a TCP segment.
    pub tcp_flags: Option<u8>,
    /// The station that sent the packet.
    pub station: ethernet::MacAddress,
}

impl Seen {
    /// Reads a packet with this [`outward_key`], and this hint for its connection.
    ///
    /// # Errors
    /// The reason why the packet cannot be translated.
    #[inline(always)]
    pub fn of<P: PacketBuf>(
        p: &Classified<P>,
        key: Option<FlowKeyV4>,
        hint: Hint,
    ) -> Result<Self, NatDrop> {
        let (frame, is_error) = (p.bytes(), p.tag().is_icmp_error());
        let Some((key, ip)) = key.zip(Ipv4View::of_frame(frame)) else {
            return Err(match p.kind() {
                Kind::Malformed(_) if is_truncated(frame, p.total_bytes()) => NatDrop::Truncated,
                Kind::Malformed(_) => NatDrop::Malformed,
                _ => NatDrop::NotIpv4,
            });
        };
        let has_identifier = |icmp: IcmpView<'_>| icmp.echo_identifier().is_some();
        let is_echo = || IcmpView::parse(ip.payload()).is_ok_and(has_identifier);
        let tcp_flags = match ip.protocol() {
            _ if p.tag().fragment() != Fragment::None => return Err(NatDrop::Fragment),
            protocol::TCP => TcpView::parse(ip.payload()).ok().map(|tcp| tcp.flags()),
            protocol::UDP => None,
            protocol::ICMP if is_error || is_echo() => None,
            _ => return Err(NatDrop::Unsupported),
        };
        let station =
            ethernet::EthernetView::parse(frame).map_err(|_| NatDrop::Malformed)?.source();
        Ok(Self { key, hint, is_error, ip: *ip, tcp_flags, station })
    }
}

/// The key of a packet's connection, as in packets to the WAN before translation; for a packet from
/// the WAN, the key it would have there after translation. `None` if the packet is not IPv4.
#[inline(always)]
pub fn outward_key<P: PacketBuf>(p: &Classified<P>, side: Side) -> Option<FlowKeyV4> {
    let FlowKey::V4(key) = p.key()? else { return None };
    // The key of an error is the quoted packet's, which went the opposite way.
    let is_outward = (side == Side::Lan) != p.tag().is_icmp_error();
    Some(if is_outward { key } else { key.reversed() })
}
