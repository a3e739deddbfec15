//! Access to a run's counters for other threads than control's.

use crate::deployment::Deployment;
use crate::report::Report;
use hotloop_watch::{CorePlaces, LoadCounts, Snapshot};

/// Reads the counters of a run, from any thread, also after the run has ended.
/// [`Control::monitor`](crate::Control::monitor) makes it.
#[derive(Clone, Debug)]
pub struct Monitor {
    deployment: Deployment,
    cores: Vec<CorePlaces>,
}

/// The state of a core.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CoreState {
    /// The name of the core.
    pub core: String,
    /// The CPU that the core is pinned to.
    pub cpu: Option<usize>,
    /// The kernel's number of its thread; `None` before the thread runs.
    pub thread_id: Option<i32>,
    /// Number of turns, including those of the drain: it grows while the core passes burst
    /// boundaries.
    pub turns: u64,
    /// Number of times that its thread has slept, each for at most
    /// [`Idle::SLEEP_MAX`](crate::Idle::SLEEP_MAX).
    pub sleeps: u64,
    /// The stage that runs, or ran last in its turn, or the engine's name for its own place there.
    pub place: String,
    /// Whether the core has had its last turn.
    pub has_ended: bool,
}

impl Monitor {
    pub(crate) const fn new(deployment: Deployment, cores: Vec<CorePlaces>) -> Self {
        Self { deployment, cores }
    }

    /// Like [`Control::load`](crate::Control::load).
    #[must_use]
    pub fn load(&self) -> Vec<LoadCounts> {
        self.cores.iter().map(|core| core.load()).collect()
    }

    /// Like [`Control::snapshot`](crate::Control::snapshot).
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.deployment.to_string(), self.cores.iter())
    }

    /// The state of each core.
    #[must_use]
    pub fn states(&self) -> Vec<CoreState> {
        let state = |core: &CorePlaces| CoreState {
            core: core.name.clone(),
            cpu: core.cpu,
            thread_id: core.watch.thread_id(),
            turns: core.watch.turn_count(),
            sleeps: core.watch.rest_count(),
            place: core
                .places
                .get(core.watch.place() as usize)
                .map_or_else(String::new, |place| place.name.clone()),
            has_ended: core.watch.has_ended(),
        };
        self.cores.iter().map(state).collect()
    }

    /// The account of a run that can't be ended, as far as it is known: the counts of the cores,
    /// with the rest as still inside, and `finding` as the error. Devices and pools are not asked,
    /// since the stuck thread may have locked them.
    #[must_use]
    pub fn report(&self, finding: String) -> Report {
        Report::unfinished(self.deployment, &self.cores, finding)
    }
}
