//! Work on two cores at once.

use crate::watch::Switches;
use core_affinity::CoreId;
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

/// Number of times that eight products are computed, some 60 microseconds, and number of attempts.
const MULTIPLY_COUNT: u64 = 16_384;
const TRIES: usize = 5;

/// Multiplies at a core's full rate: eight independent products at a time. Returns the time taken.
fn multiply(count: u64) -> Duration {
    let start = Instant::now();
    let mut products = [1_u64, 3, 5, 7, 9, 11, 13, 15];
    for number in 0..black_box(count) {
        for product in &mut products {
            let wide = u128::from(*product ^ number) * 0x9e37_79b9_7f4a_7c15;
            *product = (wide >> 64) as u64 ^ wide as u64;
        }
    }
    black_box(products);
    start.elapsed()
}

/// The minimum of a few attempts.
fn least(mut take: impl FnMut() -> Duration) -> Duration {
    (0..TRIES).map(|_| take()).min().unwrap_or_default()
}

fn multiplying() -> Duration {
    least(|| multiply(MULTIPLY_COUNT))
}

/// The calling thread's CPU, and another one.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    there: CoreId,
    switch_count: &'static AtomicU64,
}

impl Pair {
    /// Pins the calling thread to the first CPU that this process may use. Returns the first two,
    /// or `None` if there is only one.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn pin() -> Result<Option<Self>, String> {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let here = *cores.first().ok_or("the CPUs of this process are unknown")?;
        if !core_affinity::set_for_current(here) {
            return Err(format!("the kernel refuses to pin a thread to CPU {}", here.id));
        }
        static SWITCH_COUNT: AtomicU64 = AtomicU64::new(0);
        let pair = |there: &CoreId| Self { there: *there, switch_count: &SWITCH_COUNT };
        Ok(cores.get(1).map(pair))
    }

    /// Number of times that other threads took a CPU from `here` or `there` in all runs so far.
    #[must_use]
    pub fn switch_count(self) -> u64 {
        self.switch_count.load(Relaxed)
    }

    /// Whether both CPUs are hardware threads of one core, whatever a hypervisor reports: then each
    /// multiplies at half the speed while the other does.
    ///
    /// # Panics
    /// As for [`run`](Self::run).
    #[must_use]
    pub fn shares_core(self) -> bool {
        let together = || {
            let is_over = Arc::new(AtomicBool::new(false));
            let until_over = Arc::clone(&is_over);
            let there = move || {
                while !until_over.load(Relaxed) {
                    multiply(MULTIPLY_COUNT / 16);
                }
            };
            self.run(there, || {
                multiply(MULTIPLY_COUNT);
                is_over.store(true, Relaxed);
            })
        };
        least(together) > multiplying().mul_f64(1.5)
    }

    /// The time that each of the two takes to multiply while the other sleeps, `here` first. It is
    /// longer while another machine or program uses the other hardware thread of the core.
    ///
    /// # Panics
    /// As for [`run`](Self::run).
    #[must_use]
    pub fn multiplying(self) -> [Duration; 2] {
        let mut there = Duration::ZERO;
        self.run(|| there = multiplying(), || ());
        [multiplying(), there]
    }

    /// Runs `there` on the other CPU and `here` on this one, and returns how long `here` took from
    /// the moment when both were ready.
    ///
    /// `there` must own all the data that it uses: data borrowed from the caller's stack shares
    /// cache lines with the data that `here` writes, and each write takes the line away.
    ///
    /// # Panics
    /// If either panics, or if the other thread can't be pinned.
    pub fn run(self, there: impl FnOnce() + Send, here: impl FnOnce()) -> Duration {
        let (is_ready, go) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(core_affinity::set_for_current(self.there), "the thread can't be pinned");
                let switches = Switches::of_this_thread();
                let before = switches.count();
                is_ready.store(true, Release);
                while !go.load(Acquire) {
                    spin_loop();
                }
                there();
                self.switch_count.fetch_add(switches.count() - before, Relaxed);
            });
            while !is_ready.load(Acquire) {
                spin_loop();
            }
            let switches = Switches::of_this_thread();
            let before = switches.count();
            let start = Instant::now();
            go.store(true, Release);
            here();
            let taken = start.elapsed();
            self.switch_count.fetch_add(switches.count() - before, Relaxed);
            taken
        })
    }
}
