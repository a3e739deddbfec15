//! Watches the threads of a run: whether each worker passes burst boundaries, and the control
//! thread passes turns of its loop.
//!
//! A worker that loops for ever is worse than a dead process, because programs that answer on its
//! behalf, such as a routing daemon, go on. A thread can't be ended from outside, so the process
//! ends. [`Watching::on_stall`] does the work before that, such as deleting routes. A stopped
//! process runs none of its threads, and needs another one that notices
//! (`hotloop_kernel::VipGuard`).

use crate::diagnostics;
use crate::output::print_in_time;
use crate::privileges::run_begun;
use hotloop_engine::{Control, Graph, Monitor, Plan, Report, RunError};
use hotloop_load::{ControlTurns, StallEvent, StallWatcher};
use hotloop_privileges::{Capabilities, keep};
use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The default limit on a worker's own CPU time without passing a burst boundary.
pub const WORKER_STALL_MAX: Duration = Duration::from_millis(1000);

/// The exit code of a process with a stuck worker.
pub const STALLED_EXIT_CODE: u8 = 3;

/// The longest that the end of a process with a stuck worker takes.
pub const STALLED_END_WAIT: Duration = Duration::from_secs(5);

/// How often to sample threads, but at least ten times while a thread may be stuck or starved.
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(100);
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(5);

thread_local! {
    /// The turns of this control thread.
    static TURNS: RefCell<Option<Arc<ControlTurns>>> = const { RefCell::new(None) };
}

/// How to watch the threads of a run: for [`run`].
pub struct Watching<'a> {
    stall_max: Option<Duration>,
    report: Box<dyn Fn(&Report) -> String + Send + 'a>,
    on_stall: Box<dyn Fn(&StallEvent) + Send + 'a>,
}

impl<'a> Watching<'a> {
    /// Sets how much of its own CPU time a worker may use without passing a burst boundary, and how
    /// long it may get no CPU. The default is [`WORKER_STALL_MAX`]. Zero turns watching off.
    #[must_use]
    pub fn stall_max(self, stall_max: Duration) -> Self {
        Self { stall_max: (!stall_max.is_zero()).then_some(stall_max), ..self }
    }

    /// Sets the format of the report that is printed if a worker is stuck; by default, its text for
    /// people.
    #[must_use]
    pub fn report(self, text: impl Fn(&Report) -> String + Send + 'a) -> Self {
        Self { report: Box::new(text), ..self }
    }

    /// Calls `work` on the watching thread with each event, after the event was logged. That thread
    /// has no capabilities. After [`StallEvent::Stuck`] the process ends when `work` returns, and in
    /// [`STALLED_END_WAIT`] at the latest.
    #[must_use]
    pub fn on_stall(self, work: impl Fn(&StallEvent) + Send + 'a) -> Self {
        Self { on_stall: Box::new(work), ..self }
    }
}

impl Default for Watching<'_> {
    fn default() -> Self {
        Self {
            stall_max: Some(WORKER_STALL_MAX),
            report: Box::new(|report| format!("{report}\n")),
            on_stall: Box::new(|_| ()),
        }
    }
}

