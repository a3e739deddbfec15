//! The other end of a load balancer's IP-in-IP tunnels, on a TAP interface.
//!
//! A backend of `ipip-lb` receives its clients' packets inside an outer IP header. Kernels that
//! have the modules for that can remove the header themselves; this program does it on any machine
//! that has TAP interfaces, and shows the balancer's other end.
//!
//! The network function is one stage, [`Endpoint`](endpoint::Endpoint), between the packets that
//! [arrive](arrival) at the port and at the TAP interface, and the two ways out. It knows neither
//! DPDK nor TAP: its tests run on plain memory. [`graph`] is the whole of it, [`run`] the program
//! around it; the package's README describes how to set a backend up.
//!
//! # Guarantees
//!
//! - Packets that reach the kernel came in a tunnel from a configured balancer, to an own address.
//! - Every packet is sent, or dropped for a named reason: [`EndpointDrop`](endpoint::EndpointDrop).
//!
//! # Example
//!
//! ```
//! use hotloop::packet::build::udp;
//! use hotloop::packet::ethernet::MacAddress;
//! use hotloop::packet::memory::MemPacket;
//! use hotloop::prelude::*;
//! use hotloop::testing::bench_burst;
//! use ipip_endpoint::arrival::{Arrived, Side};
//! use ipip_endpoint::endpoint::Endpoint;
//! use ipip_endpoint::settings::{Answers, Settings, Stations};
//!
//! let settings = Settings {
//!     addresses: vec!["10.0.0.1".parse()?],
//!     balancers: vec!["192.0.2.0/26".parse()?],
//!     answers: Answers::Direct,
//!     next_hop: None,
//!     mtu_bytes: 1500,
//! };
//! let (wire, kernel) = (MacAddress::new([2; 6]), MacAddress::new([6; 6]));
//! let endpoint = Endpoint::new(settings, Stations { wire, kernel })?;
//!
//! let query = udp().to("203.0.113.10:53").payload(b"?");
//! let wrapped = query.clone().tunnelled("192.0.2.7", "10.0.0.1").build();
//! let arrived = Arrived { packet: MemPacket::new(&wrapped), side: Side::Wire };
//! let out = bench_burst(endpoint).feed_items([arrived]);
//! assert_eq!(out.packets()[0].route, Side::Kernel);
//! assert_eq!(out.packets()[0].packet.data()[14..], query.build()[14..]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! One core, one queue of each port: a TAP interface moves about a million packets a second.
//! Fragments of tunnel packets are not reassembled, so the balancer's `mtu` must be right.

#![forbid(unsafe_code)]

pub mod arrival;
pub mod cli;
pub mod endpoint;
pub mod graph;
pub mod outer;
pub mod run;
pub mod settings;
