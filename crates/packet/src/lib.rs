//! Packets for network functions: header views, checksums, flow keys, hashes, tunnels.
//!
//! - [`PacketBuf`]: what a network function needs of a packet's memory. DPDK's mbuf implements it, and
//!   [`memory::MemPacket`] for tests.
//! - Views, one module a protocol: [`ethernet`] (VLAN, QinQ), [`arp`], [`nd`], [`ipv4`], [`ipv6`],
//!   [`tcp`], [`udp`], [`icmp`], [`icmpv6`]. `parse` checks once; accessors of what it returns cannot panic.
//!   `parse_mut` returns the header for writing; its setters correct the checksums that it has.
//! - [`classify`]: one pass from a frame to what it is and where its headers are, tunnels and ICMP
//!   errors seen through, in the eight bytes of a packet's metadata.
//! - [`flow_key`] tells flows apart ([`FlowKey::of`](flow_key::FlowKey::of) reads a frame's key and
//!   nothing else), [`seed`] spreads them over workers and backends.
//! - [`ipip`]: in and out of IP-in-IP tunnels, in all four combinations of families.
//! - [`answer`]: ICMP's answers about a packet, made of it; [`fragment`]: IPv4 packets in pieces;
//!   [`tcp::clamp_mss`].
//! - [`nat`]: addresses and ports, rewritten in place.
//! - [`checksum`]: whole and incremental.
//! - [`build`]: frames for tests.
//!
//! # Guarantees
//!
//! No bytes, however wrong, make a function panic: not a frame's, and not a
//! [`Layout`](classify::Layout)'s. (The builders, which are for tests, panic on what
//! cannot be built.) A function that fails leaves the packet as it was. Nothing but [`build`],
//! [`memory`] and error texts allocates. There is no unsafe code.
//!
//! # Example
//!
//! ```
//! use hotloop_packet::{PacketBuf, build::udp, classify, ethernet, ipip, memory::MemPacket, seed::Seed};
//! use std::net::Ipv4Addr;
//!
//! let mut packet = MemPacket::from(udp().to("203.0.113.10:53").payload(b"query"));
//! let layout = classify::classify_packet(&packet, &Seed::new(42));
//! let key = layout.key(packet.data()).expect("an IP packet");
//! assert_eq!(key.destination_port(), 53);
//!
//! let backends = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
//! let backend = backends[layout.hash() as usize % backends.len()];
//! ipip::encapsulate(&mut packet, Ipv4Addr::new(192, 0, 2, 1), backend)?;
//! ethernet::swap_addresses(&mut packet);
//! # Ok::<(), ipip::EncapsulateError>(())
//! ```
//!
//! # Limits
//!
//! Headers must lie in a packet's first segment; payloads may go on in others. Two VLAN tags, one
//! tunnel and eight extension headers are looked through, and a flow's header must begin within a
//! frame's first 255 bytes. Ports are known of TCP and UDP, identifiers of ICMP echoes. Checksums are
//! not verified but where a function says so. There are no jumbograms (RFC 2675).

#![forbid(unsafe_code)]

pub mod answer;
pub mod arp;
mod buf;
pub mod build;
pub mod checksum;
pub mod classify;
pub mod ethernet;
pub mod flow_key;
pub mod fragment;
pub mod icmp;
pub mod icmpv6;
pub mod ip;
pub mod ipip;
pub mod ipv4;
pub mod ipv6;
mod mac;
mod malformed;
pub mod memory;
pub mod nat;
pub mod nd;
pub mod seed;
pub mod tcp;
pub mod udp;

pub use buf::{NoRoom, PacketBuf, PortId, Room};
pub use malformed::{Header, Malformed};
