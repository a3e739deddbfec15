//! The watching thread.

use super::progress::{Change, Progress, Sample, Trouble};
use super::{STALLED_END_WAIT, STALLED_EXIT_CODE, StallEvent, Watching};
use crate::diagnostics;
use crate::output::print_in_time;
use hotloop_engine::{CoreState, Idle, Monitor};
use nix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it samples threads, but at least ten times while a thread may be stuck or starved.
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(100);
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// The longest that a core sleeps at a time.
const SLEEP_NS_MAX: u64 = Idle::SLEEP_MAX.as_nanos() as u64;

thread_local! {
    /// The counter of this control thread's turns.
    static BEAT: RefCell<Option<Arc<Beat>>> = const { RefCell::new(None) };
}

/// State that the control thread and the watching thread share.
#[derive(Debug, Default)]
pub(super) struct Beat {
    /// Turns of the control loop; 0 for a program without one.
    turns: AtomicU64,
    thread_id: AtomicI32,
    is_control_over: AtomicBool,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Beat {
    pub(super) fn pass(&self) {
        if self.thread_id.load(Relaxed) == 0 {
            self.thread_id.store(rustix::thread::gettid().as_raw_nonzero().get(), Relaxed);
        }
        self.turns.fetch_add(1, Relaxed);
    }

    pub(super) fn end_control(&self) {
        self.is_control_over.store(true, Relaxed);
    }

    pub(super) fn end_run(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.notify_all();
    }

    /// Waits, and returns whether the run is over.
    fn is_over_in(&self, wait: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.over.wait_timeout_while(is_over, wait, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

pub(super) fn beat_of_this_thread(beat: Option<Arc<Beat>>) {
    BEAT.set(beat);
}

pub(super) fn with_beat(work: impl FnOnce(&Beat)) {
    BEAT.with_borrow(|beat| beat.as_deref().map(work));
}

/// Samples every thread regularly.
pub(super) struct Watcher<'a> {
    monitor: Monitor,
    watching: Watching<'a>,
    beat: &'a Beat,
    cores: Vec<Progress>,
    control: Progress,
    watchdog: Watchdog,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(monitor: Monitor, watching: Watching<'a>, beat: &'a Beat) -> Self {
        let cores = vec![Progress::default(); monitor.states().len()];
        let watchdog = Watchdog { interval: crate::notify::watchdog_interval(), last: None };
        Self { monitor, watching, beat, cores, control: Progress::default(), watchdog }
    }

    /// Runs until the run is over.
    pub(super) fn run(mut self) {
        let stall_max = self.watching.stall_max;
        let at_least = stall_max.into_iter().chain(self.watchdog.interval).min();
        let Some(at_least) = at_least else { return };
        let interval = (at_least / 10).clamp(LOOK_INTERVAL_MIN, LOOK_INTERVAL_MAX);
        while !self.beat.is_over_in(interval) {
            if let Some(stall_max) = stall_max {
                let max_ns = u64::try_from(stall_max.as_nanos()).unwrap_or(u64::MAX);
                self.look_at_cores(max_ns);
                self.look_at_control(max_ns);
            }
            let is_alive = |progress: &Progress| progress.trouble().is_none();
            self.watchdog.turn(self.cores.iter().all(is_alive) && is_alive(&self.control));
        }
    }

    fn look_at_cores(&mut self, max_ns: u64) {
        for (index, core) in self.monitor.states().into_iter().enumerate() {
            let Some(thread_id) = core.thread_id else { continue };
            if core.has_ended {
                self.cores[index] = Progress::default();
                continue;
            }
            let slept_ns = core.sleeps.saturating_mul(SLEEP_NS_MAX);
            let sample = Sample { passed: core.turns, slept_ns, ..sample(thread_id) };
            match self.cores[index].see(sample, max_ns) {
                Some(Change::Begins(Trouble::Stuck, ns)) => self.end(core, ns),
                Some(Change::Begins(Trouble::Starved, ns)) => {
                    let state = state_text(thread_id);
                    let lasted = Duration::from_nanos(ns);
                    let CoreState { core, place, .. } = core;
                    self.say(&StallEvent::Starved { core, place, lasted }, state);
                }
                Some(Change::Ends(_)) => self.say(&StallEvent::Resumed { core: core.core }, ""),
                None => {}
            }
        }
    }

    fn look_at_control(&mut self, max_ns: u64) {
        let turns = self.beat.turns.load(Relaxed);
        if turns == 0 || self.beat.is_control_over.load(Relaxed) {
            self.control = Progress::default();
            return;
        }
        let thread_id = self.beat.thread_id.load(Relaxed);
        let event = match self.control.see(Sample { passed: turns, ..sample(thread_id) }, max_ns) {
            Some(Change::Begins(_, ns)) => {
                StallEvent::ControlStalled { lasted: Duration::from_nanos(ns) }
            }
            Some(Change::Ends(_)) => StallEvent::ControlResumed,
            None => return,
        };
        self.say(&event, state_text(thread_id));
    }

    fn say(&self, event: &StallEvent, state: &str) {
        match event {
            StallEvent::Resumed { .. } | StallEvent::ControlResumed => tracing::info!("{event}"),
            _ => tracing::warn!("{event}{state}"),
        }
        (self.watching.on_stall)(event);
    }

    /// Ends the process: the stuck thread can't be joined.
    fn end(&self, core: CoreState, used_ns: u64) -> ! {
        // Even if the code below blocks, the process ends.
        let spawned = std::thread::Builder::new().name("end".into()).spawn(|| {
            std::thread::sleep(STALLED_END_WAIT);
            exit()
        });
        let CoreState { core, place, .. } = core;
        let event = StallEvent::Stuck { core, place, used: Duration::from_nanos(used_ns) };
        tracing::error!("{event}; the process ends with exit code {STALLED_EXIT_CODE}");
        crate::notify::status(&event.to_string());
        if spawned.is_ok() {
            (self.watching.on_stall)(&event);
            let text = (self.watching.report)(&self.monitor.report(event.to_string()));
            if let Err(error) = print_in_time(&text) {
                tracing::error!("standard output: {error}");
            }
        }
        diagnostics::finish();
        exit()
    }
}

/// Ends the process at once. Neither destructors nor C's exit handlers run: other threads poll
/// memory that these would free.
fn exit() -> ! {
    signal_hook::low_level::exit(i32::from(STALLED_EXIT_CODE))
}

/// Samples the clocks of a thread of this process.
fn sample(thread_id: i32) -> Sample {
    // clock_getcpuclockid(3), pthread_getcpuclockid(3): the complement of the thread's number, and
    // the clock: 4 for a thread's own, 2 for the scheduler's count.
    let thread_clock = ClockId::from_raw((!thread_id << 3) | 4 | 2);
    Sample {
        now_ns: clock_ns(ClockId::CLOCK_BOOTTIME).unwrap_or(0),
        cpu_ns: clock_ns(thread_clock),
        ..Sample::default()
    }
}

fn clock_ns(clock: ClockId) -> Option<u64> {
    let time = Duration::from(clock_gettime(clock).ok()?);
    u64::try_from(time.as_nanos()).ok()
}

/// The state of a thread that got no CPU, by the kernel (proc(5)).
fn state_text(thread_id: i32) -> &'static str {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread_id}/stat"));
    let stat = stat.unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().next());
    match state {
        Some("R") => {
            "; it could run: others had the CPU, or the machine or the process was stopped"
        }
        Some("T" | "t") => "; it is stopped, by a signal or a debugger",
        Some("S" | "D") => "; it waits for the kernel",
        _ => "",
    }
}

/// Notifies systemd that the program is alive, if its unit has a watchdog.
struct Watchdog {
    interval: Option<Duration>,
    last: Option<Instant>,
}

impl Watchdog {
    fn turn(&mut self, is_alive: bool) {
        let Some(interval) = self.interval.filter(|_| is_alive) else { return };
        if self.last.is_none_or(|last| last.elapsed() >= interval) {
            self.last = Some(Instant::now());
            crate::notify::watchdog();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_own_clock_runs_with_it() {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        let before = sample(id).cpu_ns.unwrap();
        let start = Instant::now();
        while sample(id).cpu_ns.unwrap() < before + 2_000_000 {
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        assert_eq!(sample(i32::MAX / 16).cpu_ns, None);
        assert!(sample(id).now_ns > 0);
    }

    #[test]
    fn a_thread_that_waits_is_named_so() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let (say, said) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            say.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            receive.recv().unwrap_err();
        });
        let id = said.recv().unwrap();
        let start = Instant::now();
        while !state_text(id).contains("waits for the kernel") {
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        drop(send);
        waiting.join().unwrap();
    }
}
