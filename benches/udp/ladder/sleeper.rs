//! Measures how late the machine wakes a thread that only sleeps.

use hotloop::engine::Idle;
use hotloop_measure::cores::Pair;
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum delay of a sleep's end: with more, latencies are the machine's, not the programs'.
pub const LATE_MAX: Duration = Duration::from_micros(100);

/// Number of sleeps on each core: some 0.07 s.
const SLEEP_COUNT: usize = 300;

/// Whether bare sleeps on both cores currently all end in time.
///
/// # Errors
/// If the kernel refuses to pin a thread.
///
/// # Panics
/// If a sleeper panics.
pub fn is_in_time() -> Result<bool, String> {
    let both = || {
        let Some(pair) = Pair::pin()? else { return Ok(false) };
        let (mut there, mut here) = (Duration::ZERO, Duration::ZERO);
        pair.run(|| there = latest(), || here = latest());
        Ok(there.max(here) <= LATE_MAX)
    };
    // In a thread of its own: the calling one stays unpinned.
    thread::scope(|scope| scope.spawn(both).join()).expect("sleepers don't panic")
}

/// The maximum delay over several sleeps of the calling thread.
fn latest() -> Duration {
    // As the engine's cores do.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let late = || {
        let began = Instant::now();
        thread::sleep(Idle::SLEEP_MAX);
        began.elapsed().saturating_sub(Idle::SLEEP_MAX)
    };
    (0..SLEEP_COUNT).map(|_| late()).max().unwrap_or_default()
}
