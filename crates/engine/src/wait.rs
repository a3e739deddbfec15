//! Waits between a core's empty polls, and the CPU time of its thread.

use crate::clock::RunningClock;
use crate::idle::{Idle, Pace};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Maximum number of pause hints in a row.
const PAUSE_COUNT_MAX: u32 = 64;

/// The kernel's permitted lateness at the end of a sleep, in nanoseconds, for saving power by
/// ending several sleeps at once: 50,000 unless set.
const TIMER_SLACK_NS: Option<NonZeroU64> = NonZeroU64::new(1);

/// The time that a core's thread used, from the first poll to the end of the drain.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct CoreTime {
    /// Nanoseconds that passed.
    pub wall_ns: u64,
    /// Nanoseconds on a CPU.
    pub cpu_ns: u64,
    /// Number of sleeps, with [`Idle::Adaptive`](crate::Idle::Adaptive).
    pub sleep_count: u64,
    /// Nanoseconds of sleep, while arriving packets waited.
    pub slept_ns: u64,
    /// Nanoseconds of the longest sleep.
    pub slept_ns_max: u64,
}

/// The behaviour of a core's thread between empty polls.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    idle: Idle,
    /// Whether other cores are on the same CPU.
    is_shared: bool,
    clock: &'a RunningClock,
    pace: Pace,
    pause_count: u32,
    start: Instant,
    cpu_at_start: Duration,
    time: CoreTime,
}

impl<'a> Wait<'a> {
    /// For the calling thread. Its time counts from now on.
    pub(crate) fn new(idle: Idle, is_shared: bool, clock: &'a RunningClock) -> Self {
        if idle == Idle::Adaptive {
            // If the kernel refuses, sleeps take longer: the report shows it.
            let _ = rustix::thread::set_current_timer_slack(TIMER_SLACK_NS);
        }
        Self {
            idle,
            is_shared,
            clock,
            pace: Pace::default(),
            pause_count: 0,
            start: Instant::now(),
            cpu_at_start: cpu_time(),
            time: CoreTime::default(),
        }
    }

    /// Notes that packets came in a turn at `now`.
    #[inline]
    pub(crate) fn came(&mut self, count: usize, now: hotloop_stage::Instant) {
        self.pause_count = 0;
        if self.idle == Idle::Adaptive {
            self.pace.came(count, now);
        }
    }

    /// Nothing came in a turn at `now`, and nothing may come for a while: the thread may sleep,
    /// unless it `has_work`. Returns whether it has slept.
    #[inline]
    pub(crate) fn poll_later(
        &mut self,
        now: hotloop_stage::Instant,
        has_work: impl FnOnce() -> bool,
    ) -> bool {
        let is_adaptive = self.idle == Idle::Adaptive;
        let sleep = is_adaptive.then(|| self.pace.sleep(now)).flatten();
        match sleep.filter(|_| !has_work()) {
            Some(sleep) => {
                self.sleep(now, sleep);
                true
            }
            None => {
                self.poll_soon();
                false
            }
        }
    }

    /// Nothing came, and some work is left. Cores that share a CPU yield it, whatever the idle
    /// policy: the others would wait for the end of their time slice.
    #[inline]
    pub(crate) fn poll_soon(&mut self) {
        if self.is_shared {
            std::thread::yield_now();
        } else if self.idle != Idle::Spin {
            self.pause_count = (self.pause_count + 1).min(PAUSE_COUNT_MAX);
            (0..self.pause_count).for_each(|_| std::hint::spin_loop());
        }
    }

    fn sleep(&mut self, now: hotloop_stage::Instant, sleep: Duration) {
        std::thread::sleep(sleep);
        let slept_ns = self.clock.now().ns_since(now);
        self.pace.slept(sleep.as_nanos() as u64, slept_ns);
        self.time.sleep_count += 1;
        self.time.slept_ns += slept_ns;
        self.time.slept_ns_max = self.time.slept_ns_max.max(slept_ns);
    }

    /// The time that the thread has used.
    pub(crate) fn end(self) -> CoreTime {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let cpu = cpu_time().saturating_sub(self.cpu_at_start);
        CoreTime { wall_ns: ns(self.start.elapsed()), cpu_ns: ns(cpu), ..self.time }
    }
}

/// The CPU time of the calling thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
