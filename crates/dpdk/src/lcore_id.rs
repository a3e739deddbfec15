//! The lcore id of a thread, and the number of threads that this crate has registered.

use hotloop_dpdk_sys as sys;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Number of registered threads.
static REGISTERED_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether the calling thread is one of them.
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// The lcore id of the calling thread, if it has one.
#[must_use]
pub fn current() -> Option<u32> {
    // SAFETY: 1. Reads a thread-local variable.
    let lcore = unsafe { sys::sh_lcore_id() };
    (lcore != sys::SH_LCORE_ID_ANY).then_some(lcore)
}

/// Counts the calling thread as registered.
pub(crate) fn count_registered() {
    IS_REGISTERED.set(true);
    REGISTERED_COUNT.fetch_add(1, Relaxed);
}

/// Counts the calling thread as registered no longer.
pub(crate) fn count_unregistered() {
    IS_REGISTERED.set(false);
    REGISTERED_COUNT.fetch_sub(1, Relaxed);
}

/// Number of registered threads.
pub(crate) fn registered_count() -> usize {
    REGISTERED_COUNT.load(Relaxed)
}

/// Number of other registered threads, whose caches may hold mbufs.
pub(crate) fn others_count() -> usize {
    registered_count() - usize::from(IS_REGISTERED.get())
}
