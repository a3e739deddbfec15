//! From a graph to a plan, and from a plan to a run.

use crate::assembly::Assembly;
use crate::chain::{Graph, MakeWorker, Site};
use crate::clock::{Clock, RunningClock};
use crate::control::{Control, Shared};
use crate::deployment::{Deployment, PlanError, RING_CAPACITY_MAX};
use crate::idle::Idle;
use crate::placement::Placement;
use crate::report::{Report, RunError};
use crate::thread::CoreThread;
use crate::topology::Topology;
use hotloop_stage::{Core, Error};
use hotloop_watch::TimeSource;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;

/// The stack of a core's thread, as large as a main thread's. The bursts of a long chain are moved
/// on the stack while the chain is made.
const STACK_BYTES: usize = 8 << 20;

/// The engine. It has no state of its own: a run belongs to its [`Plan`].
#[derive(Clone, Copy, Debug)]
pub struct Engine;

impl Engine {
    /// Plans a network function for a deployment. Nothing is opened or started yet.
    ///
    /// # Errors
    /// If the deployment is invalid, or doesn't fit the graph.
    pub fn plan<G: Graph>(graph: G, deployment: Deployment) -> Result<Plan<G>, PlanError> {
        graph.check(deployment)?;
        let settings = Settings {
            deployment,
            clock: Clock::default(),
            idle: Idle::default(),
            ring_capacity: None,
            placement: None,
            once_started: None,
        };
        Ok(Plan { graph, settings })
    }
}

/// A network function with the settings of its run.
pub struct Plan<G> {
    graph: G,
    settings: Settings,
}

/// The settings of a run, for any graph.
#[derive(Debug)]
struct Settings {
    deployment: Deployment,
    clock: Clock,
    idle: Idle,
    ring_capacity: Option<usize>,
    placement: Option<Placement>,
    once_started: Option<fn()>,
}

impl<G: Graph> Plan<G> {
    /// Sets the source of time; the CPU's counter unless set.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// Sets the cores' policy for empty polls; [`Idle::Spin`] unless set.
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> Self {
        self.settings.idle = idle;
        self
    }

    /// Sets the capacity of each ring between two cores, in packets. Unless set, the rings of a
    /// boundary to one core hold 4,096 together, and each at least 64.
    ///
    /// # Errors
    /// If the capacity is 0, or more than [`RING_CAPACITY_MAX`].
    pub fn ring_capacity(mut self, ring_capacity: usize) -> Result<Self, PlanError> {
        if ring_capacity == 0 || ring_capacity > RING_CAPACITY_MAX {
            return Err(PlanError::RingCapacity { asked: ring_capacity });
        }
        self.settings.ring_capacity = Some(ring_capacity);
        Ok(self)
    }

    /// Sets the CPU of each core; chosen from the machine's topology unless set.
    ///
    /// # Errors
    /// If the number of CPUs differs from the number of cores.
    pub fn placement(mut self, placement: Placement) -> Result<Self, PlanError> {
        let (cpus, cores) = (placement.seats().len(), self.deployment().core_count());
        if cpus != cores {
            return Err(PlanError::Placement { cpus, cores });
        }
        self.settings.placement = Some(placement);
        Ok(self)
    }

    /// Sets work for each core's thread, to be done once, after it has started its devices and
    /// before it polls: work that only the thread itself can do, such as dropping capabilities. A
    /// panic in it fails the start.
    #[must_use]
    pub fn once_started(mut self, work: fn()) -> Self {
        self.settings.once_started = Some(work);
        self
    }

    /// The deployment of this plan.
    #[must_use]
    pub const fn deployment(&self) -> Deployment {
        self.settings.deployment
    }

    /// The placement that was set.
    #[must_use]
    pub const fn placement_asked(&self) -> Option<&Placement> {
        self.settings.placement.as_ref()
    }

    /// The placement that was set, or one from the machine's topology.
    #[must_use]
    pub fn placement_now(&self) -> Placement {
        self.settings.placement_now()
    }

    /// Runs the network function: each core on its own pinned thread, and `control` on the calling
    /// thread. Cores call their factories one after the other, the first group first, so that each
    /// run numbers the claimed queues alike. When `control` returns, or a stage panics, the engine
    /// stops polling, works off the packets inside, ends every thread, and draws up the account.
    ///
    /// # Errors
    /// If a factory or device fails, before any packet is polled; if a stage panicked; or if the
    /// account is not whole. The last two errors carry the report.
    ///
    /// # Panics
    /// If `control` panicked, with its panic, after the engine has ended.
    pub fn run<T>(self, control: impl FnOnce(&Control) -> T) -> Result<Report, RunError> {
        let workers = self.graph.workers(self.settings.deployment, self.settings.ring_capacity);
        let mut control = Some(control);
        self.settings.run(workers, &mut |running| {
            control.take().map(|control| control(running));
        })
    }

