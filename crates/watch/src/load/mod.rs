//! How much a core has to do: counted and timed on the core, estimated outside.
//!
//! A poll-mode core uses all of its CPU's time whether packets come or not, and a turn that finds few
//! packets costs each of them more than a full one. So neither CPU time nor the share of turns that
//! found packets says how far a core is from its limit. Here one turn in 64 is timed;
//! [`LoadMeter`] makes of these times what a full burst would cost.

mod counts;
mod estimate;
mod watch;

pub use counts::{LoadCounts, PlaceLoad, TimedTurns, Waiting};
pub use estimate::{CoreLoad, LoadMeter, PlaceTime};
pub use watch::{TimeSource, Watch};
