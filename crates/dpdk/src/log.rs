//! DPDK's log: kept while a control call runs, for the error's message. The rest are events of
//! `tracing` with target `dpdk`: errors always, everything where the user asks for it.

use crate::lock::lock;
use hotloop_dpdk_sys as sys;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, Once};

/// How much of what DPDK says about one call is kept, in bytes: its last words.
const KEPT_BYTES: usize = 1024;

static CAPTURE: Mutex<Option<String>> = Mutex::new(None);

/// Whether the user asked for DPDK's log with `--log-level`: then there is an event for all of it.
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Makes DPDK write its log to us.
pub(crate) fn open(verbose: bool) {
    static ONCE: Once = Once::new();
    VERBOSE.store(verbose, Relaxed);
    ONCE.call_once(|| {
        // SAFETY: 1. `write` has the type that is asked for and never unwinds.
        let stream = unsafe { sys::sh_stream(Some(write)) };
        // SAFETY: 1. The stream is open, and is never closed; a null one is DPDK's default, stderr.
        // 2. rte_log.h: may be called before EAL is initialised.
        unsafe { sys::sh_log_to(stream) };
    });
}

/// Runs `call` and returns what DPDK logged in the meantime, warnings and worse: the last lines, in
/// one.
///
/// The caller holds the control lock, so that two captures don't meet.
pub(crate) fn capture<T>(call: impl FnOnce() -> T) -> (T, String) {
    *lock(&CAPTURE) = Some(String::new());
    let result = call();
    let text = lock(&CAPTURE).take().unwrap_or_default();
    (result, in_one_line(&text))
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
    let mut capture = lock(&CAPTURE);
    if let Some(kept) = capture.as_mut()
        && level <= sys::SH_LOG_WARNING
    {
        kept.push_str(&String::from_utf8_lossy(bytes));
    }
    let serious = level > 0 && level <= sys::SH_LOG_ERR;
    if VERBOSE.load(Relaxed) || (capture.is_none() && serious) {
        drop(capture);
        send(&String::from_utf8_lossy(bytes), serious);
    }
    length as isize
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