/// As [`Plan::run`], with these additions:
///
/// - No core polls before its thread has given up every capability. The control thread keeps those
///   in `kept`: [`CONTROL`](crate::CONTROL), and others that the program needs while it runs. Once
///   `control` runs, the process has no others; they are logged.
/// - From the beginning, SIGINT and SIGTERM end the run instead of the process.
/// - systemd is notified when the program is ready and when it stops: [`notify`](crate::notify).
/// - A separate thread watches the others, as `watching` sets it:
///   - A worker that uses that much CPU time without passing a burst boundary is *stuck*. It is
///     named with its stage, the report so far is printed, and the process ends with
///     [`STALLED_EXIT_CODE`] in [`STALLED_END_WAIT`]. As with SIGKILL, no destructor runs: the stuck
///     thread may hold any lock, and other threads use memory that a destructor would free.
///   - A worker that gets no CPU for that long is *starved*: it is named, and nothing ends. So is a
///     control thread that does not pass a turn of [`Operation`](crate::Operation).
///
/// # Errors
/// As [`Plan::run`].
pub fn run<T>(
    plan: Plan<impl Graph>,
    kept: Capabilities,
    watching: Watching<'_>,
    control: impl FnOnce(&Control<'_>) -> T,
) -> Result<Report, RunError> {
    let turns = Arc::new(ControlTurns::default());
    let (begin, begun) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        let watched = Arc::clone(&turns);
        // The watching thread ends once this sender is dropped, even by a panic.
        let (_running, is_running) = mpsc::channel();
        let thread = std::thread::Builder::new().name("watch".into());
        let spawned = thread.spawn_scoped(scope, move || {
            keep(Capabilities::empty());
            // The receiver exists for as long as it waits.
            let _ = ready.send(());
            if let Ok(monitor) = begun.recv() {
                watch(&monitor, &watching, &watched, &is_running);
            }
        });
        match spawned {
            // The thread's capabilities are recorded before the check.
            Ok(_) => _ = is_ready.recv(),
            Err(error) => tracing::warn!("no thread watches the workers: {error}"),
        }
        run_begun(plan, kept, |running| {
            // `begin` is dropped with this closure, even if the closure is never called: then the
            // receiver goes on.
            let begin = begin;
            TURNS.set(Some(Arc::clone(&turns)));
            // Without a watching thread, there is no receiver.
            let _ = begin.send(running.monitor());
            crate::notify::ready();
            let _ended = EndsControl(&turns);
            control(running)
        })
    })
}

/// Records that the calling thread has passed a turn of the control loop.
pub(crate) fn beat() {
    TURNS.with_borrow(|turns| turns.as_deref().map(ControlTurns::pass));
}

/// Ends the control thread's part, even after a panic.
struct EndsControl<'a>(&'a ControlTurns);

impl Drop for EndsControl<'_> {
    fn drop(&mut self) {
        self.0.end();
        TURNS.set(None);
        crate::notify::stopping();
    }
}

/// The watching thread: samples the others until the run is over.
fn watch(
    monitor: &Monitor,
    watching: &Watching<'_>,
    turns: &ControlTurns,
    is_running: &Receiver<Infallible>,
) {
    let mut watchdog = Watchdog { interval: crate::notify::watchdog_interval(), last: None };
    let at_least = watching.stall_max.into_iter().chain(watchdog.interval).min();
    let Some(at_least) = at_least else { return };
    let interval = (at_least / 10).clamp(LOOK_INTERVAL_MIN, LOOK_INTERVAL_MAX);
    let mut watcher = StallWatcher::default();
    while is_running.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        if let Some(stall_max) = watching.stall_max {
            watcher.look(monitor.states(), turns, stall_max, &mut |event, state| match event {
                StallEvent::Stuck { .. } => end(monitor, watching, event),
                _ => say(watching, event, state),
            });
        }
        watchdog.turn(watcher.is_alive());
    }
}

fn say(watching: &Watching<'_>, event: &StallEvent, state: &str) {
    match event {
        StallEvent::Resumed { .. } | StallEvent::ControlResumed => tracing::info!("{event}"),
        _ => tracing::warn!("{event}{state}"),
    }
    (watching.on_stall)(event);
}

/// Ends the process: the stuck thread can't be joined.
fn end(monitor: &Monitor, watching: &Watching<'_>, event: &StallEvent) -> ! {
    // Even if the code below blocks, the process ends.
    let spawned = std::thread::Builder::new().name("end".into()).spawn(|| {
        std::thread::sleep(STALLED_END_WAIT);
        exit()
    });
    tracing::error!("{event}; the process ends with exit code {STALLED_EXIT_CODE}");
    crate::notify::status(&event.to_string());
    if spawned.is_ok() {
        (watching.on_stall)(event);
        let text = (watching.report)(&monitor.report(event.to_string()));
        if let Err(error) = print_in_time(&text) {
            tracing::error!("standard output: {error}");
        }
    }
    diagnostics::finish();
    exit()
}

/// Ends the process at once. Neither destructors nor C's exit handlers run: other threads poll
/// memory that these would free.
fn exit() -> ! {
    signal_hook::low_level::exit(i32::from(STALLED_EXIT_CODE))
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

impl fmt::Debug for Watching<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching").field("stall_max", &self.stall_max).finish_non_exhaustive()
    }
}
