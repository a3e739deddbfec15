//! DPDK's log: kept while a control call runs, for the error's message. The rest are events of
//! `tracing` with target `dpdk`: errors always, everything where the user asks for it.
//!
//! DPDK logs on any thread, at any depth, and with locks of its own held. So what takes the events may
//! neither unwind into it nor call into it again, and gets none from a thread that is ending, whose
//! thread-local values are gone.

use hotloop_dpdk_sys as sys;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// How much of what DPDK says about one call is kept, in bytes: its last words.
const KEPT_BYTES: usize = 1024;

static CAPTURE: Mutex<Option<String>> = Mutex::new(None);

/// Why a call from an event is refused, and what to do.
pub(crate) const NO_CALLS: &str =
    "DPDK may hold locks meanwhile; have another thread make the call";

/// Whether the user asked for DPDK's log with `--log-level`: then there is an event for all of it.
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Whether the calling thread sends events.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Events {
    Sent,
    /// It is sending one now.
    Sending,
    /// Its thread-local values are being dropped.
    Ended,
}

thread_local! {
    /// Nothing to initialise and nothing to drop, so that it is there until the thread is gone.
    static EVENTS: Cell<Events> = const { Cell::new(Events::Sent) };
    /// Dropped before all values that the thread had when it first sent an event: the last to come is
    /// the first to go.
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        end_thread();
    }
}

/// The calling thread is ending, and sends no events from now on.
pub(crate) fn end_thread() {
    EVENTS.set(Events::Ended);
}

/// Whether the calling thread is in an event: DPDK waits for it, perhaps with locks held, and so may a
/// call of this crate.
pub(crate) fn is_sending() -> bool {
    EVENTS.get() == Events::Sending
}

/// Makes DPDK write its log to us.
pub(crate) fn open(verbose: bool) {
    static ONCE: Once = Once::new();
    VERBOSE.store(verbose, Relaxed);
    ONCE.call_once(|| {
        // SAFETY: 1. `write` has the type that is asked for. 2. It never unwinds: `take` catches what
        // the events' subscriber panics with, and nothing else there panics. 3. rte_log.h: may be called
        // before EAL is initialised.
        unsafe { sys::sh_log_to(Some(write)) };
    });
}

/// Runs `call` and returns what DPDK logged in the meantime, warnings and worse: the last lines, in
/// one.
///
/// The caller holds the control lock, so that two captures don't meet.
pub(crate) fn capture<T>(call: impl FnOnce() -> T) -> (T, String) {
    *captured() = Some(String::new());
    let result = call();
    let text = captured().take().unwrap_or_default();
    (result, in_one_line(&text))
}

/// Not by [`crate::lock::lock`], which is not for use in an event, where DPDK may log too.
fn captured() -> MutexGuard<'static, Option<String>> {
    CAPTURE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last lines that fit, each with DPDK's prefixes as they are.
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

/// Called by stdio with what DPDK wrote.
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
    // A panic of what takes the event has been reported by its hook.
    let _ = catch_unwind(|| send(text, is_serious));
    EVENTS.set(Events::Sent);
    // If the thread is already ending, the guard can no longer be made.
    let _ = END.try_with(|End| ());
}

/// An event for each line. DPDK logs on any thread: what takes the events must not wait.
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
