//! Captures: copies of the packets that pass a running engine.
//!
//! Every source, every sink and every place that drops packets has a tap from the start. While nothing is
//! captured, a place reads one byte of its own counters: once a burst at sources and sinks, once a drop
//! elsewhere. [`Taps::capture`] begins a capture: each core gets a filter and empty pages through a ring,
//! copies the packets that the filter wants, and hands full pages back through another. So a core neither
//! allocates, frees, locks nor waits, and what becomes of a packet later never shows in its copy. Where no
//! page is free, the record is lost and counted, and the packet goes on.

mod capture;
mod core;
mod page;

pub use capture::{Capture, CaptureError, Interface, Taps, Totals};
pub use core::{CoreTap, Lane};
pub use page::PAGE_BYTES;

use hotloop_stage::Instant;
use hotloop_stage::tap::{Filter, Way};
use std::fmt;
use std::sync::Arc;

/// The longest snap length, in bytes. No frame of Ethernet is longer, offloads included.
pub const SNAP_BYTES_MAX: usize = PAGE_BYTES;

/// Where a capture sees packets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Points {
    /// As they come from a source.
    pub receive: bool,
    /// As they go to a sink, which may still refuse them.
    pub send: bool,
    /// As they are dropped.
    pub drops: Drops,
}

/// Which dropped packets a capture sees. Those that a device itself can't send (`tx_refused`), and those
/// lost to a panic, it does not see: nothing has them any more.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Drops {
    /// None.
    None,
    /// All of them.
    All,
    /// Those that are dropped for one of these reasons.
    For(Vec<String>),
}

impl Points {
    /// As they come from a source.
    pub const RECEIVE: Self = Self { receive: true, send: false, drops: Drops::None };
    /// As they go to a sink.
    pub const SEND: Self = Self { receive: false, send: true, drops: Drops::None };
    /// As they are dropped, for whatever reason.
    pub const DROP: Self = Self { receive: false, send: false, drops: Drops::All };
    /// Everywhere.
    pub const ALL: Self = Self { receive: true, send: true, drops: Drops::All };

    /// Whether packets are seen there.
    #[must_use]
    pub fn has(&self, way: Way) -> bool {
        match way {
            Way::Receive => self.receive,
            Way::Send => self.send,
            Way::Drop(reason) => match &self.drops {
                Drops::None => false,
                Drops::All => true,
                Drops::For(reasons) => reasons.iter().any(|its| its == reason),
            },
        }
    }
}

/// What is to be captured.
#[derive(Clone)]
pub struct CaptureConfig {
    /// Where.
    pub points: Points,
    /// On which core, by its number in the order of the deployment; on all of them where there is none.
    pub core: Option<usize>,
    /// Which packets; all of them where there is none.
    pub filter: Option<Arc<dyn Filter>>,
    /// How many bytes of a packet are copied, at most [`SNAP_BYTES_MAX`].
    pub snap_bytes: usize,
    /// Of so many wanted packets of a core, one is copied; 1 for all.
    pub sample: u32,
    /// How many pages of [`PAGE_BYTES`] each core gets, at least 2: what it can copy while nobody takes
    /// the copies away.
    pub page_count: usize,
}

impl Default for CaptureConfig {
    /// Everything that is received and sent, whole, with 8 MiB for each core.
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
    /// Where: an index into [`Capture::interfaces`].
    pub interface: usize,
    /// What happened to it.
    pub way: Way,
    /// When, by the engine's clock: [`Capture::epoch_offset_ns`] leads to the time of day.
    pub at: Instant,
    /// The length of the whole packet in bytes.
    pub total_bytes: u32,
    /// Its first bytes, as many as were to be copied.
    pub data: &'a [u8],
}
