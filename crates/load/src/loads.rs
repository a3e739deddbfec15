//! Measures each core's load, once a second on the control thread: the engine's counts and times,
//! and the kernel's figures on its threads and CPUs.

use crate::figures::{CoreFigures, share};
use crate::intruder::Intruders;
#[cfg(feature = "dpdk")]
use crate::pools::Pools;
use crate::scheduling::{Cpus, ROOT, Scheduled};
use hotloop_engine::{Control, LoadCounts, LoadMeter};
use hotloop_stage::Device;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time that a reading covers.
const INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    /// The latest reading of this control thread.
    static LATEST: RefCell<Vec<CoreFigures>> = const { RefCell::new(Vec::new()) };
}

/// Each core's load in the last second, as last read by the calling thread's
/// [`Loads`]. Empty before the first reading.
#[must_use]
pub fn load_figures() -> Vec<CoreFigures> {
    LATEST.with_borrow(Clone::clone)
}

/// Reads the load once a second, on the control thread of a run.
pub struct Loads {
    meter: LoadMeter,
    at: Instant,
    threads: BTreeMap<i32, Scheduled>,
    cpus: Cpus,
    imissed: u64,
    intruders: Intruders,
    #[cfg(feature = "dpdk")]
    pools: Pools,
}

impl Loads {
    /// Begins to measure: figures count from here.
    #[must_use]
    pub fn of(control: &Control<'_>) -> Self {
        let mut loads = Self {
            meter: LoadMeter::default(),
            at: Instant::now(),
            threads: BTreeMap::new(),
            cpus: Cpus::default(),
            imissed: 0,
            intruders: Intruders::default(),
            #[cfg(feature = "dpdk")]
            pools: Pools::new(),
        };
        LATEST.with_borrow_mut(Vec::clear);
        loads.read(control);
        loads
    }

    /// Reads the load, if it is time to, and warns if packets were lost while another thread ran on
    /// a core's CPU.
    pub fn turn(&mut self, control: &Control<'_>) {
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
        let root = Path::new(ROOT);
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
        let missed = |device: &Arc<dyn Device>| device.counters().imissed;
        self.imissed = control.devices().iter().filter_map(missed).sum();
        figures
    }
}

impl std::fmt::Debug for Loads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loads").field("at", &self.at).finish_non_exhaustive()
    }
}
