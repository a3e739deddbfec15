//! How busy the cores of a run are, and whether its threads make progress.
//!
//! The engine counts turns, packets and times. This crate adds the kernel's figures on the threads of
//! cores and on their CPUs, from /proc:
//!
//! - [`Loads`] measures the load once a second: [`load_figures`]. If devices lose packets while a
//!   core's thread has lost its CPU, it logs which threads run there.
//! - [`Scheduling`] has the kernel's sums, for metrics.
//! - [`StallWatcher`] finds workers that are stuck or starved, and a control thread that stalls.
//! - With feature `dpdk`, `mempool_figures` has the fill level of each mempool and its low-water mark.
//!
//! # Guarantees
//!
//! - The packet path takes no part in this: other threads read the counters that cores write anyway.
//! - Reading takes the control thread some files per core and second. The search for threads that
//!   run on a core's CPU, which reads thousands, has a thread of its own without capabilities.
//!
//! # Example
//!
//! A control thread's loop that logs the load:
//!
//! ```
//! use hotloop_engine::{Control, Waited};
//! use hotloop_load::{Loads, load_figures};
//! use std::time::Duration;
//!
//! fn steer(control: &Control<'_>) {
//!     let mut loads = Loads::of(control);
//!     while control.wait_for_signal_or(Duration::from_millis(5)) == Waited::Elapsed {
//!         loads.turn(control);
//!         for core in load_figures() {
//!             tracing::info!("{}: {:?} %", core.load.core, core.load.load_percent);
//!         }
//!     }
//! }
//! ```
//!
//! # Limits
//!
//! Linux only. Times that the kernel was built without are unknown. Threads of other users are found as far
//! as /proc shows them. A thread that is stuck can't be ended from outside: ending the process is up to
//! the program, as is noticing that the whole process is stopped.

#![forbid(unsafe_code)]

mod event;
mod figures;
mod intruder;
mod loads;
#[cfg(feature = "dpdk")]
mod pools;
mod progress;
mod scheduling;
mod stall_watcher;
mod task;

pub use event::StallEvent;
pub use figures::CoreFigures;
pub use loads::{Loads, load_figures};
#[cfg(feature = "dpdk")]
pub use pools::{MempoolFigures, mempool_figures};
pub use scheduling::{Scheduled, Scheduling};
pub use stall_watcher::{ControlTurns, StallWatcher};
