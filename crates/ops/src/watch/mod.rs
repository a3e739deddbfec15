//! Watches the threads of a run: that each worker passes burst boundaries, and the control thread its
//! own.
//!
//! A worker that loops for ever is worse than a process that has died: what answers on its behalf,
//! such as a routing daemon, goes on. A thread can't be ended from outside, so the process ends. What is
//! to be done before, such as deleting routes, is [`Watching::on_stall`]; a process that is stopped runs
//! none of its threads, and takes another one that sees that (`hotloop_kernel::VipGuard`).

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

/// How much of its own CPU time a worker may use without passing a burst boundary, unless set.
pub const WORKER_STALL_MAX: Duration = Duration::from_millis(1000);

/// What the process ends with where a worker is stuck.
pub const STALLED_EXIT_CODE: u8 = 3;

/// The longest that the end of a process takes in which a worker is stuck.
pub const STALLED_END_WAIT: Duration = Duration::from_secs(5);

/// How the threads of a run are watched: [`run_watched`].
pub struct Watching<'a> {
    stall_max: Option<Duration>,
    report: Box<dyn Fn(&Report) -> String + Send + 'a>,
    on_stall: Box<dyn Fn(&StallEvent) + Send + 'a>,
}

/// Something is wrong with a thread of a run, or is right again.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StallEvent {
    /// A worker used so much CPU time without passing a burst boundary: the process ends when this
    /// returns, and in [`STALLED_END_WAIT`] at the latest.
    Stuck {
        /// The name of the core.
        core: String,
        /// The stage that runs, or what the engine calls its own place there.
        place: String,
        /// The CPU time.
        used: Duration,
    },
    /// A worker got no CPU for so long, because the process was stopped, others used it, or the machine
    /// was paused; or it waits for the kernel in a stage, which none should do.
    Starved {
        /// The name of the core.
        core: String,
        /// The place at which it is, as in [`Stuck`](Self::Stuck).
        place: String,
        /// For how long.
        lasted: Duration,
    },
    /// A worker that was starved passes burst boundaries again.
    Resumed {
        /// The name of the core.
        core: String,
    },
    /// The control thread has not passed its loop for so long: nobody is answered, nothing is
    /// published.
    ControlStalled {
        /// For how long.
        lasted: Duration,
    },
    /// The control thread goes on.
    ControlResumed,
}

impl<'a> Watching<'a> {
    /// A worker may use so much of its own CPU time without passing a burst boundary, and get none for
    /// as long: [`WORKER_STALL_MAX`] unless set. Nothing is watched where it is zero.
    #[must_use]
    pub fn stall_max(self, stall_max: Duration) -> Self {
        Self { stall_max: (!stall_max.is_zero()).then_some(stall_max), ..self }
    }

    /// What stands on standard output of a report where a worker is stuck: its text for people unless
    /// set.
    #[must_use]
    pub fn report(self, text: impl Fn(&Report) -> String + Send + 'a) -> Self {
        Self { report: Box::new(text), ..self }
    }

    /// Calls `work` on the watching thread with each event, after it was logged. That thread has no
    /// capabilities.
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

/// As [`Plan::run`], and:
///
/// - no core polls before its thread has given up every capability. The control thread keeps those in
///   `kept`: [`CONTROL`](crate::CONTROL), and whatever else the program needs while it runs. Once
///   `control` runs, they are what the process has left; it is said which;
/// - SIGINT and SIGTERM end the run from the beginning, not the process;
/// - a thread of its own watches the others, with [`Watching`]'s defaults: [`run_watched`];
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

/// As [`run`], where threads are watched as `watching` says. A worker that is *stuck*, because it uses
/// that much CPU time without passing a burst boundary, is named with its stage; what is known of the
/// report is printed, and the process ends with [`STALLED_EXIT_CODE`] in [`STALLED_END_WAIT`], as by
/// SIGKILL: no destructor runs, since who is stuck may hold any lock, and other threads use what a
/// destructor would free. A worker that gets no CPU for as long is *starved*: it is named, and nothing
/// ends. So is a control thread that does not pass a turn of [`Operation`](crate::Operation).
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
            // Whoever waits for it is there.
            let _ = ready.send(());
            if let Ok(monitor) = begun.recv() {
                Watcher::new(monitor, watching, &watched).run();
            }
        });
        match spawned {
            // What this thread keeps is known before it is looked at.
            Ok(_) => _ = is_ready.recv(),
            Err(error) => tracing::warn!("no thread watches the workers: {error}"),
        }
        run_begun(plan, kept, |running| {
            // It ends with this closure, also where that is never called: who waits for it goes on.
            let begin = begin;
            watcher::beat_of_this_thread(Some(Arc::clone(&beat)));
            // Without a watching thread, nobody takes it.
            let _ = begin.send(running.monitor());
            crate::notify::ready();
            let _ended = EndsControl(&beat);
            control(running)
        })
    })
}

/// The calling thread has passed a turn of the control loop.
pub(crate) fn beat() {
    watcher::with_beat(Beat::pass);
}

/// Ends the watching thread, also where something panics.
struct EndsWatching<'a>(&'a Beat);

impl Drop for EndsWatching<'_> {
    fn drop(&mut self) {
        self.0.end_run();
    }
}

/// Ends the control thread's part, also where it panics.
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
