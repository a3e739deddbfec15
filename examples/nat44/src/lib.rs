//! A NAT44: hosts of a LAN reach the WAN from one address.
//!
//! The network function is [`nat::nat`], from the packets that ports receive to the packets they
//! send. It knows sources and sinks, not DPDK, so its tests run on plain memory.
//!
//! - [`nat`]: the graph, and the stage that translates each packet.
//! - [`seen`]: the fields of a packet that the stage reads before any change.
//! - [`connections`]: the connections of one core, and its share of the WAN address's ports.
//! - [`drops`]: the reasons to drop packets.
//!
//! # No lock, and no configuration of cores
//!
//! A connection belongs to one core, where both of its directions meet. The hash of a LAN packet's
//! addresses selects that core, which gives the connection a port that leads back to it: the core's
//! index is `port % cores`. So packets from the WAN go to the core `port % cores`, and no core ever
//! accesses another's state.
//!
//! ```
//! use hotloop::packet::arp::Neighbour;
//! use hotloop::packet::build::{DESTINATION_MAC, SOURCE_MAC, tcp};
//! use hotloop::prelude::*;
//! use nat44::nat::{Nat, Settings, Side};
//!
//! let lan_port = PortId::new(0);
//! let settings = Settings {
//!     lan_port,
//!     lan: Neighbour { mac: DESTINATION_MAC, address: "10.0.0.254".parse()? },
//!     wan: Neighbour { mac: DESTINATION_MAC, address: "203.0.113.1".parse()? },
//!     gateway: SOURCE_MAC,
//! };
//! let syn = tcp().from("10.0.0.1:1000").to("192.0.2.1:80").packet_in_memory().with_ingress(lan_port);
//! let syn = bench(Classify::outermost().seeded(0)).feed_items([syn]).into_packets();
//! let out = bench_burst(Nat::new(&Core::new(0, 1), settings)?).feed_items(syn);
//!
//! let sent = &out.packets()[0];
//! let key = FlowKey::of(sent.packet.data(), sent.packet.len_bytes(), Depth::Outermost).unwrap();
//! assert_eq!((sent.route, key.to_string().as_str()), (Side::Wan, "203.0.113.1:1024 > 192.0.2.1:80 protocol 6"));
//! # Ok::<(), hotloop::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod connections;
pub mod drops;
pub mod nat;
pub mod seen;
