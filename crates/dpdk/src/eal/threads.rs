//! EAL's own threads: the one that handles interrupts and alarms, and one for each lcore beyond the
//! first, which hotloop leaves idle. State that belongs to a thread, such as capabilities, can only
//! be changed by that thread.

use hotloop_dpdk_sys as sys;
use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// Time limit for EAL's interrupt thread to make a call.
const WAIT: Duration = Duration::from_secs(10);

/// The function that each of the threads calls once.
static WORK: OnceLock<fn()> = OnceLock::new();

/// Sets the function that each of them calls once after its start.
pub(super) fn set(work: fn()) -> bool {
    WORK.set(work).is_ok()
}

/// Makes each thread call the function, if one is set. Must be called on the main lcore, once. The
/// error is DPDK's code.
pub(super) fn visit() -> Result<(), c_int> {
    if WORK.get().is_none() {
        return Ok(());
    }
    // SAFETY: 1. rte_launch.h: to be executed on the main lcore, as here; every other lcore waits.
    // 2. `on_lcore` has the type that the header declares, ignores its argument and never unwinds.
    let result = unsafe { sys::sh_visit_lcores(Some(on_lcore)) };
    if result < 0 {
        return Err(result);
    }

    let (done, visited) = sync_channel(1);
    let done = Box::into_raw(Box::new(done));
    // SAFETY: 1. `on_alarm` has the type that the header declares and never unwinds. 2. `done` is a
    // `Box<SyncSender<()>>` made raw, which only `on_alarm` takes back, once: EAL calls an alarm
    // once.
    let result = unsafe { sys::rte_eal_alarm_set(1, Some(on_alarm), done.cast()) };
    if result < 0 {
        return Err(result);
    }
    visited.recv_timeout(WAIT).map_err(|_| rustix::io::Errno::TIMEDOUT.raw_os_error())
}

fn work() {
    if let Some(work) = WORK.get() {
        // A panic has been reported by its hook, and must not unwind into C.
        let _ = catch_unwind(work);
    }
}

extern "C" fn on_lcore(_: *mut c_void) -> c_int {
    work();
    0
}

extern "C" fn on_alarm(done: *mut c_void) {
    work();
    // SAFETY: 1. `visit` made `done` with `Box::into_raw` of this type, and passes it to one call.
    let done = unsafe { Box::from_raw(done.cast::<SyncSender<()>>()) };
    let _ = done.send(());
}
