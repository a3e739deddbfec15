//! Samples the threads of a run, and finds those that make no progress.

use crate::event::StallEvent;
use crate::progress::{Change, Progress, Sample, Trouble};
use crate::task::Stat;
use hotloop_engine::{CoreState, Idle};
use nix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The longest that a core sleeps at a time.
const SLEEP_NS_MAX: u64 = Idle::SLEEP_MAX.as_nanos() as u64;

/// The turns of a control thread, which that thread counts. Another one watches them.
#[derive(Debug, Default)]
pub struct ControlTurns {
    /// 0 for a program without a control loop.
    count: AtomicU64,
    thread_id: AtomicI32,
    is_over: AtomicBool,
}

impl ControlTurns {
    /// Counts a turn of the calling thread.
    pub fn pass(&self) {
        if self.thread_id.load(Relaxed) == 0 {
            self.thread_id.store(rustix::thread::gettid().as_raw_nonzero().get(), Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
    }

    /// Notes that the thread passes no more turns, and is not watched from now on.
    pub fn end(&self) {
        self.is_over.store(true, Relaxed);
    }
}

/// Watches the workers and the control thread of a run.
#[derive(Debug, Default)]
pub struct StallWatcher {
    cores: Vec<Progress>,
    control: Progress,
}

impl StallWatcher {
    /// Samples each thread, and calls `seen` with each problem that begins or ends, and with the
    /// state of a thread that got no CPU, as the end of a message. A thread may use `stall_max` of its
    /// own CPU time between two boundaries, and go without CPU for as long.
    pub fn look(
        &mut self,
        cores: Vec<CoreState>,
        control: &ControlTurns,
        stall_max: Duration,
        seen: &mut dyn FnMut(&StallEvent, &str),
    ) {
        let max_ns = u64::try_from(stall_max.as_nanos()).unwrap_or(u64::MAX);
        self.cores.resize_with(cores.len(), Progress::default);
        for (progress, core) in self.cores.iter_mut().zip(cores) {
            look_at_core(progress, core, max_ns, seen);
        }
        look_at_control(&mut self.control, control, max_ns, seen);
    }

    /// Whether no thread had a problem when it was sampled last.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.cores.iter().chain([&self.control]).all(|thread| thread.trouble().is_none())
    }
}

fn look_at_core(
    progress: &mut Progress,
    core: CoreState,
    max_ns: u64,
    seen: &mut dyn FnMut(&StallEvent, &str),
) {
    let CoreState { core, thread_id, turns, sleeps, place, has_ended, .. } = core;
    let Some(thread_id) = thread_id else { return };
    if has_ended {
        *progress = Progress::default();
        return;
    }
    let slept_ns = sleeps.saturating_mul(SLEEP_NS_MAX);
    let sample = Sample { passed: turns, slept_ns, ..sample(thread_id) };
    match progress.see(sample, max_ns) {
        Some(Change::Begins(Trouble::Stuck, ns)) => {
            seen(&StallEvent::Stuck { core, place, used: Duration::from_nanos(ns) }, "");
        }
        Some(Change::Begins(Trouble::Starved, ns)) => {
            let lasted = Duration::from_nanos(ns);
            seen(&StallEvent::Starved { core, place, lasted }, state_text(thread_id));
        }
        Some(Change::Ends(_)) => seen(&StallEvent::Resumed { core }, ""),
        None => {}
    }
}

fn look_at_control(
    progress: &mut Progress,
    control: &ControlTurns,
    max_ns: u64,
    seen: &mut dyn FnMut(&StallEvent, &str),
) {
    let turns = control.count.load(Relaxed);
    if turns == 0 || control.is_over.load(Relaxed) {
        *progress = Progress::default();
        return;
    }
    let thread_id = control.thread_id.load(Relaxed);
    match progress.see(Sample { passed: turns, ..sample(thread_id) }, max_ns) {
        Some(Change::Begins(_, ns)) => {
            let lasted = Duration::from_nanos(ns);
            seen(&StallEvent::ControlStalled { lasted }, state_text(thread_id));
        }
        Some(Change::Ends(_)) => seen(&StallEvent::ControlResumed, ""),
        None => {}
    }
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
    let stat = Stat::read(Path::new(&format!("/proc/self/task/{thread_id}")));
    match stat.as_ref().map(|stat| stat.state.as_str()) {
        Some("R") => {
            "; it could run: others had the CPU, or the machine or the process was stopped"
        }
        Some("T" | "t") => "; it is stopped, by a signal or a debugger",
        Some("S" | "D") => "; it waits for the kernel",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

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