    /// Makes and starts every core's worker on the calling thread, for a driver that steps them one
    /// by one: a simulator, a test.
    ///
    /// # Errors
    /// If a factory or device fails: the first one's error.
    pub fn assemble(&self) -> Result<Assembly<'_>, Error> {
        self.assemble_with(None)
    }

    /// Like [`assemble`](Self::assemble), and one turn in 64 is timed as on a thread, in
    /// nanoseconds of `clock`, which a simulator advances: [`Assembly::load`].
    ///
    /// # Errors
    /// Like [`assemble`](Self::assemble).
    pub fn assemble_timed(
        &self,
        clock: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Assembly<'_>, Error> {
        self.assemble_with(Some(Arc::new(clock)))
    }

    fn assemble_with(&self, clock: Option<TimeSource>) -> Result<Assembly<'_>, Error> {
        let workers = self.graph.workers(self.settings.deployment, self.settings.ring_capacity);
        self.settings.assemble(workers, clock)
    }
}

impl Settings {
    fn placement_now(&self) -> Placement {
        self.placement.clone().unwrap_or_else(|| {
            let topology = Topology::read(Path::new("/"));
            Placement::automatic(&topology, self.deployment.core_count(), None)
        })
    }

    /// [`Plan::run`]. `control` is called at most once.
    fn run(
        &self,
        workers: Vec<MakeWorker<'_>>,
        control: &mut dyn FnMut(&Control),
    ) -> Result<Report, RunError> {
        let placement = self.placement_now();
        let clock = Arc::new(RunningClock::start(self.clock));
        let shared = Shared::new(self.deployment, self.idle, &clock);
        let cores = workers.into_iter().zip(placement.seats()).enumerate();

        let (baseline, controlled, ends) = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (position, (make, &seat)) in cores {
                let thread = CoreThread {
                    deployment: self.deployment,
                    position,
                    is_paced: self.clock == Clock::Capture,
                    seat,
                    idle: self.idle,
                    shared: &shared,
                    clock: &clock,
                    once_started: self.once_started,
                };
                let spawned = std::thread::Builder::new()
                    .name(thread.name())
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || thread.run(make));
                match spawned {
                    Ok(thread) => threads.push(thread),
                    Err(error) => shared.fail(error.into()),
                }
            }
            let baseline = shared.lead_start();
            let controlled = catch_unwind(AssertUnwindSafe(|| {
                if baseline.is_some() {
                    control(&Control::new(&shared));
                }
            }));
            shared.stop();
            // Joined explicitly: only then are the threads' own destructors known to have run.
            let joined = threads.into_iter().map(|thread| thread.join());
            let ends: Vec<_> = joined
                .filter_map(|end| end.expect("a core's thread catches what its stages panic with"))
                .collect();
            (baseline, controlled, ends)
        });
        if let Err(panic) = controlled {
            shared.devices().stop();
            resume_unwind(panic);
        }
        match (shared.take_failure(), baseline) {
            (None, Some(baseline)) => {
                Report::settle(self.deployment, &placement, &baseline, ends).into_result()
            }
            (failure, _) => {
                // Some devices may have started. An error from stopping one matters less than the
                // failure.
                shared.devices().stop();
                let unknown = || Error::message("the engine was stopped before it started");
                Err(RunError::Start(failure.unwrap_or_else(unknown)))
            }
        }
    }

    /// [`Plan::assemble`].
    fn assemble<'a>(
        &self,
        workers: Vec<MakeWorker<'a>>,
        clock: Option<TimeSource>,
    ) -> Result<Assembly<'a>, Error> {
        let mut assembly = Assembly::new(self.deployment, self.idle, clock);
        for (core, make) in self.deployment.cores().into_iter().zip(workers) {
            let site = self.site(core);
            let worker = make(&site)?;
            assembly.add(site.core, worker);
        }
        assembly.start()
    }

    fn site(&self, core: Core) -> Site {
        Site { core, deployment: self.deployment, is_paced: self.clock == Clock::Capture }
    }
}

impl<G: Graph> fmt::Display for Plan<G> {
    /// Writes the deployment, and the parts of the graph that each group of cores runs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.settings.deployment)?;
        for (group, parts) in self.graph.outline().iter().enumerate() {
            write!(f, "; group {group}: {}", parts.join(", "))?;
        }
        Ok(())
    }
}

impl<G> fmt::Debug for Plan<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("settings", &self.settings).finish_non_exhaustive()
    }
}
