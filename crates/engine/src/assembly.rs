//! Every core's worker on one thread, stepped by a driver: for simulators and tests.

use crate::deployment::Deployment;
use crate::idle::{Idle, Pace};
use crate::ledger::{Baseline, CoreEnd};
use crate::placement::Placement;
use crate::report::Report;
use crate::worker::{RunningCore, Worker, watched_turn};
use hotloop_stage::{Core, Error, Instant, Limits};
use hotloop_watch::{LoadCounts, Taps, TimeSource};
use std::time::Duration;

/// A network function with cores that are stepped one by one.
/// [`Plan::assemble`](crate::Plan::assemble) makes it.
pub struct Assembly<'a> {
    deployment: Deployment,
    idle: Idle,
    cores: Vec<RunningCore<'a>>,
    clock: Option<TimeSource>,
    /// The packet rate of each core.
    paces: Vec<Pace>,
    baseline: Baseline,
    taps: Taps,
}

impl<'a> Assembly<'a> {
    pub(crate) fn new(deployment: Deployment, idle: Idle, clock: Option<TimeSource>) -> Self {
        let (cores, paces, baseline) = (Vec::new(), Vec::new(), Baseline::default());
        Self { deployment, idle, cores, clock, paces, baseline, taps: Taps::new(None, false) }
    }

    pub(crate) fn add(&mut self, core: Core, worker: Box<dyn Worker + 'a>) {
        let mut running = RunningCore::new(self.deployment, core, worker, self.clock.clone());
        if let Some(tap_control) = running.tap_control.take() {
            self.taps.add(tap_control, running.places());
        }
        self.cores.push(running);
        self.paces.push(Pace::default());
    }

    /// Starts the devices. If one fails, stops those that have started.
    pub(crate) fn start(mut self) -> Result<Self, Error> {
        let limits = Limits {
            in_flight_max: self.in_flight_max(),
            thread_count: self.cores.len(),
            is_pipeline: self.deployment.group_count() > 1,
        };
        let is_lossless = self.cores.iter_mut().any(|core| core.worker.is_lossless());
        let mut start = |core: &mut RunningCore<'_>| core.worker.start(&limits, is_lossless);
        let started = self.cores.iter_mut().try_for_each(&mut start);
        let devices: Vec<_> = self.cores.iter_mut().map(|core| core.worker.devices()).collect();
        self.baseline = Baseline::of(devices.iter());
        if let Err(error) = started {
            self.cores.clear();
            self.baseline.stop();
            return Err(error);
        }
        Ok(self)
    }

    /// The number of cores, the first group's first.
    #[must_use]
    pub fn core_count(&self) -> usize {
        self.cores.len()
    }

    /// Takes one turn of the core at `index`, at `now`. Returns the number of packets that came. A
    /// core with a panicked stage does nothing any more.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn step(&mut self, index: usize, now: Instant) -> usize {
        let core = &mut self.cores[index];
        if core.panic.is_some() {
            return 0;
        }
        let count = match core.tap.is_used() {
            true => tapped_turn(core, now),
            false => turn(core, now),
        };
        if count > 0 && self.idle == Idle::Adaptive {
            self.paces[index].came(count, now);
        }
        count
    }

    /// The taps of the cores, for captures. Each core applies changes when it is stepped.
    #[must_use]
    pub fn taps(&self) -> Taps {
        self.taps.clone()
    }

    /// The time that the thread of the core at `index` would sleep after an empty turn at `now`. `None`
    /// unless the policy is [`Idle::Adaptive`], and `None` if a stage [has
    /// work](hotloop_stage::BurstStage::has_work).
    ///
    /// # Panics
    /// If there is no such core.
    #[must_use]
    pub fn sleep(&mut self, index: usize, now: Instant) -> Option<Duration> {
        let sleep = self.paces[index].sleep(now).filter(|_| self.idle == Idle::Adaptive)?;
        (!self.cores[index].worker.has_work()).then_some(sleep)
    }

    /// Whether a stage has panicked.
    #[must_use]
    pub fn has_panicked(&self) -> bool {
        self.cores.iter().any(|core| core.panic.is_some())
    }

    /// Whether every source has ended.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.cores.iter().all(|core| core.worker.is_exhausted() != Some(false))
    }

    /// Each core's counts of its turns, and their times if the assembly has a clock:
    /// [`Plan::assemble_timed`](crate::Plan::assemble_timed).
    #[must_use]
    pub fn load(&mut self) -> Vec<LoadCounts> {
        self.cores.iter_mut().map(|core| core.places().load()).collect()
    }

    /// Packets inside, found by walking rings, bursts and stages.
    #[must_use]
    pub fn in_flight(&mut self) -> usize {
        self.cores.iter_mut().map(|core| core.worker.in_flight().0).sum()
    }

    /// Maximum number of packets that can be inside.
    #[must_use]
    pub fn in_flight_max(&mut self) -> usize {
        self.cores.iter_mut().map(|core| core.worker.in_flight().1).sum()
    }

    /// Ends polling, drains every core at `now`, and draws up the account.
    #[must_use]
    pub fn finish(mut self, now: Instant) -> Report {
        self.cores.iter_mut().for_each(|core| core.worker.stop());
        while !self.cores.iter().all(|core| core.is_done) {
            let left = self.cores.iter_mut().filter(|core| !core.is_done);
            left.for_each(|core| core.tapped(|core| core.drain(now)));
        }
        let ends = self.cores.iter_mut().map(CoreEnd::of).collect();
        self.cores.clear();
        Report::settle(self.deployment, &Placement::nowhere(), &self.baseline, ends)
    }
}

fn turn(core: &mut RunningCore<'_>, now: Instant) -> usize {
    core.guard(|worker, watch| watched_turn(watch, worker, now)).unwrap_or(0)
}

/// Takes a turn with packets visible to captures.
#[cold]
fn tapped_turn(core: &mut RunningCore<'_>, now: Instant) -> usize {
    core.tap.maintain();
    core.tapped(|core| turn(core, now))
}

impl std::fmt::Debug for Assembly<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assembly").field("deployment", &self.deployment).finish_non_exhaustive()
    }
}
