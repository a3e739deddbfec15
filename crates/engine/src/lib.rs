//! The engine: runs a graph of stages over cores.
//!
//! A graph starts at a [`source`], goes through stages and boundaries, and ends in a sink. At a
//! boundary ([`shard_by`](Chain::shard_by), [`handoff`](Chain::handoff)) packets change cores; the
//! section between two boundaries is a group. The same graph runs in either [`Deployment`]:
//! *run-to-completion*, where each core runs all groups for its own queues, and *pipeline*, where
//! each group has its own cores, connected by lock-free rings.
//!
//! - The engine knows no protocol and no driver: it moves items from a
//!   [`Source`](hotloop_stage::Source) to a [`Sink`](hotloop_stage::Sink).
//! - In steady state a core allocates nothing, takes no lock and makes no system call.
//! - At every exit, also after a signal or a panic, every packet is accounted for: the [`Report`]
//!   shows whether received + created = sent + dropped, at each stage and against the devices' own
//!   counters. A difference is an error of the run.
//! - While cores run, control hands them values by [`publish()`], in which they may count by [`CoreCounters`], queries them by [`mailbox()`], lists
//!   their state by [`Lister`], and reads their counts by [`Control::snapshot`]; none of it makes a core
//!   wait.
//! - Packets can be captured where they come in, go out and are dropped, by [`Control::taps`]: a capture
//!   that can't keep up loses records, which are counted, and never packets.
//! - At most 16 groups and 127 cores.
//!
//! ```
//! use hotloop_engine::{Chain, Deployment, Engine, source};
//! use hotloop_stage::{Burst, Carries, Sink, Source, each};
//!
//! /// Any item can go through a graph.
//! struct Number(u64);
//!
//! impl Carries for Number {
//!     fn bytes(&self) -> &[u8] { &[] }
//! }
//!
//! struct Count(u64);
//!
//! impl Source for Count {
//!     type Item = Number;
//!     fn poll(&mut self, burst: &mut Burst<Number>) -> usize {
//!         let count = (burst.room() as u64).min(self.0);
//!         self.0 -= count;
//!         burst.extend((0..count).map(Number));
//!         count as usize
//!     }
//!     fn finished(&self) -> bool { self.0 == 0 }
//! }
//!
//! struct Nothing;
//!
//! impl Sink for Nothing {
//!     type Item = Number;
//!     fn send(&mut self, burst: &mut Burst<Number>) -> usize {
//!         let count = burst.len();
//!         burst.clear();
//!         count
//!     }
//! }
//!
//! # fn main() -> Result<(), hotloop_stage::Error> {
//! let graph = source(|_| Ok::<_, std::io::Error>(Count(1000)))
//!     .stage(|_| each(|number: Number| Number(number.0 + 1)))
//!     .shard_by(|number| number.0 as u32)
//!     .sink(|_| Ok::<_, std::io::Error>(Nothing));
//!
//! let plan = Engine::plan(graph, Deployment::run_to_completion(2))?;
//! let report = plan.run(|control| control.wait_until_finished())?;
//! assert_eq!((report.received, report.sent), (2000, 2000));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod assembly;
mod chain;
mod clock;
mod control;
mod core_counters;
mod deployment;
mod engine;
mod idle;
mod ledger;
mod lister;
mod mailbox;
mod monitor;
mod node_info;
mod panic_origin;
mod placement;
mod publish;
mod report;
mod report_text;
mod settle;
mod sources;
mod sources_by_time;
mod thread;
mod topology;
mod turn;
mod wait;
mod worker;

pub use assembly::Assembly;
pub use chain::{Chain, Fork, Graph, Outlet, Outlets, Routed, Shard, outlets, source};
pub use clock::Clock;
pub use control::{Control, Waited};
pub use core_counters::CoreCounters;
pub use deployment::{Deployment, PlanError, RING_CAPACITY_MAX};
pub use engine::{Engine, Plan};
pub use hotloop_watch::{
    Capture, CaptureConfig, CaptureError, CoreLoad, Drops, Interface, LoadCounts, LoadMeter,
    PAGE_BYTES, PlaceCounts, PlaceLoad, PlaceSnapshot, PlaceTime, Points, Record, SNAP_BYTES_MAX,
    Snapshot, Taps, TimedTurns, Totals, Waiting,
};
pub use idle::Idle;
pub use ledger::NicLoss;
pub use lister::{LIST_BUDGET, LIST_ROWS_MAX, LIST_TURNS_MAX, ListPage, ListRows, Lister};
pub use mailbox::{Asker, Mailbox, Mailboxes, mailbox};
pub use monitor::{CoreState, Monitor};
pub use placement::{Placement, PlacementError, Seat};
pub use publish::{Publisher, Subscriber, Subscribers, publish};
pub use report::{CoreReport, DeviceTotals, Report, RunError};
pub use sources::{Sources, sources};
pub use sources_by_time::{SourcesByTime, sources_by_time};
pub use topology::{Cpu, Topology};
pub use wait::CoreTime;
