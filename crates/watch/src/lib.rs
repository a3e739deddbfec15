//! Watching running cores from outside.
//!
//! An engine describes each core by its places and its turns, as [`CorePlaces`]. Any thread can
//! then read the counts of the places ([`Snapshot`]) and the load of the core ([`LoadCounts`];
//! [`LoadMeter`] computes figures for people), and capture the packets that pass ([`Taps`]).
//!
//! - This crate is for engines and for programs that show the activity of their cores. It uses
//!   rings and the vocabulary of stages, and knows neither graphs nor threads: an engine calls
//!   [`Watch`] and [`CoreTap`] on its cores.
//! - No core waits for an observer. A core writes its counts with relaxed stores of its own and
//!   passes copies of packets through rings; if they are not collected in time, records are lost,
//!   which are counted, and never packets. In steady state, nothing here allocates, locks or makes
//!   a system call on a core.
//!
//! ```
//! use hotloop_stage::Counters;
//! use hotloop_watch::{CorePlaces, Place, PlaceKind, Snapshot, Watch};
//! use std::sync::Arc;
//!
//! let counters = Arc::new(Counters::new(&[]));
//! let watch = Arc::new(Watch::new(1, None));
//! let core = CorePlaces {
//!     name: "core 0".to_owned(),
//!     group: 0,
//!     index: 0,
//!     cpu: None,
//!     in_flight_max: 64,
//!     places: vec![Place::new(PlaceKind::Source, 0, "port 0", &counters)],
//!     watch: Arc::clone(&watch),
//!     devices: vec![Vec::new()],
//! };
//!
//! // A turn of the core, in which three packets come.
//! watch.begin_turn();
//! watch.enter(0);
//! counters.received.add(3);
//! watch.count(3);
//!
//! assert_eq!(Snapshot::of("1 core".to_owned(), [&core].into_iter()).received, 3);
//! assert_eq!(core.load().packets, 3);
//! ```
//!
//! # Limits
//!
//! At most 8 captures at a time. Figures that are read while a core runs belong to slightly
//! different moments.

#![forbid(unsafe_code)]

mod load;
mod place;
mod snapshot;
mod tap;

pub use load::{
    CoreLoad, LoadCounts, LoadMeter, PlaceLoad, PlaceTime, TimeSource, TimedTurns, Waiting, Watch,
};
pub use place::{Place, PlaceKind};
pub use snapshot::{CorePlaces, PlaceCounts, PlaceSnapshot, Snapshot};
pub use tap::{
    Capture, CaptureConfig, CaptureError, CoreTap, Drops, Interface, PAGE_BYTES, Points, Record,
    SNAP_BYTES_MAX, TapControl, Taps, Totals,
};
