//! A layer-4 load balancer that tunnels to its backends by IP in IP.
//!
//! Clients connect to a service's address (VIP). Each connection goes to one of the service's
//! backends, chosen by weighted Maglev hashing and remembered; its packets travel there unchanged
//! inside an outer IP header (RFC 2003, RFC 2473). Backends answer their clients directly, or through
//! a tunnel back to the balancer. VIPs and backends may be of either IP version, in all combinations.
//!
//! Here is the network function with its configuration; the program around it, `ipip-lb`, is described
//! in the package's README, with the rules by which packets are treated.
//!
//! - [`config`]: what an operator writes. [`check`]: what it was understood to say.
//! - [`rules`], [`maglev`], [`services`]: the configuration compiled for the packet path, read-only
//!   and shared by all workers; a new one follows when anything changes.
//! - [`hashes`]: by which flows find their workers and backends.
//! - [`connection`], [`connections`]: what each worker remembers by itself.
//! - [`arrival`]: what arrives by which port.
//! - [`balance`]: what becomes of each packet; [`network_function`]: the whole graph around it.
//! - [`blocks`], [`limits`]: whose packets are dropped, and how many connections may begin; [`capture_order`]: how a
//!   replay keeps limits exact.
//! - [`store`]: the configuration that all nodes of a cluster share.
//! - [`health`]: which backends are up. [`control`]: changing and asking a balancer that runs, and
//!   [`ctl`], the operator's end of that.
//! - [`replace`]: one program takes over from another.
//! - [`replay`], [`run`]: the program's two ways to run it, on captures and on devices.
//!
//! # Guarantees
//!
//! - All packets between a client and a VIP, in either direction, their fragments and the ICMP errors
//!   about them are worked on by one worker, whatever core received them.
//! - A connection keeps its backend for as long as that is one of its service. Balancers of one
//!   configuration choose the same backends, by schedulers that look at the packet alone.
//! - Every packet is sent, or dropped for a named reason: [`balance::BalanceDrop`].
//! - Memory is fixed from the start. A full table and a flood of new connections cost packets nothing,
//!   and end no established connection.
//! - Whatever is wrong with a configuration, a capture or an argument is reported in one line that says
//!   where it is and what to write instead.
//!
//! # Example
//!
//! The balancer of one worker, on plain memory:
//!
//! ```
//! use hotloop::engine::{Deployment, publish};
//! use hotloop::packet::classify::classify_packet;
//! use hotloop::packet::{build::tcp, ethernet::MacAddress, ipip, memory::MemPacket, seed::Seed};
//! use hotloop::stage::{Core, Burst, BurstStage, Counters, Cx, DropReason, Output, Tagged, Tally, Instant};
//! use ipip_lb::balance::{Balance, BalanceDrop, Egress, Egresses, BalancerConfig, Route, SEED};
//! use ipip_lb::services::{Builder, Standing};
//! use ipip_lb::{config::Config, counts::WorkerCounts};
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
//! let mut builder = Builder::new(&config);
//! let services = builder.build(&config, &Standing::default())?;
//! let (_publisher, subscribers) = publish(Arc::new(services), Deployment::run_to_completion(1), 0);
//! let egress = Egress {
//!     route: Route(0),
//!     source: MacAddress::new([2, 0, 0, 0, 0, 2]),
//!     destination: config.ports[0].next_hop.mac(),
//! };
//! let mut balance = Balance::new(BalancerConfig {
//!     services: subscribers.take(&Core::new(0, 1)).expect("the only worker's"),
//!     egresses: Egresses { clients: egress, backends: egress },
//!     counts: [WorkerCounts::new(builder.slot_capacity())].into(),
//!     worker: 0,
//!     connections_max: config.balancer.connections_max,
//!     slot_capacity: builder.slot_capacity(),
//!     node: None,
//!     mailbox: None,
//!     sharing: None,
//!     table_seed: None,
//! })?;
//!
//! let packet = MemPacket::new(&tcp().from("198.51.100.7:4000").to("203.0.113.10:80").build());
//! let layout = classify_packet(&packet, &Seed::new(SEED));
//! let (mut input, mut sent, mut tally) = (Burst::new(), Burst::new(), Tally::default());
//! input.push(Tagged::new(packet, layout));
//! let counters = Counters::new(BalanceDrop::NAMES);
//! let mut cx = Cx::new(&counters, Instant::from_ns(0));
//! let mut spill = |_: &mut Burst<_>| unreachable!("one packet");
//! balance.process(&mut cx, &mut input, &mut Output::new(&mut sent, &mut spill, &mut tally));
//! let mut sent = sent.pop().expect("a packet to the service").packet;
//! assert_eq!(ipip::decapsulate(&mut sent)?.destination.to_string(), "10.0.0.1");
//! # Ok::<(), hotloop::Error>(())
//! ```
//!
//! # Limits
//!
//! Workers share nothing but the buckets of limits, so round-robin, least connections and ICMP's rates are by worker, and
//! what they count is not handed over to a program that [takes over](replace). Tunnel packets that were fragmented on their way are
//! not put together.

#![forbid(unsafe_code)]

pub mod announce;
pub mod arrival;
pub mod balance;
pub mod blocks;
pub mod capture_order;
pub mod check;
pub mod cli;
pub mod config;
pub mod connection;
pub mod connections;
pub mod control;
pub mod counts;
pub mod ctl;
pub mod exception;
pub mod excerpt;
pub mod failure;
pub mod guard;
pub mod hashes;
pub mod health;
mod hugepages;
mod kept_file;
pub mod limits;
pub mod maglev;
pub mod network_function;
pub mod next_hops;
pub mod outcome;
mod own_header;
pub mod prefix;
pub mod removed;
pub mod replace;
pub mod replay;
pub mod rules;
pub mod run;
pub mod services;
pub mod store;
pub mod sync;
pub mod vlan;
