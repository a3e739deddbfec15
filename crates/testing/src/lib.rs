//! Tools for tests of packet programs: I/O in memory, packets, faults, and proof.
//!
//! - [`bench()`] and [`bench_burst()`] drive one stage on plain memory; the test owns time.
//! - [`build`] makes packets of all kinds, [`malformed_frames`] those that no correct sender sends.
//! - [`MemoryPort`] is a port with memory as its wire. Its packets come from a [`PacketPool`] and
//!   have an identity, so that lost, forgotten and duplicated ones are found.
//! - [`Faults`] injects typical device faults (loss, truncation, no mbuf, partial and full TX) from
//!   a seed; [`Plant`] makes a source, stage or sink break the ledger on purpose.
//! - [`AllocGuard`] counts allocations and [`syscalls`] counts system calls, each by thread;
//!   [`Steady`] does both to the engine's threads, once they are warm.
//! - [`simulator`] runs a whole network function on one thread, in the order of a seed.
//!
//! ```
//! use hotloop_packet::PacketBuf;
//! use hotloop_stage::{Cx, Stage, Verdict, drop_reasons};
//! use hotloop_testing::bench;
//! use hotloop_testing::build::udp;
//!
//! drop_reasons! { pub enum RouterDrop { TtlExpired = "ttl_expired" } }
//!
//! #[derive(Default)]
//! struct Router;
//!
//! impl<P: PacketBuf> Stage<P> for Router {
//!     type Out = P;
//!     type Drop = RouterDrop;
//!
//!     fn packet(&mut self, cx: &mut Cx<'_, RouterDrop>, packet: P) -> Verdict<P> {
//!         let ttl = packet.data()[22];
//!         if ttl <= 1 { cx.drop(packet, RouterDrop::TtlExpired) } else { Ok(packet) }
//!     }
//! }
//!
//! let out = bench(Router::default()).feed([udp().ttl(1).to("198.51.100.7:53")]);
//! assert!(out.packets().is_empty());
//! assert_eq!(out.dropped(RouterDrop::TtlExpired), 1);
//! ```
//!
//! Everything random is derived from a seed. Nothing here is for production: queues in memory take
//! locks, and copy their frames. Linux with glibc only: system calls are counted with `ptrace(2)`.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait")]
mod alloc_guard;
mod bench;
mod faults;
mod frame;
mod malformed;
mod planted;
mod pool;
mod port;
mod port_queues;
mod port_state;
mod rng;
pub mod simulator;
mod steady;
pub mod syscalls;

pub use alloc_guard::{AllocCounts, AllocGuard, Armed};
pub use bench::{Bench, OneByOne, Outcome, bench, bench_burst};
pub use faults::{FaultRates, Faults, FaultySink, FaultySource};
pub use frame::Frame;
pub use hotloop_packet::build;
pub use malformed::{malformed_frames, mutated};
pub use planted::{
    Plant, PlantedBurstStage, PlantedDrop, PlantedSink, PlantedSource, PlantedStage,
};
pub use pool::{NotWhole, PacketPool, PooledPacket};
pub use port::MemoryPort;
pub use port_queues::{MemoryRx, MemoryTx};
pub use port_state::PortConfig;
pub use rng::Rng;
pub use steady::{Steady, SteadyThread, Watched};
