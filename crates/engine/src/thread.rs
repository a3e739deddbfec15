//! One core's thread: builds its worker, runs it, drains it, and tells how it ended.

use crate::clock::Running;
use crate::control::{Built, Shared};
use crate::culprit::{Panic, panic_text};
use crate::deployment::Idle;
use crate::graph::Site;
use crate::ledger::CoreEnd;
use crate::placement::Seat;
use crate::worker::Worker;
use hotloop_stage::{Core, Error, Role};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many pause hints are executed in a row at most.
const PAUSE_COUNT_MAX: u32 = 64;

/// How many turns pass between two looks after the sinks.
const MAINTENANCE_INTERVAL: u32 = 64;

/// What a core's thread needs.
#[derive(Debug)]
pub(crate) struct CoreThread<'a> {
    role: Role,
    index: usize,
    seat: Seat,
    idle: Idle,
    paced: bool,
    shared: &'a Shared,
    clock: &'a Running,
    once_started: Option<fn()>,
}

impl<'a> CoreThread<'a> {
    pub(crate) const fn new(
        role: Role,
        index: usize,
        seat: Seat,
        idle: Idle,
        paced: bool,
        shared: &'a Shared,
        clock: &'a Running,
    ) -> Self {
        Self { role, index, seat, idle, paced, shared, clock, once_started: None }
    }

    /// Sets what it does when its devices have started.
    pub(crate) const fn once_started(self, work: Option<fn()>) -> Self {
        Self { once_started: work, ..self }
    }

    /// The thread's whole life. Returns how it ended, or nothing where the start failed.
    pub(crate) fn run<'w>(
        &self,
        build: impl FnOnce(&Site<'_>) -> Result<Box<dyn Worker + 'w>, Error>,
    ) -> Option<CoreEnd> {
        self.pin();
        let core = Core::new(self.index, self.role, self.seat.cpu, self.seat.node);
        let site = Site { core: &core, paced: self.paced };
        if !self.shared.await_turn(self.role, self.index) {
            return None;
        }
        let built = self.catch("built", || build(&site));
        let mut worker = built.map_err(|error| self.shared.fail(error)).ok()?;
        let facts = self.shared.built(Built {
            role: self.role,
            index: self.index,
            cpu: self.seat.cpu,
            in_flight_max: worker.in_flight_max(),
            devices: worker.devices(),
            lines: worker.lines(),
        })?;
        let started = self.catch("started", || {
            worker.start(&facts)?;
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
        let panic = self.live(worker.as_mut());
        let mut end = CoreEnd::of(&core, worker.as_ref(), panic);
        // What the stages own goes here, on the core that made it, and may panic too.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(worker))) {
            end.panic.get_or_insert_with(|| Panic::caught(panic.as_ref()));
        }
        Some(end)
    }

    /// Does a step of the start; a panic in it is a failure like any other.
    fn catch<T>(&self, step: &str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let (role, index, text) = (self.role, self.index, panic_text(panic.as_ref()));
            Err(Error::message(format!(
                "{role} {index} panicked while it was being {step}: {text}"
            )))
        })
    }

    fn pin(&self) {
        if let Some(id) = self.seat.cpu {
            // Where it can't be pinned, it runs all the same; the placement was only a wish then.
            core_affinity::set_for_current(core_affinity::CoreId { id });
        }
    }

    /// Runs and drains. A panic stops the whole engine; the core then drops what still comes to it.
    fn live(&self, worker: &mut dyn Worker) -> Option<Panic> {
        let lived = catch_unwind(AssertUnwindSafe(|| {
            self.poll(worker);
            worker.stop();
            let mut empty_count = 0;
            while !worker.drain(self.clock.now()) {
                self.wait(&mut empty_count);
            }
        }));
        let panic = Panic::caught(lived.err()?.as_ref());
        self.shared.stop();
        // What is dropped here may panic again, once for each packet at most.
        while catch_unwind(AssertUnwindSafe(|| worker.abandon())).is_err() {}
        let mut empty_count = 0;
        while !catch_unwind(AssertUnwindSafe(|| worker.discard())).unwrap_or(false) {
            self.wait(&mut empty_count);
        }
        Some(panic)
    }

    fn poll(&self, worker: &mut dyn Worker) {
        let mut counts_exhausted = worker.has_source();
        let mut empty_count = 0;
        let mut turn: u32 = 0;
        while !self.shared.is_stopping() {
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(MAINTENANCE_INTERVAL) {
                worker.maintain();
            }
            if worker.step(self.clock.now()) > 0 {
                empty_count = 0;
                continue;
            }
            if counts_exhausted && worker.is_exhausted() {
                self.shared.count_exhausted();
                counts_exhausted = false;
            }
            self.wait(&mut empty_count);
        }
    }

    /// Between empty polls. Cores that share a CPU hand it over, whatever the idle policy: the
    /// others would wait for the end of their time slice.
    #[inline]
    fn wait(&self, empty_count: &mut u32) {
        if self.seat.is_shared {
            std::thread::yield_now();
        } else if self.idle == Idle::Pause {
            *empty_count = (*empty_count + 1).min(PAUSE_COUNT_MAX);
            (0..*empty_count).for_each(|_| std::hint::spin_loop());
        }
    }
}
