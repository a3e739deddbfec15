//! A poll-mode packet engine: a network function is written once, as a chain of typed stages, and
//! runs on any number of cores, with DPDK below it or with plain memory.
//!
//! It is for authors of load balancers, tunnel endpoints, filters and probes who want DPDK's speed
//! without its ways to crash. There is no async runtime, no lock and no allocation on a packet's
//! way; each core owns the data that it works on.
//!
//! This crate has no code of its own. It collects the parts, each a module here, and [`prelude`]
//! has the names that most programs need.
//!
//! ```
//! use hotloop::prelude::*;
//!
//! drop_reasons! { pub enum RuntDrop { Runt = "runt" } }
//!
//! /// Drops what is shorter than an Ethernet header.
//! struct NoRunts;
//!
//! impl<P: PacketBuf> Stage<P> for NoRunts {
//!     type Out = P;
//!     type Drop = RuntDrop;
//!
//!     fn packet(&mut self, cx: &mut Cx<'_, RuntDrop>, packet: P) -> Verdict<P> {
//!         if packet.len_bytes() < ethernet::HEADER_BYTES { cx.drop(packet, RuntDrop::Runt) } else { Ok(packet) }
//!     }
//! }
//! ```
//!
//! # A forwarder
//!
//! A graph starts at a [`source`](engine::source), goes through stages and ends in a sink. A
//! *factory* makes each source, stage or sink: it runs on the core that will own the result.
#![cfg_attr(feature = "dpdk", doc = include_str!("guide/forwarder.md"))]
#![cfg_attr(not(feature = "dpdk"), doc = "Its code is on this page where feature `dpdk` is on.")]
//!
//! # Two phases, state per core
//!
//! A [`Stage`](stage::Stage) sees its packets one by one. A packet becomes one output or one
//! counted drop; there is no third way, because the only way to make a [`Dropped`](stage::Dropped)
//! is [`Cx::drop`](stage::Cx::drop). A [`BurstStage`](stage::BurstStage) sees a burst: while memory
//! is slow, it first requests the flows of all its packets at once, then processes the packets one
//! after the other with the keys that it has made. A stage's findings are stored in the packet's
//! own memory and show in its type: [`Classified`](stage::Classified) packets have a key, a hash
//! and a shard. `shard_by` is a boundary, at which packets go to the core that owns their flow; the
//! same graph runs to completion on every core or as a pipeline.
#![doc = "```"]
#![doc = include_str!("guide/balance_stage.txt")]
#![cfg_attr(feature = "dpdk", doc = include_str!("guide/balance_graph.txt"))]
#![doc = include_str!("guide/balance_check.txt")]
#![doc = "```"]
//!
//! # A firewall, and tunnels
//!
//! [`Classify`](stage::Classify) has no default: [`outermost`](stage::Classify::outermost) takes a
//! tunnel packet for what it is, [`innermost`](stage::Classify::innermost) for the packet inside.
//! A stage that decides about the packets that it forwards needs the first, or a stranger wraps a
//! packet that looks like the answer to an open flow, and it passes. A balancer that unwraps its
//! backends' tunnels needs the second.
#![cfg_attr(feature = "testing", doc = include_str!("guide/firewall.md"))]
#![cfg_attr(
    not(feature = "testing"),
    doc = "The code of such a stage is on this page where feature `testing` is on."
)]
//!
//! # Several boundaries, exits, and graphs in parts
//!
//! A graph can have any number of boundaries, each with an item type of its own. The
//! section between two of them is a *group* of cores. [`handoff`](engine::Chain::handoff) is a
//! boundary without a key: it keeps the order of packets. "Receive on one core, work on two, send
//! on one" is therefore `pipeline([1, 2, 1])`. A stage that answers packets emits a
//! [`Fork`](engine::Fork), and [`exit`](engine::Chain::exit) sends the answers out on the same
//! core. A middle section is a function from chain to chain, so a test simulates the same graph
//! that is deployed.
#![doc = "```"]
#![doc = include_str!("guide/groups.txt")]
#![doc = "```"]
//!
//! # Several ports
//!
//! [`sources`](engine::sources) polls several queues, and a packet knows the port that received it:
//! [`ingress`](packet::PacketBuf::ingress). [`outlets`](engine::outlets) are several sinks, one for
//! each route. Setters of headers keep checksums right; [`packet::nat`] rewrites addresses and
//! ports, including those in quoted headers.
#![doc = "```"]
#![doc = include_str!("guide/ports.txt")]
#![doc = "```"]
//!
//! More examples: [`stage::neighbours`] for the Ethernet address of a next hop, [`stage::Source::creates`]
//! for a source that creates packets, [`stage::Stage::gauges`] for a stage's own figures in the report.
#![cfg_attr(
    feature = "testing",
    doc = "[`testing::simulator`] runs a whole graph with peers that answer."
)]
#![cfg_attr(
    feature = "ops",
    doc = "[`ops`] has the arguments, the control socket and `main` of a program."
)]
//!
//! # A unit test
//!
//! A stage that is generic over its packet is tested on plain memory: without DPDK, privileges,
//! hugepages or a clock. Feature `testing` adds the bench, builders, in-memory ports, fault injection
//! and a simulator.
#![cfg_attr(feature = "testing", doc = include_str!("guide/unit_test.md"))]
#![cfg_attr(
    not(feature = "testing"),
    doc = "Its code is on this page where feature `testing` is on."
)]
//!
#![doc = include_str!("guide/architecture.md")]
//!
//! # Features
//!
//! - `dpdk` (default): ports, queues and mbufs. Without it the crate builds, tests and documents on
//!   machines that have no DPDK.
//! - `ops`: everything for running a program: a control socket and `ctl`, signals, logging, capture
//!   files, and with `dpdk` the devices that a command line names.
//! - `serde`: [`Prefix`](packet::prefix::Prefix) and [`PortRange`](packet::port_range::PortRange) in
//!   files that [serde](https://serde.rs) reads and writes.
//! - `testing`: everything for tests of network functions; for `[dev-dependencies]`.

#![forbid(unsafe_code)]

#[cfg(feature = "ops")]
pub mod ops;
pub mod prelude;

pub use hotloop_arena as arena;
pub use hotloop_engine as engine;
pub use hotloop_flow as flow;
pub use hotloop_packet as packet;
pub use hotloop_ring as ring;

/// The vocabulary of a network function, [`hotloop_stage`], and the [`neighbours`](stage::neighbours) that its packets
/// go to.
pub mod stage {
    pub use hotloop_neighbours as neighbours;
    #[doc(inline)]
    pub use hotloop_stage::*;
}

#[cfg(feature = "dpdk")]
pub use hotloop_dpdk as dpdk;
#[cfg(feature = "testing")]
pub use hotloop_testing as testing;

pub use hotloop_stage::{Error, drop_reasons};

/// Functions return an [`Error`] on failure, unless they name another type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The README's sample, included here to be compiled.
#[cfg(all(doctest, feature = "dpdk"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
