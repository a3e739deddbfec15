//! Every core's worker on one thread, stepped by a driver: for simulators and tests.

use crate::culprit::Panic;
use crate::deployment::Deployment;
use crate::ledger::{Baseline, CoreEnd};
use crate::placement::Placement;
use crate::report::Report;
use crate::worker::Worker;
use hotloop_stage::{Core, Error, Facts, Tick};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A network function whose cores are stepped one by one.
/// [`Plan::assemble`](crate::Plan::assemble) makes it.
pub struct Assembly<'a> {
    deployment: Deployment,
    cores: Vec<Member<'a>>,
    baseline: Baseline,
}

struct Member<'a> {
    core: Core,
    worker: Box<dyn Worker + 'a>,
    panic: Option<Panic>,
    is_done: bool,
}

impl<'a> Assembly<'a> {
    pub(crate) fn new(deployment: Deployment) -> Self {
        Self { deployment, cores: Vec::new(), baseline: Baseline::default() }
    }

    pub(crate) fn add(&mut self, core: Core, worker: Box<dyn Worker + 'a>) {
        self.cores.push(Member { core, worker, panic: None, is_done: false });
    }

    /// Starts the devices; stops those that did where one does not.
    pub(crate) fn start(mut self) -> Result<Self, Error> {
        let in_flight_max = self.cores.iter().map(|member| member.worker.in_flight_max()).sum();
        let facts = Facts { in_flight_max, thread_count: self.cores.len() };
        let started = self.cores.iter_mut().try_for_each(|member| member.worker.start(&facts));
        let devices: Vec<_> = self.cores.iter().map(|member| member.worker.devices()).collect();
        self.baseline = Baseline::of(devices.iter());
        if let Err(error) = started {
            self.cores.clear();
            self.baseline.stop();
            return Err(error);
        }
        Ok(self)
    }

    /// How many cores there are: dispatchers first, then workers.
    #[must_use]
    pub fn core_count(&self) -> usize {
        self.cores.len()
    }

    /// One turn of the core at `index`, at `now`; returns how many packets came. A core whose stage
    /// has panicked does nothing any more.
    ///
    /// # Panics
    /// When there is no such core.
    pub fn step(&mut self, index: usize, now: Tick) -> usize {
        let member = &mut self.cores[index];
        if member.panic.is_some() {
            return 0;
        }
        let stepped = catch_unwind(AssertUnwindSafe(|| member.worker.step(now)));
        stepped.unwrap_or_else(|panic| {
            member.fall(Panic::caught(panic.as_ref()));
            0
        })
    }

    /// Whether a stage has panicked.
    #[must_use]
    pub fn has_panicked(&self) -> bool {
        self.cores.iter().any(|member| member.panic.is_some())
    }

    /// Whether every source has said that nothing will come again.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.cores.iter().all(|member| !member.worker.has_source() || member.worker.is_exhausted())
    }

    /// Packets inside, found by walking rings, bursts and stages.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.cores.iter().map(|member| member.worker.in_flight()).sum()
    }

    /// How many packets there may be inside.
    #[must_use]
    pub fn in_flight_max(&self) -> usize {
        self.cores.iter().map(|member| member.worker.in_flight_max()).sum()
    }

    /// Polls no more, drains every core at `now`, and draws up the account.
    #[must_use]
    pub fn finish(mut self, now: Tick) -> Report {
        self.cores.iter_mut().for_each(|member| member.worker.stop());
        while !self.cores.iter().all(|member| member.is_done) {
            for member in self.cores.iter_mut().filter(|member| !member.is_done) {
                member.drain(now);
            }
        }
        let ends = self
            .cores
            .into_iter()
            .map(|member| CoreEnd::of(&member.core, member.worker.as_ref(), member.panic));
        let ends = ends.collect();
        Report::settle(self.deployment, &Placement::nowhere(), &self.baseline, ends)
    }
}

impl Member<'_> {
    fn drain(&mut self, now: Tick) {
        let Self { worker, panic, .. } = self;
        let work = || if panic.is_some() { worker.discard() } else { worker.drain(now) };
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(is_done) => self.is_done = is_done,
            Err(panic) => self.fall(Panic::caught(panic.as_ref())),
        }
    }

    fn fall(&mut self, panic: Panic) {
        self.panic.get_or_insert(panic);
        while catch_unwind(AssertUnwindSafe(|| self.worker.abandon())).is_err() {}
    }
}

impl std::fmt::Debug for Assembly<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assembly")
            .field("deployment", &self.deployment)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
