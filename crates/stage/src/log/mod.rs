//! Logging from the packet path: `tracing`'s macros, for code that may not wait.
//!
//! [`error!`], [`warn!`], [`info!`], [`debug!`] and [`trace!`] take what `tracing`'s macros of the same
//! names take. On a core of an engine they copy the arguments into a record of fixed size and push it into
//! the core's own ring; a thread that may wait formats it later and sends it as an event of `tracing`, with
//! the level, target, file and line of the place that recorded it. Elsewhere, in a test or on a control
//! thread, the event is sent at once.
//!
//! ```
//! use hotloop_packet::memory::MemPacket;
//! use hotloop_stage::{Carries, Cx, NoDrops, Stage, Verdict, log};
//!
//! struct Watchful;
//!
//! impl Stage<MemPacket> for Watchful {
//!     type Out = MemPacket;
//!     type Drop = NoDrops;
//!
//!     fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: MemPacket) -> Verdict<MemPacket> {
//!         let bytes = packet.total_bytes();
//!         if bytes > 1514 {
//!             log::warn!(bytes, "a packet of {} bytes: is the MTU right?", bytes);
//!         }
//!         Ok(packet)
//!     }
//! }
//! ```
//!
//! # What it costs
//!
//! - Where the level is off, one relaxed load and a branch; where the subscriber does not want this place,
//!   one more of each. Arguments are evaluated only where a record is made of them.
//! - Nothing is allocated, formatted, locked or asked of the kernel on the core, whether anybody reads the
//!   log or not.
//! - An engine limits how many records each place makes on each core. Those beyond are counted, as are
//!   those for which the ring has no room, and an event says how many there were.
//!
//! # Limits
//!
//! - A record has at most [`VALUE_COUNT_MAX`] values, fields and arguments together: integers, `bool`,
//!   [IP](std::net::IpAddr) and [MAC](hotloop_packet::ethernet::MacAddress) addresses, `&'static str`,
//!   arrays of at most [`BYTES_MAX`] bytes. More values, or others, don't compile.
//! - The message can't name variables: `"{}", port`, or `"{port}", port = port`, not `"{port}"` alone. Nor
//!   can it format by anything but `{}` and `{:?}`, with width and precision.
//! - Field names are identifiers, without dots. There are no spans.
//!
//! Names of sites, and what else a subscriber may see of them, are as in `tracing`. What is not known before
//! the first record of a place is whether a subscriber wants it, so that one record of a place may be made in
//! vain.

mod macros;
mod site;
mod value;

pub use crate::{
    log_debug as debug, log_error as error, log_info as info, log_trace as trace, log_warn as warn,
};
pub use site::{SITE_COUNT_MAX, Site, event_time, is_level_on};
pub use value::{BYTES_MAX, VALUE_COUNT_MAX, Value, Values};

use std::cell::RefCell;
use std::rc::Rc;

/// What the macros expand to, beside what is public.
#[doc(hidden)]
pub mod private {
    pub use super::site::Style;
    pub use tracing::callsite::Identifier;
    pub use tracing::field::FieldSet;
    pub use tracing::metadata::Kind;
    pub use tracing::{Level, Metadata};

    /// The next argument of a message.
    pub fn next<'a>(values: &mut std::slice::Iter<'a, super::Value>) -> &'a super::Value {
        values.next().expect("there is a value for each argument")
    }
}

/// Where the records of a core go: an engine's, one for each core.
pub trait Recorder {
    /// Takes a record of `site`, of what `values` returns, or leaves it out. It may not block, allocate,
    /// lock or make a system call.
    fn record(&self, site: &'static Site, values: &mut dyn FnMut() -> Values);
}

thread_local! {
    /// Where the records of the core that runs on this thread go.
    static RECORDER: RefCell<Option<Rc<dyn Recorder>>> = const { RefCell::new(None) };
}

/// For an engine: from now on this thread's records go to `recorder`, and are sent as events at once
/// where there is none. Returns the one before it.
pub fn enter(recorder: Option<Rc<dyn Recorder>>) -> Option<Rc<dyn Recorder>> {
    RECORDER.with(|slot| slot.replace(recorder))
}

/// For the macros: records what `values` returns.
#[doc(hidden)]
#[cold]
#[inline(never)]
pub fn record(site: &'static Site, values: &mut dyn FnMut() -> Values) {
    // A thread that ends has no recorder any more.
    let is_recorded = RECORDER.try_with(|recorder| match &*recorder.borrow() {
        Some(recorder) => {
            recorder.record(site, values);
            true
        }
        None => false,
    });
    if !is_recorded.unwrap_or(false) {
        site.send(&values(), None);
    }
}
