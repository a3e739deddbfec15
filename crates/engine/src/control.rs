//! The state that the cores of a run share, and the handle that the calling thread uses to steer
//! the run.

use crate::clock::RunningClock;
use crate::deployment::Deployment;
use crate::idle::Idle;
use crate::ledger::Baseline;
use crate::monitor::Monitor;
use crate::worker::{Devices, RunningCore};
use hotloop_stage::{Device, Error, Limits};
use hotloop_watch::{CorePlaces, LoadCounts, Snapshot, TapControl, Taps};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Interval at which a waiting control checks whether the run has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The state that the cores of a run share. The packet path reads only `stop`.
#[derive(Debug)]
pub(crate) struct Shared {
    stop: AtomicBool,
    /// Cores with sources that have reported their end.
    exhausted_count: AtomicUsize,
    deployment: Deployment,
    idle: Idle,
    clock: Arc<RunningClock>,
    taps: Taps,
    start: Mutex<StartState>,
    changed: Condvar,
}

/// The start, agreed step by step.
#[derive(Debug)]
struct StartState {
    phase: Phase,
    built: Vec<Built>,
    started_count: usize,
    failure: Option<Error>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Building,
    /// Whether one of the sources can wait is stored with the limits.
    Starting(Limits, bool),
    Running,
    Aborted,
}

/// The worker that a core has built, in the form that other threads need.
pub(crate) struct Built {
    core: CorePlaces,
    devices: Devices,
    is_lossless: bool,
    tap_control: Option<TapControl>,
}

impl std::fmt::Debug for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Built").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Built {
    pub(crate) fn of(running: &mut RunningCore<'_>) -> Self {
        let (devices, is_lossless) = (running.worker.devices(), running.worker.is_lossless());
        Self {
            core: running.places(),
            devices,
            is_lossless,
            tap_control: running.tap_control.take(),
        }
    }
}

impl Shared {
    pub(crate) fn new(deployment: Deployment, idle: Idle, clock: &Arc<RunningClock>) -> Self {
        let start = StartState {
            phase: Phase::Building,
            built: Vec::new(),
            started_count: 0,
            failure: None,
        };
        Self {
            stop: AtomicBool::new(false),
            exhausted_count: AtomicUsize::new(0),
            deployment,
            idle,
            clock: Arc::clone(clock),
            taps: Taps::new(clock.source(), clock.is_paced()),
            start: Mutex::new(start),
            changed: Condvar::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn count_exhausted(&self) {
        self.exhausted_count.fetch_add(1, Ordering::Release);
    }

    fn is_exhausted(&self) -> bool {
        self.exhausted_count.load(Ordering::Acquire) >= self.deployment.cores_in(0)
    }

    fn lock(&self) -> MutexGuard<'_, StartState> {
        self.start.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn wait_while(
        &self,
        mut waits: impl FnMut(&mut StartState) -> bool,
    ) -> MutexGuard<'_, StartState> {
        self.changed
            .wait_while(self.lock(), |start| waits(start))
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Keeps the first failure of the start, and ends the start.
    pub(crate) fn fail(&self, error: Error) {
        let mut start = self.lock();
        start.failure.get_or_insert(error);
        start.phase = Phase::Aborted;
        self.changed.notify_all();
    }

    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.lock().failure.take()
    }

    /// The devices of the workers that were built.
    pub(crate) fn devices(&self) -> Baseline {
        Baseline::of(self.lock().built.iter().map(|built| &built.devices))
    }

    /// Waits until `position` cores have built their workers, so that the queues that cores claim
    /// have the same numbers in every run. Returns whether to build.
    pub(crate) fn await_turn(&self, position: usize) -> bool {
        let start =
            self.wait_while(|start| start.phase == Phase::Building && start.built.len() < position);
        start.phase == Phase::Building
    }

    /// Notes that a core has built its worker. Returns the limits for starting devices and whether
    /// one of the sources can wait, or `None` if the start failed elsewhere.
    pub(crate) fn built(&self, mut built: Built) -> Option<(Limits, bool)> {
        if let Some(tap_control) = built.tap_control.take() {
            self.taps.add(tap_control, built.core.clone());
        }
        self.lock().built.push(built);
        self.changed.notify_all();
        match self.wait_while(|start| start.phase == Phase::Building).phase {
            Phase::Starting(limits, is_lossless) => Some((limits, is_lossless)),
            _ => None,
        }
    }

    /// Notes that a core has started its devices. Returns whether to run.
    pub(crate) fn started(&self) -> bool {
        self.lock().started_count += 1;
        self.changed.notify_all();
        let start = self.wait_while(|start| matches!(start.phase, Phase::Starting(..)));
        start.phase == Phase::Running
    }

    /// Leads the cores through the start. Returns the devices with their counters as the run
    /// begins, or `None` if the start failed.
    pub(crate) fn lead_start(&self) -> Option<Baseline> {
        let core_count = self.deployment.core_count();
        let mut start = self
            .wait_while(|start| start.phase == Phase::Building && start.built.len() < core_count);
        if start.phase == Phase::Aborted {
            return None;
        }
        let in_flight_max = start.built.iter().map(|built| built.core.in_flight_max).sum();
        let is_lossless = start.built.iter().any(|built| built.is_lossless);
        // Losses of a device while it starts belong to the run.
        let baseline = Baseline::of(start.built.iter().map(|built| &built.devices));
        let is_pipeline = self.deployment.group_count() > 1;
        let limits = Limits { in_flight_max, thread_count: core_count, is_pipeline };
        start.phase = Phase::Starting(limits, is_lossless);
        drop(start);
        self.changed.notify_all();

        let mut start = self.wait_while(|start| {
            matches!(start.phase, Phase::Starting(..)) && start.started_count < core_count
        });
        if start.phase == Phase::Aborted {
            return None;
        }
        start.phase = Phase::Running;
        drop(start);
        self.changed.notify_all();
        Some(baseline)
    }
}

/// A running engine, seen from the thread that called [`Plan::run`](crate::Plan::run).
#[derive(Debug)]
pub struct Control<'a> {
    shared: &'a Shared,
}

