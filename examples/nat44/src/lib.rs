//! A NAT44: hosts of a LAN reach the WAN from one address.
//!
//! The network function is [`nat::nat`], from the packets that ports receive to the packets they
//! send. It knows sources and sinks, not DPDK, so its tests run on plain memory.
//!
//! - [`nat`]: the graph, and the stage that translates each packet.
//! - [`fragments`]: the key of each packet's connection, also for fragments.
//! - [`seen`]: the fields of a packet that the stage reads before any change.
//! - [`settings`]: the operator's settings.
//! - [`connections`]: the connections of one core.
//! - [`ports`]: one core's share of the WAN address's ports.
//! - [`drops`]: the reasons to drop packets.
//!
//! # No lock, and no configuration of cores
//!
//! A host belongs to one core, where both directions of all its connections meet. The hash of its
//! address selects that core, which gives it blocks of ports that lead back: the number of a block,
//! modulo the number of cores, is the core's index. So packets from the WAN go to the core of their
//! port's block, and no core ever accesses another's state. A packet from one host to another's
//! port of the WAN address needs two cores. The first one translates its source and sends it to a
//! loop, [`Side::Hairpin`](nat::Side::Hairpin), and it comes back as a packet from the WAN.
//!
//! ```
//! use hotloop::packet::arp::Neighbour;
//! use hotloop::packet::build::{DESTINATION_MAC, SOURCE_MAC, tcp};
//! use hotloop::prelude::*;
//! use nat44::fragments::Fragments;
//! use nat44::nat::{Nat, Settings, Side};
//!
//! let lan_port = PortId::new(0);
//! let settings = Settings {
//!     lan_port,
//!     lan: Neighbour { mac: DESTINATION_MAC, address: "10.0.0.254".parse()? },
//!     wan: Neighbour { mac: DESTINATION_MAC, address: "203.0.113.1".parse()? },
//!     gateway: SOURCE_MAC,
//!     filters: true,
//!     connections: 1000,
//!     ports_per_host: 1024,
//! };
//! let syn = tcp().from("10.0.0.1:5000").to("192.0.2.1:80").packet_in_memory().with_ingress(lan_port);
//! let syn = bench(Classify::outermost()).feed_items([syn]).into_packets();
//! let syn = bench(Fragments::new(&Core::new(0, 1), lan_port)?).feed_items(syn).into_packets();
//! // Control's end of a listing of connections, and the core's.
//! let (_asker, mailboxes) = mailbox(1);
//! let lister = Lister::new(mailboxes.open(&Core::new(0, 1))?);
//! let out = bench_burst(Nat::new(&Core::new(0, 1), settings, lister)?).feed_items(syn);
//!
//! let sent = &out.packets()[0];
//! let key = FlowKey::of(sent.packet.data(), sent.packet.len_bytes(), Depth::Outermost).unwrap();
//! assert_eq!((sent.route, key.to_string().as_str()), (Side::Wan, "203.0.113.1:1024 > 192.0.2.1:80 protocol 6"));
//! # Ok::<(), hotloop::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod connections;
pub mod drops;
pub mod fragments;
pub mod nat;
pub mod ports;
pub mod seen;
pub mod settings;

/// The README's sample, included here to be compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
