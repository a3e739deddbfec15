//! A layer-4 load balancer that tunnels to its backends by IP in IP.
//!
//! Clients connect to a service's address (VIP). Each connection goes to one of the service's
//! backends, chosen by weighted Maglev hashing and remembered; its packets travel there unchanged
//! inside an outer IP header (RFC 2003, RFC 2473). Backends answer their clients directly, or through
//! a tunnel back to the balancer. VIPs and backends may be of either IP version, in all combinations.
//!
//! Here is the network function with its configuration; the program around it, `ipip-lb`, is described
//! in the package's README.
//!
//! - [`config`]: what an operator writes. [`check`]: what it was understood to say.
//! - [`rules`], [`maglev`], [`directory`]: the configuration compiled for the packet path, read-only
//!   and shared by all workers.
//! - [`connections`]: what each worker remembers by itself.
//! - [`balance`]: what becomes of each packet; [`network_function`]: the whole graph around it.
//! - [`replay`], [`run`]: the program's two ways to run it, on [`capture`]s and on devices.
//!
//! # Guarantees
//!
//! - All packets between a client and a VIP, in either direction, their fragments and the ICMP errors
//!   about them are worked on by one worker, whatever core received them.
//! - A connection keeps its backend. Balancers of one configuration choose the same backends.
//! - Every packet is sent, or dropped for a named reason: [`balance::BalanceDrop`].
//! - Whatever is wrong with a configuration, a capture or an argument is told in one line that says
//!   where it is and what to write instead.
//!
//! # Example
//!
//! The balancer of one worker, on plain memory:
//!
//! ```
//! use hotloop::packet::{build::tcp, ethernet::MacAddress, ipip, memory::MemPacket, seed::Seed};
//! use hotloop::packet::classify::classify_packet;
//! use hotloop::stage::{Counters, Cx, DropReason, Stage, Tagged, Tick};
//! use ipip_lb::balance::{Balance, BalanceDrop, Egress, Egresses, Route};
//! use ipip_lb::{config::Config, counts::WorkerCounts, directory::Directory};
//! use ipip_lb::network_function::SEED;
//! use std::sync::Arc;
//!
//! let config = Config::parse("lb.toml", r#"
//!     [balancer]
//!     source_v4 = "192.0.2.1"
//!     source_v6 = "2001:db8::1"
//!     mtu = 1500
//!     decapsulate = []
//!     [[port]]
//!     name = "uplink"
//!     device = "net_null0"
//!     next_hop_mac = "02:00:00:00:00:01"
//!     [[service]]
//!     name = "web"
//!     address = "203.0.113.10"
//!     protocol = "tcp"
//!     ports = "80"
//!     backend = [{ address = "10.0.0.1" }]
//! "#)?;
//! let egress = Egress {
//!     route: Route(0),
//!     source: MacAddress::new([2, 0, 0, 0, 0, 2]),
//!     destination: MacAddress::new(config.ports[0].next_hop_mac),
//! };
//! let directory = Arc::new(Directory::new(&config));
//! let counts = [WorkerCounts::new(&directory)].into();
//! let egresses = Egresses { clients: egress, backends: egress };
//! let mut balance = Balance::new(directory, egresses, counts, 0, None)?;
//!
//! let packet = MemPacket::new(&tcp().from("198.51.100.7:4000").to("203.0.113.10:80").build());
//! let layout = classify_packet(&packet, &Seed::new(SEED));
//! let packet = Tagged::new(packet, layout);
//! let counters = Counters::new(BalanceDrop::NAMES);
//! let mut cx = Cx::new(&counters, Tick::from_ns(0), 0);
//! balance.prepare(&mut cx, std::slice::from_ref(&packet));
//! let mut sent = balance.packet(&mut cx, packet).expect("a packet to the service").packet;
//! assert_eq!(ipip::decapsulate(&mut sent)?.destination.to_string(), "10.0.0.1");
//! # Ok::<(), hotloop::Error>(())
//! ```
//!
//! # Limits
//!
//! Fragments of requests but the first are dropped, and so is what exceeds the MTU of the path to the
//! backends once it is wrapped. Backends are not probed, and the configuration is read once. The
//! connection tables have a fixed size, and one idle time for all protocols.

#![forbid(unsafe_code)]

pub mod balance;
pub mod capture;
pub mod check;
pub mod cli;
pub mod config;
pub mod connections;
pub mod counts;
pub mod directory;
pub mod failure;
pub mod maglev;
pub mod network_function;
pub mod outcome;
mod own_header;
pub mod prefix;
pub mod replay;
pub mod rules;
pub mod run;
