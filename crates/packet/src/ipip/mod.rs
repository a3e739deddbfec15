//! IP in IP, in all four combinations of families (RFC 2003, RFC 2473, RFC 4213).
//!
//! [`encapsulate`] inserts an outer IP header between a frame's Ethernet header and its packet;
//! [`decapsulate`] removes it. The Ethernet header keeps its VLAN tags and addresses, and its
//! EtherType follows the outermost packet. Only headers are touched, so a packet may have any
//! number of segments; its headers must lie in the first.
//!
//! ```
//! use hotloop_packet::{PacketBuf, build::udp, ipip, memory::MemPacket};
//! use std::net::{Ipv4Addr, Ipv6Addr};
//!
//! let (balancer, backend) = (Ipv6Addr::LOCALHOST, "2001:db8::7".parse::<Ipv6Addr>()?);
//! let frame = udp().ttl(9).to("203.0.113.10:53").build();
//! let mut packet = MemPacket::new(&frame);
//! ipip::encapsulate(&mut packet, balancer, backend)?;
//! assert_eq!(packet.len_bytes(), frame.len() + 40);
//!
//! let tunnel = ipip::decapsulate(&mut packet)?;
//! assert_eq!(tunnel.destination, backend);
//! assert_eq!(packet.data(), udp().ttl(8).to("203.0.113.10:53").build());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decapsulate;
mod encapsulate;
mod fast;
mod limit;
mod outer;

use std::net::IpAddr;

pub use decapsulate::{Decapsulated, decapsulate};
pub use encapsulate::{Tunnel, encapsulate};
pub use limit::{EncapsulationLimit, encapsulation_limit};
pub use outer::{FlowHeader, Identifications};

use crate::{Malformed, NoRoom};

/// TTL or hop limit of outer headers.
const OUTER_TTL: u8 = 64;

/// Why a packet was not encapsulated. The packet is unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EncapsulateError {
    /// The two ends of the tunnel are of different families.
    #[error("a tunnel from {source_address} to {destination}: both ends must be of one family")]
    MixedFamilies {
        /// The tunnel's source.
        source_address: IpAddr,
        /// The tunnel's destination.
        destination: IpAddr,
    },
    /// The frame carries something other than IP.
    #[error("EtherType {ethertype:#06x} is neither IPv4 nor IPv6")]
    NotIp {
        /// The frame's EtherType, after VLAN tags.
        ethertype: u16,
    },
    /// The packet's header is cut or inconsistent.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The packet would leave with a TTL of 0 (RFC 2003, section 3.1).
    #[error("the packet's TTL has expired")]
    TtlExpired,
    /// The packet would exceed the outer header's length field.
    #[error("a packet of {packet_bytes} bytes does not fit into a tunnel's")]
    TooBig {
        /// The packet's length in bytes before it is wrapped.
        packet_bytes: usize,
    },
    /// There is no headroom for the outer header.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

/// Why a tunnel can't be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TunnelError {
    /// The two ends are of different families.
    #[error("a tunnel from {source_address} to {destination}: both ends must be of one family")]
    MixedFamilies {
        /// An address of the sources' prefix.
        source_address: IpAddr,
        /// The tunnel's destination.
        destination: IpAddr,
    },
    /// The prefix has more bits than an address of its family.
    #[error("the prefix {address}/{prefix_bits}: it has at most {bits_max} bits")]
    Prefix {
        /// The prefix's address.
        address: IpAddr,
        /// The prefix's length in bits.
        prefix_bits: u8,
        /// The maximum: 32 or 128.
        bits_max: u8,
    },
}

/// Why a packet was not decapsulated. The packet is unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecapsulateError {
    /// The frame carries something other than IP.
    #[error("EtherType {ethertype:#06x} is neither IPv4 nor IPv6")]
    NotIp {
        /// The frame's EtherType, after VLAN tags.
        ethertype: u16,
    },
    /// The outer packet doesn't carry IP.
    #[error("protocol {protocol} is neither IPv4 nor IPv6 in IP")]
    NotTunnel {
        /// The outer packet's protocol: see [`crate::ip::protocol`].
        protocol: u8,
    },
    /// The outer or the inner header is cut or inconsistent.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The outer header's checksum is wrong.
    #[error("the outer header's checksum is wrong")]
    Checksum,
    /// The outer packet is a fragment.
    #[error("the outer packet is a fragment")]
    Fragment,
    /// The outer packet met congestion, but the inner packet's sender does not understand marks:
    /// the packet must be dropped (RFC 6040, section 4.2).
    #[error("congestion that the inner packet cannot show")]
    Congestion,
    /// The outer header can't be removed from the packet's memory.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}
