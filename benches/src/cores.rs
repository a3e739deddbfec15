//! Work on two cores at once.

use core_affinity::CoreId;
use std::hint::spin_loop;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

/// Two CPUs: the calling thread's and another thread's.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    here: CoreId,
    there: CoreId,
}

impl Pair {
    /// The first two CPUs that this process may use; the calling thread stays on the first one.
    ///
    /// # Errors
    /// With fewer than two.
    pub fn pin() -> Result<Self, String> {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let [here, there, ..] = cores[..] else {
            return Err(format!("two CPUs are needed, this process may use {}", cores.len()));
        };
        let pair = Self { here, there };
        if !core_affinity::set_for_current(pair.here) {
            return Err(format!("the kernel refuses to pin a thread to CPU {}", here.id));
        }
        Ok(pair)
    }

    /// Runs `there` on the other CPU and `here` on this one, and says how long `here` took from the
    /// moment when both were ready.
    ///
    /// # Panics
    /// When either does, or the other thread can't be pinned.
    pub fn run(self, there: impl FnOnce() + Send, here: impl FnOnce()) -> Duration {
        let (is_ready, go) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(core_affinity::set_for_current(self.there), "the thread can't be pinned");
                is_ready.store(true, Release);
                while !go.load(Acquire) {
                    spin_loop();
                }
                there();
            });
            while !is_ready.load(Acquire) {
                spin_loop();
            }
            let start = Instant::now();
            go.store(true, Release);
            here();
            start.elapsed()
        })
    }
}
