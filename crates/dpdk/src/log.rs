//! DPDK's log: captured during a control call for the error's message. Other lines become events of
//! `tracing` with target `dpdk`: errors always, everything if the user asks for it.
//!
//! DPDK logs on any thread, at any depth, and with locks of its own held. So a subscriber may
//! neither unwind into DPDK nor call it again, and gets no events from a thread that is ending,
//! whose thread-local values are gone.

use hotloop_dpdk_sys as sys;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Number of bytes kept of DPDK's output during a call: the end of it.
const KEPT_BYTES: usize = 1024;

static CAPTURE: Mutex<Option<String>> = Mutex::new(None);

/// Why a call from an event is refused, and the remedy.
pub(crate) const NO_CALLS: &str =
    "DPDK may hold locks meanwhile; have another thread make the call";

/// Whether the user asked for DPDK's log with `--log-level`: then every line becomes an event.
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Whether the calling thread sends events.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Events {
    Sent,
    /// The thread is sending one now.
    Sending,
    /// The thread's local values are being dropped.
    Ended,
}

thread_local! {
    /// Nothing to initialise and nothing to drop, so it exists until the thread is gone.
    static EVENTS: Cell<Events> = const { Cell::new(Events::Sent) };
    /// Dropped before all values that the thread had when it first sent an event: thread-local
    /// values are dropped in reverse order.
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        end_thread();
    }
}

/// Stops the calling thread, which is ending, from sending events.
pub(crate) fn end_thread() {
    EVENTS.set(Events::Ended);
}

/// Whether the calling thread is inside an event: DPDK waits for it, perhaps with locks held, and
/// so may a call of this crate.
pub(crate) fn is_sending() -> bool {
    EVENTS.get() == Events::Sending
}

/// Makes DPDK write its log to this module.
pub(crate) fn open(verbose: bool) {
    static ONCE: Once = Once::new();
    VERBOSE.store(verbose, Relaxed);
    ONCE.call_once(|| {
        // SAFETY: 1. `write` has the declared type. 2. It never unwinds: `take` catches panics of
        // the events' subscriber, and nothing else there panics. 3. rte_log.h: may be called before
        // EAL is initialised.
        unsafe { sys::sh_log_to(Some(write)) };
    });
}

/// Runs `call` and returns DPDK's log output during the call, warnings and worse: the last lines,
/// joined into one.
///
/// The caller must hold the control lock, so that two captures don't overlap.
pub(crate) fn capture<T>(call: impl FnOnce() -> T) -> (T, String) {
    *captured() = Some(String::new());
    let result = call();
    let text = captured().take().unwrap_or_default();
    (result, in_one_line(&text))
}

/// Doesn't use [`crate::lock::lock`], which panics inside events, where DPDK may log, too.
fn captured() -> MutexGuard<'static, Option<String>> {
    CAPTURE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last lines that fit, with DPDK's prefixes unchanged.
fn in_one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join("; ");
    let excess = line.len().saturating_sub(KEPT_BYTES);
    match line.char_indices().find(|(index, _)| *index >= excess) {
        Some((0, _)) => line,
        Some((start, _)) => format!("... {}", &line[start..]),
        None => "nothing".into(),
    }
}

/// Called by stdio with DPDK's output.
extern "C" fn write(_: *mut c_void, text: *const c_char, length: usize) -> isize {
    // SAFETY: 1. fopencookie(3): `text` points to `length` bytes while the call lasts.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    // SAFETY: 1. Reads a thread-local variable.
    let level = unsafe { sys::rte_log_cur_msg_loglevel() };
    take(&String::from_utf8_lossy(bytes), level);
    length as isize
}

/// Never unwinds.
fn take(text: &str, level: c_int) {
    let mut capture = captured();
    if let Some(kept) = capture.as_mut()
        && level <= sys::SH_LOG_WARNING
    {
        kept.push_str(text);
    }
    let is_serious = level > 0 && level <= sys::SH_LOG_ERR;
    let is_sent = VERBOSE.load(Relaxed) || (capture.is_none() && is_serious);
    drop(capture);
    if !is_sent || EVENTS.get() != Events::Sent {
        return;
    }
    EVENTS.set(Events::Sending);
    // A panic of the subscriber has been reported by its hook.
    let _ = catch_unwind(|| send(text, is_serious));
    EVENTS.set(Events::Sent);
    // If the thread is already ending, the guard can no longer be made.
    let _ = END.try_with(|End| ());
}

/// Sends an event for each line. DPDK logs on any thread: subscribers must not block.
fn send(text: &str, is_serious: bool) {
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        if is_serious {
            tracing::error!(target: "dpdk", "{line}");
        } else {
            tracing::debug!(target: "dpdk", "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_the_last_ones_are_kept() {
        assert_eq!(in_one_line("EAL: a\n\n  PMD: b  \n"), "EAL: a; PMD: b");
        assert_eq!(in_one_line(""), "nothing");
        let long = in_one_line(&"x".repeat(5000));
        assert_eq!(long.len(), KEPT_BYTES + 4);
        assert!(long.starts_with("... x"));
    }
}
