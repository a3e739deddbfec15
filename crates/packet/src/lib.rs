//! Packets for network functions: header views, checksums, flow keys, hashes, tunnels.
//!
//! - [`PacketBuf`]: the interface to a packet's memory. DPDK's mbuf implements it, and
//!   [`memory::MemPacket`] for tests.
//! - Views, one module per protocol: [`ethernet`] (VLAN, QinQ), [`arp`], [`nd`], [`ipv4`],
//!   [`ipv6`], [`tcp`], [`udp`], [`icmp`], [`icmpv6`], [`vxlan`], [`gue`], [`gre`]. `parse` checks
//!   once; the accessors of the returned view cannot panic. `parse_mut` returns the header for
//!   writing; its setters also correct the header's checksums. See [below](#writing) for new headers.
//! - [`classify`]: one pass over a frame finds its kind and its headers, looks into ICMP errors and,
//!   if the caller wants it, tunnels, and fits the result into the eight bytes of a packet's metadata.
//! - [`flow_key`] tells flows apart ([`FlowKey::of`](flow_key::FlowKey::of) reads a frame's key and
//!   nothing else), [`seed`] spreads them over workers and backends, [`cookie`] authenticates them
//!   without state.
//! - [`prefix`]: address prefixes, and the longest match among many; [`port_range`].
//! - [`ipip`]: in and out of IP-in-IP tunnels, in all four combinations of families.
//! - [`answer`]: ICMP errors, echo and UDP replies, TCP resets, built from the packet itself, and [those of every host](answer::as_host);
//!   [`fragment`]: IPv4 packets in pieces, and fragments of both families checked;
//!   [`tcp::clamp_mss`].
//! - [`nat`]: addresses and ports, rewritten in place.
//! - [`checksum`]: whole and incremental.
//! - [`Instant`]: when packets came.
//! - [`build`]: frames for tests.
//! - [`excerpt`]: foreign text in messages, such as a malformed prefix.
//!
//! # Guarantees
//!
//! No function panics, whatever the bytes of a frame or a [`Layout`](classify::Layout). (The
//! builders, which are for tests, panic on impossible frames.) A function that fails leaves the
//! packet unchanged. Only [`build`], [`memory`], error texts
//! and the making of maps of [`prefix`] allocate. There is no unsafe code.
//!
//! # Example
//!
//! ```
//! use hotloop_packet::{PacketBuf, build::udp, classify, ethernet, ipip, memory::MemPacket, seed::Seed};
//! use std::net::Ipv4Addr;
//!
//! let mut packet = MemPacket::from(udp().to("203.0.113.10:53").payload(b"query"));
//! let layout = classify::classify_packet(&packet, classify::Depth::Innermost, &Seed::new(42));
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
//! # Writing
//!
//! A setter changes a field in place, and corrects the checksum in its own header by the difference
//! only (RFC 1624). If the checksum of another header covers the field too, the setter returns a
//! [`Change`](checksum::Change), which that header's `update_checksum` takes.
//!
//! A new header is a value: `new` takes the fields that have no default, and the setters change the
//! others. The `push` of its module puts the value in front of a packet, which is its payload, and
//! fills in lengths and checksums from that. So a frame is written inside out:
//!
//! ```
//! use hotloop_packet::{
//!     PacketBuf, build::{DESTINATION_MAC, SOURCE_MAC, udp},
//!     ethernet::{self, ETHERTYPE_IPV4, EthernetHeader, EthernetView}, ip::protocol,
//!     ipv4::{self, Ipv4Header}, memory::MemPacket, udp::{self, UdpHeader}, vxlan::{self, VxlanHeader},
//! };
//!
//! let inner = udp().payload(b"query").build();
//! let mut packet = MemPacket::new(&inner);
//! vxlan::push(&mut packet, VxlanHeader::new(4660))?;
//! udp::push(&mut packet, UdpHeader::new(50_000, vxlan::PORT))?;
//! let mut ip = Ipv4Header::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), protocol::UDP);
//! ip.set_ttl(16);
//! ipv4::push(&mut packet, ip)?;
//! ethernet::push(&mut packet, EthernetHeader::new(SOURCE_MAC, DESTINATION_MAC, ETHERTYPE_IPV4))?;
//! assert_eq!(packet.len_bytes(), 14 + 20 + 8 + 8 + inner.len());
//!
//! packet.trim_front(14 + 20 + 8 + 8)?;
//! assert_eq!(packet.data(), inner);
//! # Ok::<(), hotloop_packet::WriteError>(())
//! ```
//!
//! TCP, UDP and ICMPv6 have checksums that cover the addresses, so the IP header's `push` completes
//! them, which reads the whole packet. A tunnel can save that by
//! [`UdpHeader::without_checksum`](udp::UdpHeader::without_checksum).
//!
//! [`PacketBuf::trim_front`] removes headers; [`ip::cut_padding`] removes what follows the packet of a
//! short frame. [`PacketBuf::insert`] and [`PacketBuf::remove`] change a packet after its first bytes,
//! as do [`ethernet::insert_tag`], [`ethernet::take_tag`] and [`tcp::set_options`]. A
//! [`Layout`](classify::Layout) from before no longer fits the packet.
//!
//! # Limits
//!
//! Headers must lie in a packet's first segment; payloads may go on in others. Two VLAN tags, one
//! tunnel ([`classify::Depth::Innermost`]) and eight extension headers are looked through, and a flow's header must begin within a
//! frame's first 255 bytes. Ports are read from TCP and UDP, identifiers from ICMP echoes.
//! Checksums are verified only by functions that document it. There are no jumbograms (RFC 2675).
//!
//! # Features
//!
//! - `serde`: [`Prefix`](prefix::Prefix) and [`PortRange`](port_range::PortRange) are read from their
//!   texts, and written as them, by [serde](https://serde.rs).

#![forbid(unsafe_code)]

pub mod answer;
pub mod arp;
mod buf;
pub mod build;
pub mod checksum;
pub mod classify;
pub mod cookie;
pub mod ethernet;
pub mod excerpt;
pub mod flow_key;
pub mod fragment;
pub mod gre;
pub mod gue;
pub mod icmp;
pub mod icmpv6;
mod instant;
pub mod ip;
mod ip_fields;
pub mod ipip;
pub mod ipv4;
pub mod ipv6;
mod mac;
mod malformed;
pub mod memory;
pub mod nat;
pub mod nd;
pub mod own_header;
pub mod port_range;
pub mod prefix;
pub mod seed;
pub mod tcp;
#[cfg(feature = "serde")]
mod text;
pub mod udp;
pub mod vxlan;
mod write;

pub use buf::{NoRoom, PacketBuf, PortId, Room};
pub use instant::Instant;
pub use malformed::{Header, Malformed};
pub use write::WriteError;
