//! The load of a core: counted and timed on the core, estimated outside.
//!
//! A poll-mode core uses all of its CPU's time even without packets, and each packet costs
//! more in a turn that finds few packets than in a full one. So neither CPU time nor the share of
//! turns with packets shows how far a core is from its limit. Here one turn in 64 is timed;
//! [`LoadMeter`] computes the cost of a full burst from these times.

mod counts;
mod estimate;
mod watch;

pub use counts::{LoadCounts, PlaceLoad, TimedTurns, Waiting};
pub use estimate::{CoreLoad, LoadMeter, PlaceTime};
pub use watch::{TimeSource, Watch};
