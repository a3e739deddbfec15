//! What others than the control thread may read of a run.

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

/// What a core is at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CoreState {
    /// The name of the core.
    pub core: String,
    /// The CPU that it is pinned to.
    pub cpu: Option<usize>,
    /// The kernel's number of its thread; nothing before it runs.
    pub thread_id: Option<i32>,
    /// The turns that it has had, those of the drain too: while it passes burst boundaries, the number
    /// grows.
    pub turns: u64,
    /// How often its thread has slept, for [`Idle::SLEEP_MAX`](crate::Idle::SLEEP_MAX) at most.
    pub sleeps: u64,
    /// The stage that runs, or ran last in its turn, or what the engine calls its own place there.
    pub place: String,
    /// Whether it has had its last turn.
    pub has_ended: bool,
}

impl Monitor {
    pub(crate) const fn new(deployment: Deployment, cores: Vec<CorePlaces>) -> Self {
        Self { deployment, cores }
    }

    /// As [`Control::load`](crate::Control::load).
    #[must_use]
    pub fn load(&self) -> Vec<LoadCounts> {
        self.cores.iter().map(|core| core.load()).collect()
    }

    /// As [`Control::snapshot`](crate::Control::snapshot).
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.deployment.to_string(), self.cores.iter())
    }

    /// What each core is at.
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

    /// The account of a run that can't be ended, as far as it is known: what the cores have counted,
    /// the rest as still inside, with `finding` as what is wrong. Devices and pools are not asked,
    /// since who is stuck may have locked them.
    #[must_use]
    pub fn report(&self, finding: String) -> Report {
        Report::unfinished(self.deployment, &self.cores, finding)
    }
}
