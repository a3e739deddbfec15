//! The thread of one core: builds its worker, runs it, drains it, and reports its end state.

use crate::chain::Site;
use crate::clock::RunningClock;
use crate::control::{Built, Shared};
use crate::deployment::Deployment;
use crate::idle::Idle;
use crate::ledger::CoreEnd;
use crate::panic_origin::{Panic, panic_text};
use crate::placement::Seat;
use crate::wait::Wait;
use crate::worker::{RunningCore, Worker, watched_turn};
use hotloop_stage::{Core, Error};
use hotloop_watch::{CoreTap, TimeSource, Watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

/// The input of a core's thread.
#[derive(Debug)]
pub(crate) struct CoreThread<'a> {
    pub(crate) deployment: Deployment,
    /// The core's index among all cores of the deployment.
    pub(crate) position: usize,
    pub(crate) is_paced: bool,
    pub(crate) seat: Seat,
    pub(crate) idle: Idle,
    pub(crate) shared: &'a Shared,
    pub(crate) clock: &'a RunningClock,
    /// Called when its devices have started.
    pub(crate) once_started: Option<fn()>,
}

impl CoreThread<'_> {
    /// The whole life of the thread. Returns its end state, or `None` if the start failed.
    pub(crate) fn run<'w>(
        &self,
        build: impl FnOnce(&Site) -> Result<Box<dyn Worker + 'w>, Error>,
    ) -> Option<CoreEnd> {
        self.pin();
        let core = self.core().on(self.seat.cpu, self.seat.node);
        let site = Site { core, deployment: self.deployment, is_paced: self.is_paced };
        if !self.shared.await_turn(self.position) {
            return None;
        }
        let built = self.catch("built", || build(&site));
        let worker = built.map_err(|error| self.shared.fail(error)).ok()?;
        let mut running = RunningCore::new(self.deployment, site.core, worker, Some(time_source()));
        let (limits, is_lossless) = self.shared.built(Built::of(&mut running))?;
        let started = self.catch("started", || {
            running.worker.start(&limits, is_lossless)?;
            self.once_started.iter().for_each(|work| work());
            Ok(())
        });
        if let Err(error) = started {
            self.shared.fail(error);
            return None;
        }
        if !self.shared.started() {
            return None;
        }
        running.watch.begin();
        let mut wait = Wait::new(self.idle, self.seat.is_shared, self.clock);
        running.tapped(|running| self.live(running, &mut wait));
        running.watch.end();
        let mut end = CoreEnd { time: Some(wait.end()), ..CoreEnd::of(&mut running) };
        // The stages' values are dropped here, on the core that made them, and may panic, too.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(running))) {
            end.panic.get_or_insert_with(|| Panic::caught(panic.as_ref()));
        }
        Some(end)
    }

    /// Takes a step of the start. A panic in it is a failure like any other.
    fn catch<T>(&self, step: &str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let core = self.core();
            let name = self.deployment.core_name(core.group(), core.index());
            let text = panic_text(panic.as_ref());
            Err(Error::message(format!("{name} panicked while it was being {step}: {text}")))
        })
    }

    fn core(&self) -> Core {
        self.deployment.cores().swap_remove(self.position)
    }

    /// The name of the thread. The kernel keeps 15 bytes of it.
    pub(crate) fn name(&self) -> String {
        let core = self.core();
        if self.deployment.is_run_to_completion() {
            format!("core-{}", core.index())
        } else {
            format!("g{}-core-{}", core.group(), core.index())
        }
    }

    fn pin(&self) {
        if let Some(id) = self.seat.cpu {
            // A core that can't be pinned runs all the same: the placement is then only a
            // preference.
            core_affinity::set_for_current(core_affinity::CoreId { id });
        }
    }

    /// Runs and drains. A panic stops the whole engine; the core then drops the packets that still
    /// come to it.
    fn live(&self, running: &mut RunningCore<'_>, wait: &mut Wait<'_>) {
        let tap = Rc::clone(&running.tap);
        running.guard(|worker, watch| {
            self.poll(worker, watch, &tap, wait);
            worker.stop();
        });
        self.shared.stop();
        loop {
            running.drain(self.clock.now());
            if running.is_done {
                return;
            }
            wait.poll_soon();
        }
    }

    fn poll(&self, worker: &mut dyn Worker, watch: &Watch, tap: &CoreTap, wait: &mut Wait<'_>) {
        let mut is_exhausted = worker.is_exhausted().is_none();
        while !self.shared.is_stopping() {
            if watch.is_timed_next() {
                tap.maintain();
            }
            let now = self.clock.now();
            let count = watched_turn(watch, worker, now);
            if count > 0 {
                wait.came(count, now);
                continue;
            }
            if !is_exhausted && worker.is_exhausted() == Some(true) {
                self.shared.count_exhausted();
                is_exhausted = true;
            }
            if wait.poll_later(now, || worker.has_work()) {
                watch.rest();
            }
        }
    }
}

/// The CPU's time-stamp counter, independent of the packets' time.
fn time_source() -> TimeSource {
    let clock = quanta::Clock::new();
    let start = clock.raw();
    Arc::new(move || clock.delta_as_nanos(start, clock.raw()))
}
