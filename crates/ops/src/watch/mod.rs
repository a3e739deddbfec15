//! Watches the threads of a run: whether each worker passes burst boundaries, and the control
//! thread passes turns of its loop.
//!
//! A worker that loops for ever is worse than a dead process, because programs that answer on its
//! behalf, such as a routing daemon, go on. A thread can't be ended from outside, so the process
//! ends. [`Watching::on_stall`] does the work before that, such as deleting routes. A stopped
//! process runs none of its threads, and needs another one that notices
//! (`hotloop_kernel::VipGuard`).

mod progress;
mod watcher;

use crate::privileges::run_begun;
use hotloop_engine::{Control, Graph, Plan, Report, RunError};
use hotloop_privileges::{Capabilities, keep};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use watcher::{Beat, Watcher};

/// The default limit on a worker's own CPU time without passing a burst boundary.
pub const WORKER_STALL_MAX: Duration = Duration::from_millis(1000);

/// The exit code of a process with a stuck worker.
pub const STALLED_EXIT_CODE: u8 = 3;

/// The longest that the end of a process with a stuck worker takes.
pub const STALLED_END_WAIT: Duration = Duration::from_secs(5);

/// How to watch the threads of a run: [`run_watched`].
pub struct Watching<'a> {
    stall_max: Option<Duration>,
    report: Box<dyn Fn(&Report) -> String + Send + 'a>,
    on_stall: Box<dyn Fn(&StallEvent) + Send + 'a>,
}

/// A problem with a thread of a run, or its end.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StallEvent {
    /// A worker used `used` CPU time without passing a burst boundary. The process ends when this
    /// returns, and in [`STALLED_END_WAIT`] at the latest.
    Stuck {
        /// The name of the core.
        core: String,
        /// The running stage, or the engine's name for its own code there.
        place: String,
        /// The CPU time.
        used: Duration,
    },
    /// A worker got no CPU for `lasted`, because the process was stopped, others used it, or the
    /// machine was paused. Or it waits for the kernel in a stage, which no stage should do.
    Starved {
        /// The name of the core.
        core: String,
        /// The worker's place, as in [`Stuck`](Self::Stuck).
        place: String,
        /// The duration.
        lasted: Duration,
    },
    /// A starved worker passes burst boundaries again.
    Resumed {
        /// The name of the core.
        core: String,
    },
    /// The control thread has not passed a turn for `lasted`: no client is answered, nothing is
    /// published.
    ControlStalled {
        /// The duration.
        lasted: Duration,
    },
    /// The control thread goes on.
    ControlResumed,
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
    /// has no capabilities.
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
/// - A separate thread watches the others, with [`Watching`]'s defaults: [`run_watched`].
/// - systemd is notified when the program is ready and when it stops: [`notify`](crate::notify).
///
/// # Errors
/// As [`Plan::run`].
pub fn run<T>(
    plan: Plan<impl Graph>,
    kept: Capabilities,
    control: impl FnOnce(&Control<'_>) -> T,
) -> Result<Report, RunError> {
    run_watched(plan, kept, Watching::default(), control)
}

/// As [`run`], with threads watched as `watching` sets it.
///
/// - A worker that uses that much CPU time without passing a burst boundary is *stuck*. It is named
///   with its stage, the report so far is printed, and the process ends with [`STALLED_EXIT_CODE`]
///   in [`STALLED_END_WAIT`]. As with SIGKILL, no destructor runs: the stuck thread may hold any
///   lock, and other threads use memory that a destructor would free.
/// - A worker that gets no CPU for that long is *starved*: it is named, and nothing ends. So is a
///   control thread that does not pass a turn of [`Operation`](crate::Operation).
///
/// # Errors
/// As [`Plan::run`].
pub fn run_watched<T>(
    plan: Plan<impl Graph>,
    kept: Capabilities,
    watching: Watching<'_>,
    control: impl FnOnce(&Control<'_>) -> T,
) -> Result<Report, RunError> {
    let beat = Arc::new(Beat::default());
    let (begin, begun) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        let watched = Arc::clone(&beat);
        let _over = EndsWatching(&beat);
        let thread = std::thread::Builder::new().name("watch".into());
        let spawned = thread.spawn_scoped(scope, move || {
            keep(Capabilities::empty());
            // The receiver exists for as long as it waits.
            let _ = ready.send(());
            if let Ok(monitor) = begun.recv() {
                Watcher::new(monitor, watching, &watched).run();
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
            watcher::beat_of_this_thread(Some(Arc::clone(&beat)));
            // Without a watching thread, there is no receiver.
            let _ = begin.send(running.monitor());
            crate::notify::ready();
            let _ended = EndsControl(&beat);
            control(running)
        })
    })
}

/// Records that the calling thread has passed a turn of the control loop.
pub(crate) fn beat() {
    watcher::with_beat(Beat::pass);
}

/// Ends the watching thread, even after a panic.
struct EndsWatching<'a>(&'a Beat);

impl Drop for EndsWatching<'_> {
    fn drop(&mut self) {
        self.0.end_run();
    }
}

/// Ends the control thread's part, even after a panic.
struct EndsControl<'a>(&'a Beat);

impl Drop for EndsControl<'_> {
    fn drop(&mut self) {
        self.0.end_control();
        watcher::beat_of_this_thread(None);
        crate::notify::stopping();
    }
}

impl fmt::Display for StallEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck { core, place, used } => write!(
                f,
                "{core} is stuck in {place}: it used {:.1} s of CPU time without passing a burst \
                 boundary",
                used.as_secs_f64()
            ),
            Self::Starved { core, place, lasted } => write!(
                f,
                "{core} is starved: it got no CPU for {:.1} s, at {place}",
                lasted.as_secs_f64()
            ),
            Self::Resumed { core } => write!(f, "{core} runs again"),
            Self::ControlStalled { lasted } => write!(
                f,
                "the control thread is stalled: it has not passed a turn for {:.1} s",
                lasted.as_secs_f64()
            ),
            Self::ControlResumed => f.write_str("the control thread runs again"),
        }
    }
}

impl fmt::Debug for Watching<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching").field("stall_max", &self.stall_max).finish_non_exhaustive()
    }
}
