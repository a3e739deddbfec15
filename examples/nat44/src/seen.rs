//! The fields of a packet that the NAT reads before any change.

use crate::drops::NatDrop;
use crate::fragments::{Keyed, Side};
use hotloop::packet::icmp::kind::{REDIRECT, SOURCE_QUENCH};
use hotloop::packet::ip::{Fragment, is_truncated, protocol};
use hotloop::packet::ipv4::{Ipv4Header, Ipv4View};
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::packet::{classify::Kind, flow_key::FlowKeyV4, icmp::IcmpView, tcp::TcpView};
use hotloop::prelude::*;

/// The facts about a packet that can be translated.
pub struct Seen {
    /// The side that the packet came from.
    pub side: Side,
    /// The key of its connection, as [`Keyed`] has it.
    pub key: FlowKeyV4,
    /// The hint for the connection's place in the table.
    pub hint: Hint,
    /// Whether the packet is an ICMP error, which is about another packet of the connection.
    pub is_error: bool,
    /// Whether the packet may open a connection: a SYN, a UDP datagram or an echo.
    pub may_open: bool,
    /// The packet's own header.
    pub ip: Ipv4Header,
    /// TCP's flags, if the packet has a TCP header.
    pub tcp_flags: Option<u8>,
    /// The station that sent the packet.
    pub station: ethernet::MacAddress,
}

impl Seen {
    /// Reads a packet with this hint for its connection.
    ///
    /// # Errors
    /// The reason why the packet cannot be translated.
    pub fn of<P: PacketBuf>(p: &Keyed<P>, hint: Hint) -> Result<Self, NatDrop> {
        let (frame, tag) = (p.packet.bytes(), p.packet.tag());
        let Some((key, ip)) = p.route.1.zip(Ipv4View::of_frame(frame)) else {
            return Err(match p.packet.kind() {
                Kind::Malformed(_) if is_truncated(frame, p.total_bytes()) => NatDrop::Truncated,
                Kind::Malformed(_) => NatDrop::Malformed,
                Kind::Ipv4 => NatDrop::Fragment,
                _ => NatDrop::NotIpv4,
            });
        };
        let (is_error, is_later) = (tag.is_icmp_error(), ip.fragment() == Fragment::Later);
        let tcp_flags = match ip.protocol() {
            protocol::TCP | protocol::UDP | protocol::ICMP if is_later => None,
            protocol::TCP => TcpView::parse(ip.payload()).ok().map(|tcp| tcp.flags()),
            protocol::UDP => None,
            protocol::ICMP => check(&ip, is_error).map(|()| None)?,
            _ => return Err(NatDrop::Unsupported),
        };
        let is_syn = || tcp_flags.is_some_and(|flags| flags & (SYN | ACK) == SYN);
        let may_open = !is_error && !is_later && (ip.protocol() != protocol::TCP || is_syn());
        let station =
            ethernet::EthernetView::parse(frame).map_err(|_| NatDrop::Malformed)?.source();
        Ok(Self { side: p.route.0, key, hint, is_error, may_open, ip: *ip, tcp_flags, station })
    }
}

/// Checks that an ICMP message is an echo, or an error with a right checksum (RFC 5508, REQ-3). A
/// redirect is for hosts of the same link (RFC 1812, section 5.2.7.2), and a source quench is obsolete
/// (RFC 6633), although both quote a packet like errors.
fn check(ip: &Ipv4View<'_>, is_error: bool) -> Result<(), NatDrop> {
    let icmp = IcmpView::parse(ip.payload()).map_err(|_| NatDrop::Malformed)?;
    let is_whole = ip.fragment() == Fragment::None;
    match is_error {
        true if [REDIRECT, SOURCE_QUENCH].contains(&icmp.kind()) => Err(NatDrop::Unsupported),
        true if is_whole && !icmp.is_checksum_right() => Err(NatDrop::Malformed),
        false if icmp.echo_identifier().is_none() => Err(NatDrop::Unsupported),
        _ => Ok(()),
    }
}
