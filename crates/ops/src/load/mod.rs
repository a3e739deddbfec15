//! How much each core has to do, read once a second on the control thread: what the engine has
//! counted and timed, and what the kernel says of its threads and CPUs.

mod intruder;
#[cfg(feature = "dpdk")]
mod pools;
mod scheduling;
mod text;

#[cfg(feature = "dpdk")]
pub(crate) use pools::lowest_free;
pub(crate) use scheduling::Scheduling;
pub(crate) use text::load_text;

use hotloop_engine::{Control, CoreLoad, LoadCounts, LoadMeter};
use intruder::Intruders;
use scheduling::{Cpus, Scheduled};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a reading covers.
const INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    /// The latest reading of this control thread.
    static LATEST: RefCell<Vec<CoreFigures>> = const { RefCell::new(Vec::new()) };
}

/// How busy a core was in the last second: what the engine knows, and what the kernel does. As JSON,
/// all of it is on one level.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CoreFigures {
    /// What the engine knows.
    #[serde(flatten)]
    pub load: CoreLoad,
    /// How often the kernel took the CPU from its thread for something else; nothing where the kernel
    /// does not say.
    pub involuntary_switches: Option<u64>,
    /// The part of the time in which its thread could have run and waited for the CPU, in percent.
    pub waited_percent: Option<f64>,
    /// The part of its CPU's time that the hypervisor gave to others, in percent; nothing where the
    /// core is not pinned.
    pub steal_percent: Option<f64>,
}

/// How busy each core was in the last second, as the [`Operation`](crate::Operation) of the calling
/// thread has read it; none where it has not yet.
#[must_use]
pub fn load_figures() -> Vec<CoreFigures> {
    LATEST.with_borrow(Clone::clone)
}

/// Reads the load once a second.
pub(crate) struct Loads {
    meter: LoadMeter,
    at: Instant,
    threads: BTreeMap<i32, Scheduled>,
    cpus: Cpus,
    imissed: u64,
    intruders: Intruders,
    #[cfg(feature = "dpdk")]
    pools: pools::Pools,
}

impl Loads {
    pub(crate) fn of(control: &Control<'_>) -> Self {
        let mut loads = Self {
            meter: LoadMeter::default(),
            at: Instant::now(),
            threads: BTreeMap::new(),
            cpus: Cpus::default(),
            imissed: 0,
            intruders: Intruders::default(),
            #[cfg(feature = "dpdk")]
            pools: pools::Pools::new(),
        };
        LATEST.with_borrow_mut(Vec::clear);
        // Figures are of the time since this.
        loads.read(control);
        loads
    }

    /// Reads, where it is time to, and warns where packets were lost while something else ran on a
    /// core's CPU.
    pub(crate) fn turn(&mut self, control: &Control<'_>) {
        #[cfg(feature = "dpdk")]
        self.pools.turn();
        if self.at.elapsed() < INTERVAL {
            return;
        }
        let before = self.imissed;
        let figures = self.read(control);
        let imissed = self.imissed.saturating_sub(before);
        self.intruders.look(imissed, &figures);
        LATEST.set(figures.into_iter().map(|(_, figures)| figures).collect());
    }

    /// The figures since the last reading, each with the core's thread.
    fn read(&mut self, control: &Control<'_>) -> Vec<(Option<i32>, CoreFigures)> {
        let passed = std::mem::replace(&mut self.at, Instant::now()).elapsed();
        let passed_ns = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        let root = Path::new("/");
        let cpus = Cpus::read(root);
        let steal = |cpu: Option<usize>| cpus.steal_since(&self.cpus, cpu?);
        let counts = control.load();
        let mut threads = BTreeMap::new();
        let mut kernel = BTreeMap::new();
        for (id, core) in counts.iter().filter_map(|core| Some((core.thread_id?, core))) {
            let Some(now) = Scheduled::read(root, id) else { continue };
            let since = self.threads.get(&id).map(|before| now.since(before));
            kernel.insert(id, (since, steal(core.cpu)));
            threads.insert(id, now);
        }
        let waited = |since: &Scheduled| since.waited_ns.map(|ns| share(ns, passed_ns));
        let of = |core: &LoadCounts| core.thread_id.and_then(|id| kernel.get(&id).copied());
        let available = |core: &LoadCounts| {
            let (since, steal) = of(core).unwrap_or_default();
            1.0 - since.as_ref().and_then(waited).unwrap_or(0.0) - steal.unwrap_or(0.0)
        };
        let loads = self.meter.read(&counts, passed_ns, available);
        let figures = loads.into_iter().zip(&counts).map(|(load, core)| {
            let (since, steal) = of(core).unwrap_or_default();
            let figures = CoreFigures {
                load,
                involuntary_switches: since.and_then(|since| since.involuntary_switches),
                waited_percent: since.as_ref().and_then(waited).map(|share| share * 100.0),
                steal_percent: steal.map(|share| share * 100.0),
            };
            (core.thread_id, figures)
        });
        let figures = figures.collect();
        (self.threads, self.cpus) = (threads, cpus);
        let missed = |device: &std::sync::Arc<dyn hotloop_stage::Device>| device.counters().imissed;
        self.imissed = control.devices().iter().filter_map(missed).sum();
        figures
    }
}

/// One over the other, up to 1.
#[allow(clippy::cast_precision_loss, reason = "a share that is measured")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

impl std::fmt::Debug for Loads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loads").field("at", &self.at).finish_non_exhaustive()
    }
}
