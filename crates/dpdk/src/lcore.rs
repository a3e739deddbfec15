//! EAL's view of threads: a registered thread has an lcore id and, with it, a cache in each
//! mempool.
//!
//! An unregistered thread works, too, at about half the speed. Registration lasts until the thread
//! ends: a guard in thread-local storage returns the id, which EAL itself never does, and flushes
//! the thread's caches to the mempools, where EAL would leave mbufs in them.

use crate::errno::{errno, errno_text};
use crate::{Eal, Error, lcore_id, log, mempool, stack};
use hotloop_dpdk_sys as sys;
use std::cell::OnceCell;

pub use crate::lcore_id::current;

thread_local! {
    static REGISTRATION: OnceCell<Registration> = const { OnceCell::new() };
}

/// Registers the calling thread with EAL until it ends, and returns its lcore id. A registered
/// thread keeps its id.
///
/// Call this after pinning the thread: EAL records the CPUs that it may run on.
/// [`Port::rx_queue`](crate::Port::rx_queue) and [`Port::tx_queue`](crate::Port::tx_queue) also
/// register the thread.
///
/// # Errors
/// [`Error::NoLcore`] if all lcore ids are taken (128 in a distribution's DPDK, EAL's own among
/// them), if the thread is ending, or inside an event of DPDK's log; [`Error::Stack`] on a stack
/// with too little room.
pub fn register(eal: Eal) -> Result<u32, Error> {
    let _ = eal;
    stack::check()?;
    REGISTRATION
        .try_with(|cell| match cell.get() {
            Some(registration) => Ok(registration.lcore),
            None => {
                let registration = Registration::new()?;
                Ok(cell.get_or_init(|| registration).lcore)
            }
        })
        .unwrap_or_else(|_| Err(Error::NoLcore { found: "the thread is ending".into() }))
}

/// Keeps the calling thread registered.
struct Registration {
    lcore: u32,
}

impl Registration {
    fn new() -> Result<Self, Error> {
        if log::is_sending() {
            let found = format!("it is in an event of DPDK's log, and {}", log::NO_CALLS);
            return Err(Error::NoLcore { found });
        }
        // SAFETY: 1. EAL is initialised: the caller has an `Eal`. 2. rte_lcore.h: any thread may
        // call it.
        if unsafe { sys::rte_thread_register() } != 0 {
            let found = format!(
                "{} ({} threads of this program are registered); EAL has room for {} lcores, its own \
                 among them: start fewer threads that use queues, or give EAL fewer lcores (-l)",
                errno_text(errno()),
                lcore_id::registered_count(),
                sys::SH_LCORE_MAX
            );
            return Err(Error::NoLcore { found });
        }
        lcore_id::count_registered();
        Ok(Self { lcore: current().unwrap_or_default() })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // DPDK logs the end at a time when a subscriber's thread-local values may be gone.
        log::end_thread();
        // The next thread that gets the id may live long, and no other thread may touch its caches.
        mempool::flush_own_caches();
        // SAFETY: 1. This thread was registered by `new`, in `register`, which keeps the value in the
        // thread's own storage.
        unsafe { sys::rte_thread_unregister() };
        lcore_id::count_unregistered();
    }
}
