//! Answers to a packet, built from the packet itself: ICMP errors, echo replies, UDP replies, TCP
//! resets.
//!
//! [`icmp_error`], [`echo_reply`], [`udp`] and [`tcp_reset`] turn a packet in place into its answer:
//! nothing is allocated, and only headers are copied. The packet's own IP header decides between
//! IPv4 (ICMP: RFC 792) and IPv6 (ICMPv6: RFC 4443).
//!
//! An answer keeps the frame's VLAN tags. [`udp`] and [`tcp_reset`] swap the frame's addresses; the
//! two of ICMP keep them, and the sender sets them. An answer's TTL is 64 and all its checksums are
//! right. A stage counts the answer as created, and the packet as dropped. The caller limits the
//! rate of answers (RFC 1812, section 4.3.2.8; RFC 4443, section 2.4 (f)).
//!
//! ```
//! use hotloop_packet::{PacketBuf, answer::{self, IcmpError}, build::udp, icmp, ipv4, memory::MemPacket};
//! use std::net::Ipv4Addr;
//!
//! let late = udp().from("198.51.100.7:9").to("203.0.113.10:53").ttl(1).build();
//! let mut packet = MemPacket::new(&late);
//! answer::icmp_error(&mut packet, Ipv4Addr::new(203, 0, 113, 10), IcmpError::TimeExceeded)?;
//!
//! let view = ipv4::Ipv4View::parse(&packet.data()[14..])?;
//! assert_eq!((view.destination(), view.ttl()), (Ipv4Addr::new(198, 51, 100, 7), 64));
//! let message = icmp::IcmpView::parse(view.payload())?;
//! assert_eq!((message.kind(), message.quoted()), (icmp::kind::TIME_EXCEEDED, Some(&late[14..])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod about;
mod echo;
mod error;
mod host;
mod reset;
mod turn;
mod udp;

use std::net::IpAddr;

pub use echo::echo_reply;
pub use error::{IcmpError, icmp_error};
pub use host::as_host;
pub use reset::tcp_reset;
pub use udp::udp;

use crate::{Malformed, NoRoom};

/// TTL or hop limit of answers.
const ANSWER_TTL: u8 = 64;

/// Why a packet was not answered. The packet is unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// The frame carries something other than IP.
    #[error("EtherType {ethertype:#06x} is neither IPv4 nor IPv6")]
    NotIp {
        /// The frame's EtherType, after VLAN tags.
        ethertype: u16,
    },
    /// The packet's header is cut or inconsistent.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The checksum of the IPv4 header is wrong, so the answer might reach the wrong host; or the
    /// checksum of the echo request, datagram or segment is wrong.
    #[error("the checksum of the header or the message is wrong")]
    Checksum,
    /// The answer would come from an address of the other family.
    #[error("an answer from {from} to {to}: both must be of one family")]
    MixedFamilies {
        /// The answer's source.
        from: IpAddr,
        /// The answer's destination: the packet's source.
        to: IpAddr,
    },
    /// The packet is an ICMP error, or a redirect: errors about errors would never end (RFC 1122,
    /// section 3.2.2; RFC 4443, section 2.4 (e)).
    #[error("the packet is an ICMP error: there are no errors about errors")]
    AboutError,
    /// The packet is a later fragment, which gets no errors (RFC 1122, section 3.2.2), or any
    /// fragment of an echo request, datagram or segment, which is only answered whole.
    #[error("the packet is a fragment")]
    Fragment,
    /// The packet's source isn't a single host, or the packet was sent to many (RFC 1122, section
    /// 3.2.2; RFC 4443, section 2.4 (e)).
    #[error("{address} is no single host")]
    Group {
        /// The packet's source or destination. If the frame was sent to a group of stations, the
        /// source.
        address: IpAddr,
    },
    /// The packet isn't an echo request.
    #[error("the packet is no echo request")]
    NotEchoRequest,
    /// The packet carries another protocol than the answer.
    #[error("protocol {protocol} has no such answer")]
    OtherProtocol {
        /// The protocol of the packet's payload.
        protocol: u8,
    },
    /// The datagram's source port is 0: its sender wants no reply (RFC 768).
    #[error("the datagram has no source port to reply to")]
    NoPort,
    /// The segment is a reset: resets about resets would never end (RFC 9293, section 3.5.2).
    #[error("the segment is a reset: there are no resets about resets")]
    AboutReset,
    /// There is no headroom for the answer's headers, or no room for its payload.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}
