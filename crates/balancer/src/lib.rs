//! A layer-4 load balancer that tunnels to its backends with IP in IP, as a stage for any graph.
//!
//! Clients connect to a service's address (VIP). Each connection goes to one of the service's backends, chosen by
//! weighted Maglev hashing and remembered; its packets travel there unchanged inside an outer IP header (RFC 2003,
//! RFC 2473). Backends answer their clients directly, or through a tunnel back to the balancer. VIPs and backends may
//! be of either IP version, in all combinations.
//!
//! This crate is the data path: it reads no file and no command line, and starts no thread. The program `ipip-lb`
//! puts configuration, health checks, a control socket and a cluster around it.
//!
//! - [`spec`]: services, backends and settings, as plain values. [`services`] compiles them into a
//!   table for the packet path, read-only and shared by all workers, with [`rules`] (the service of
//!   a packet), [`maglev`] and [`limits`]. Every change makes a new table, and workers switch to it
//!   between two bursts.
//! - [`classify`], [`vlan`]: a packet's kind, and the port that received it.
//! - [`hashes`]: a flow's worker and backend.
//! - [`balance`]: the stage itself, from known connections to fragments, ICMP and the return path.
//! - [`connection`], [`connections`]: the connections that a worker remembers. [`exceptions`]: those on another backend
//!   than the table chooses, which nodes of a cluster exchange. [`exception_mover`] moves them between the workers and
//!   the program.
//! - [`counts`]: packets and connections per backend.
//! - [`capture_order`]: exact limits in the replay of a capture.
//!
//! # Guarantees
//!
//! - All packets between a client and a VIP, in either direction, their fragments and the ICMP errors about them go to
//!   one worker, if the graph shards packets by [`classify::shard`].
//! - A connection keeps its backend for as long as the backend belongs to its service. Balancers
//!   with the same [`spec::Spec`] choose the same backends, with schedulers that look only at the
//!   packet.
//! - Every packet is sent, or dropped for a named reason: [`balance::BalanceDrop`].
//! - Memory is fixed from the start. A full table and a flood of new connections cost packets nothing, and end no
//!   established connection.
//!
//! # Example
//!
//! A balancer for one worker, between one port's queues:
//!
//! ```
//! use hotloop::engine::Deployment;
//! use hotloop::packet::{build::tcp, ethernet::MacAddress};
//! use hotloop::prelude::*;
//! use hotloop::testing::MemoryPort;
//! use hotloop_balancer::classify::{Classify, ReceivingPorts, shard};
//! use hotloop_balancer::balance::{Balance, BalancerConfig, CLIENTS_MAX, Egress, Egresses, Route};
//! use hotloop_balancer::counts::WorkerCounts;
//! use hotloop_balancer::services::{Builder, Standing};
//! use hotloop_balancer::spec::{Backend, Balancer, Limits, Protocol, ServiceSpec, Spec};
//! use std::{sync::Arc, time::Duration};
//!
//! let settings = Balancer::new("192.0.2.1".parse()?, 1500);
//! let backend = Backend { address: "10.0.0.1".parse()?, weight: 1 };
//! let web = ServiceSpec::new("web", "203.0.113.10".parse()?, Protocol::Tcp, vec![backend]);
//! let spec = Spec { balancer: &settings, limits: &Limits::default(), services: &[web], prepare_ms_max: 1000 };
//!
//! let deployment = Deployment::run_to_completion(1);
//! let mut builder = Builder::new(spec.services);
//! let table = Arc::new(builder.build(&spec, &Standing::default())?);
//! let seed = table.settings.hashes.seed();
//! // `publisher.publish` gives the workers another table while they run.
//! let (publisher, subscribers) = publish(table);
//! let counts: Arc<[_]> = [WorkerCounts::new(builder.slot_capacity())].into();
//! let egress = Egress {
//!     route: Route(0),
//!     source: MacAddress::new([2, 0, 0, 0, 0, 2]),
//!     destination: MacAddress::new([2, 0, 0, 0, 0, 1]),
//! };
//! let balance = |core: &Core| {
//!     Balance::new(BalancerConfig {
//!         services: subscribers.subscribe(),
//!         egresses: Egresses { clients: egress, backends: egress },
//!         counts: Arc::clone(&counts),
//!         worker: core.index(),
//!         connections_max: settings.connections_max,
//!         slot_capacity: builder.slot_capacity(),
//!         clients_max: CLIENTS_MAX,
//!         node: core.node(),
//!         mailbox: None,
//!         sharing: None,
//!         table_seed: None,
//!     })
//! };
//!
//! let port = MemoryPort::new("uplink");
//! let graph = source(|core| port.rx_queue(core))
//!     .burst_stage(|_| Classify::new(&ReceivingPorts::default()))
//!     .shard_by(move |packet| shard(packet.packet.data(), packet.tag(), &seed))
//!     .try_burst_stage(balance)
//!     .sink(|core| Ok::<_, hotloop::Error>(outlets([(Route(0), port.tx_queue(core)?)])));
//!
//! port.feed(0, [tcp().from("198.51.100.7:4000").to("203.0.113.10:80").build()]);
//! let report = Engine::plan(graph, deployment)?.run(|control| control.wait_for(Duration::from_millis(100)))?;
//! assert!(report.is_whole());
//! let sent = port.take_sent(0);
//! assert_eq!(sent[0].bytes[30..34], [10, 0, 0, 1], "the outer destination");
//! # Ok::<(), hotloop::Error>(())
//! ```
//!
//! # Limits
//!
//! Workers share nothing but the buckets of limits, so round-robin, least connections and the rates
//! of ICMP count per worker. Tunnel packets that were fragmented on their way are not reassembled.

#![forbid(unsafe_code)]

mod address;
pub mod balance;
pub mod capture_order;
pub mod classify;
pub mod clock;
pub mod connection;
pub mod connections;
pub mod counts;
pub mod exception_mover;
pub mod exceptions;
pub mod hashes;
pub mod limits;
pub mod maglev;
mod route;
pub mod rules;
pub mod services;
pub mod spec;
mod state;
mod tcp_flags;
pub mod vlan;