/// The reason that a wait ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Waited {
    /// SIGINT or SIGTERM came.
    Signal,
    /// Every source has reported its end.
    Finished,
    /// The time was up.
    Elapsed,
    /// The run is ending because a stage panicked.
    Stopped,
}

impl<'a> Control<'a> {
    pub(crate) const fn new(shared: &'a Shared) -> Self {
        Self { shared }
    }

    /// From now on SIGINT and SIGTERM don't end the process: the next wait for a signal returns
    /// instead. Without this call, that holds from the first wait on, and a signal between the
    /// start of the cores and that wait ends the process with packets inside.
    pub fn catch_signals() {
        signals();
    }

    /// Whether SIGINT or SIGTERM has come since they are [caught](Self::catch_signals). For code
    /// that waits before a run: the run would end at once.
    #[must_use]
    pub fn signal_came() -> bool {
        signals().load(Ordering::Relaxed)
    }

    /// Waits for SIGINT or SIGTERM, for the end of every source, or for a stage's panic.
    pub fn wait_for_signal(&self) -> Waited {
        self.wait(None, Some(&signals()))
    }

    /// Like [`wait_for_signal`](Self::wait_for_signal), for at most `duration`.
    pub fn wait_for_signal_or(&self, duration: Duration) -> Waited {
        self.wait(Instant::now().checked_add(duration), Some(&signals()))
    }

    /// Waits for the end of every source, or for a stage's panic.
    pub fn wait_until_finished(&self) -> Waited {
        self.wait(None, None)
    }

    /// Waits for `duration`, or until the run ends.
    pub fn wait_for(&self, duration: Duration) -> Waited {
        self.wait(Instant::now().checked_add(duration), None)
    }

    fn wait(&self, until: Option<Instant>, signal: Option<&AtomicBool>) -> Waited {
        loop {
            if self.shared.is_stopping() {
                return Waited::Stopped;
            }
            if signal.is_some_and(|signal| signal.load(Ordering::Relaxed)) {
                return Waited::Signal;
            }
            if self.shared.is_exhausted() {
                return Waited::Finished;
            }
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            match rest {
                Some(Duration::ZERO) => return Waited::Elapsed,
                Some(rest) => std::thread::sleep(rest.min(LOOK_INTERVAL)),
                None => std::thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    /// The devices of the run, each once. Their counters and links can be read while it runs.
    #[must_use]
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.shared.devices().devices()
    }

    /// The taps of the run, for captures: [`Taps::capture`] may be called on another thread.
    #[must_use]
    pub fn taps(&self) -> Taps {
        self.shared.taps.clone()
    }

    /// The time on the cores; zero in a run that uses its packets' time
    /// ([`Clock::Capture`](crate::Clock::Capture)).
    #[must_use]
    pub fn now(&self) -> hotloop_stage::Instant {
        self.shared.clock.now()
    }

    /// The behaviour of cores without work.
    #[must_use]
    pub const fn idle(&self) -> Idle {
        self.shared.idle
    }

    /// The counts and times of each core's turns up to now.
    #[must_use]
    pub fn load(&self) -> Vec<LoadCounts> {
        self.monitor().load()
    }

    /// A reader of the run's counters for any thread, for as long as it likes.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        let start = self.shared.lock();
        let cores = start.built.iter().map(|built| built.core.clone()).collect();
        Monitor::new(self.shared.deployment, cores)
    }

    /// The counters of each place of each core up to now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let start = self.shared.lock();
        Snapshot::of(
            self.shared.deployment.to_string(),
            start.built.iter().map(|built| &built.core),
        )
    }
}

/// The flag that SIGINT and SIGTERM set. It is registered once per process, at the first use, and
/// stays set: a second run would end at once, as the user requested.
fn signals() -> Arc<AtomicBool> {
    static FLAG: std::sync::OnceLock<Arc<AtomicBool>> = std::sync::OnceLock::new();
    Arc::clone(FLAG.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .expect("SIGINT and SIGTERM may be handled");
        }
        flag
    }))
}
