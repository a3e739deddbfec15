//! Captures: copies of the packets that pass a running engine.
//!
//! Every source, every sink and every place that drops packets has a tap from the start. While
//! nothing is captured, a place reads one byte of its own counters: once per burst at sources and
//! sinks, once per drop elsewhere. [`Taps::capture`] begins a capture: each core gets a filter and
//! empty pages through a ring, copies the packets that the filter wants, and returns full pages
//! through another ring. So a core neither allocates, frees, locks nor waits, and later changes of
//! a packet never show in its copy. If no page is free, the record is lost and counted, and the
//! packet goes on.

mod capture;
mod core;
mod page;

pub use capture::{Capture, CaptureError, Interface, Taps, Totals};
pub use core::{CoreTap, TapControl};
pub use page::PAGE_BYTES;

use hotloop_stage::Instant;
use hotloop_stage::tap::{Filter, TapPoint};
use std::fmt;
use std::sync::Arc;

/// The longest snap length, in bytes. No Ethernet frame is longer, offloads included.
pub const SNAP_BYTES_MAX: usize = PAGE_BYTES;

/// The points at which a capture sees packets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Points {
    /// At a source.
    pub receive: bool,
    /// At a sink, which may still refuse them.
    pub send: bool,
    /// When they are dropped.
    pub drops: Drops,
}

/// The dropped packets that a capture sees. It never sees packets that a device itself can't send
/// (`tx_refused`), nor packets lost to a panic: they are no longer accessible.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Drops {
    /// No drops.
    None,
    /// All drops.
    All,
    /// Drops for one of these reasons.
    For(Vec<String>),
}

impl Points {
    /// Packets from a source.
    pub const RECEIVE: Self = Self { receive: true, send: false, drops: Drops::None };
    /// Packets to a sink.
    pub const SEND: Self = Self { receive: false, send: true, drops: Drops::None };
    /// Dropped packets, for whatever reason.
    pub const DROP: Self = Self { receive: false, send: false, drops: Drops::All };
    /// All points.
    pub const ALL: Self = Self { receive: true, send: true, drops: Drops::All };

    /// Whether a capture with these points sees this event.
    #[must_use]
    pub fn has(&self, point: TapPoint) -> bool {
        match point {
            TapPoint::Receive => self.receive,
            TapPoint::Send => self.send,
            TapPoint::Drop(reason) => match &self.drops {
                Drops::None => false,
                Drops::All => true,
                Drops::For(reasons) => reasons.iter().any(|its| its == reason),
            },
        }
    }
}

/// The configuration of a capture.
#[derive(Clone)]
pub struct CaptureConfig {
    /// The points at which to capture.
    pub points: Points,
    /// The number of the core, in the order of the deployment; `None` for all cores.
    pub core: Option<usize>,
    /// The filter for packets; `None` for all packets.
    pub filter: Option<Arc<dyn Filter>>,
    /// Number of bytes to copy of each packet, at most [`SNAP_BYTES_MAX`].
    pub snap_bytes: usize,
    /// One wanted packet in this many is copied, on each core; 1 for all.
    pub sample: u32,
    /// Number of pages of [`PAGE_BYTES`] for each core, at least 2: its capacity for copies until
    /// they are collected.
    pub page_count: usize,
}

impl Default for CaptureConfig {
    /// All received and sent packets, whole, with 8 MiB for each core.
    fn default() -> Self {
        Self {
            points: Points { send: true, ..Points::RECEIVE },
            core: None,
            filter: None,
            snap_bytes: SNAP_BYTES_MAX,
            sample: 1,
            page_count: 32,
        }
    }
}

impl fmt::Debug for CaptureConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureConfig")
            .field("points", &self.points)
            .field("core", &self.core)
            .field("snap_bytes", &self.snap_bytes)
            .field("sample", &self.sample)
            .field("page_count", &self.page_count)
            .finish_non_exhaustive()
    }
}

/// A packet as a capture saw it.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The place: an index into [`Capture::interfaces`].
    pub interface: usize,
    /// The event.
    pub point: TapPoint,
    /// The time, by the engine's clock: add [`Capture::epoch_offset_ns`] to get the time of day.
    pub at: Instant,
    /// The length of the whole packet in bytes.
    pub total_bytes: u32,
    /// The packet's first bytes, up to the snap length.
    pub data: &'a [u8],
}
