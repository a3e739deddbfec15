//! Problems with the threads of a run.

use std::fmt;
use std::time::Duration;

/// A problem with a thread of a run, or its end.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StallEvent {
    /// A worker used `used` CPU time without passing a burst boundary.
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
