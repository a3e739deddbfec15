//! A world of memory around the engine: packets with identities, a pool that expects each of them
//! back once, and a device with its own counts.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

mod hold;
mod watch;

pub use hold::Hold;
pub use watch::watched;

use hotloop_engine::{Deployment, Engine, Graph, Report, RunError};
use hotloop_stage::{
    Burst, Carries, Core, Device, DeviceCounters, Error, Instant, Limits, Sink, Source,
};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Every shape of deployment.
pub const DEPLOYMENTS: [Deployment; 6] = [
    Deployment::run_to_completion(1),
    Deployment::run_to_completion(2),
    Deployment::run_to_completion(3),
    Deployment::pipeline([1, 1]),
    Deployment::pipeline([1, 2]),
    Deployment::pipeline([2, 2]),
];

/// A packet of the pool.
pub struct Parcel {
    id: usize,
    /// The key for sharding.
    pub key: u32,
    /// Its number in its queue, with the queue's in the upper half.
    pub sequence: u64,
    /// When it arrived.
    pub at_ns: Option<u64>,
    pool: Arc<Pool>,
}

impl Parcel {
    /// A second owner of the same packet, an error that only a wrong driver can make.
    pub fn twin(&self) -> Self {
        let Self { id, key, sequence, at_ns, ref pool } = *self;
        Self { id, key, sequence, at_ns, pool: Arc::clone(pool) }
    }

    /// The queue that the packet came by.
    pub const fn queue(&self) -> u64 {
        self.sequence >> 32
    }
}

impl Carries for Parcel {
    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn arrival(&self) -> Option<Instant> {
        self.at_ns.map(Instant::from_ns)
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.pool.homes.lock().unwrap()[self.id] += 1;
    }
}

/// The pool that packets come from and return to.
#[derive(Default)]
pub struct Pool {
    /// Number of times that each packet came back.
    homes: Mutex<Vec<u32>>,
}

impl Pool {
    pub fn take(self: &Arc<Self>, key: u32, sequence: u64, at_ns: Option<u64>) -> Parcel {
        let mut homes = self.homes.lock().unwrap();
        homes.push(0);
        Parcel { id: homes.len() - 1, key, sequence, at_ns, pool: Arc::clone(self) }
    }

    fn check(&self) -> Result<(), Error> {
        let homes = self.homes.lock().unwrap();
        let lost = homes.iter().filter(|&&count| count == 0).count();
        let doubled = homes.iter().filter(|&&count| count > 1).count();
        if (lost, doubled) == (0, 0) {
            return Ok(());
        }
        Err(Error::message(format!("{lost} lost, {doubled} doubled")))
    }
}

/// A device: counts each packet that it delivers or takes, whatever its queues report.
pub struct Nic {
    pub pool: Arc<Pool>,
    pub received: AtomicU64,
    pub sent: AtomicU64,
    /// Queues that were claimed and not dropped yet.
    pub queues: AtomicUsize,
    pub started: AtomicUsize,
    pub stopped: AtomicUsize,
    /// Queues that were still there when it was stopped.
    pub queues_at_stop: AtomicUsize,
    pub refuses_to_stop: AtomicBool,
    /// Whether it cannot tell how many packets it missed.
    pub hides_misses: AtomicBool,
    pub name: &'static str,
}

impl Device for Nic {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn counters(&self) -> DeviceCounters {
        let (received, sent) = (self.received.load(SeqCst), self.sent.load(SeqCst));
        let imissed = (!self.hides_misses.load(SeqCst)).then_some(7);
        DeviceCounters { received, sent, imissed, ..DeviceCounters::default() }
    }

    fn stop(&self) -> Result<(), Error> {
        self.stopped.fetch_add(1, SeqCst);
        self.queues_at_stop.fetch_add(self.queues.load(SeqCst), SeqCst);
        if self.refuses_to_stop.load(SeqCst) { Err(Error::message("stuck")) } else { Ok(()) }
    }

    fn check_pools(&self) -> Result<(), Error> {
        self.pool.check()
    }
}

/// A packet that was sent, and the core that sent it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Seen {
    pub key: u32,
    pub sequence: u64,
    /// The number of the core that ran the sink.
    pub core: usize,
}

/// One device, and all packets that it sent.
pub struct World {
    pub nic: Arc<Nic>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl World {
    pub fn new() -> Self {
        Self::named("nic")
    }

    pub fn named(name: &'static str) -> Self {
        let nic = Nic {
            name,
            pool: Arc::default(),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            queues: AtomicUsize::new(0),
            started: AtomicUsize::new(0),
            stopped: AtomicUsize::new(0),
            queues_at_stop: AtomicUsize::new(0),
            refuses_to_stop: AtomicBool::new(false),
            hides_misses: AtomicBool::new(false),
        };
        Self { nic: Arc::new(nic), seen: Arc::default() }
    }

    /// A queue of `count` packets that can wait.
    pub fn rx(&self, core: &Core, count: u64) -> Rx {
        self.nic.queues.fetch_add(1, SeqCst);
        Rx {
            nic: Arc::clone(&self.nic),
            queue: core.index() as u64,
            next: 0,
            count,
            key: |number| mix(number % 1000),
            at_ns: |_| None,
            lossless: true,
            burst_max: usize::MAX,
            said_more: 0,
            lies_at: u64::MAX,
            start_error: None,
        }
    }

    /// A queue that sends all its packets.
    pub fn tx(&self, core: &Core) -> Tx {
        self.nic.queues.fetch_add(1, SeqCst);
        Tx {
            nic: Arc::clone(&self.nic),
            seen: Arc::clone(&self.seen),
            core: core.index(),
            said_more: 0,
            room: usize::MAX,
            lies_at: u64::MAX,
            start_error: None,
        }
    }

    pub fn tx_ok(&self, core: &Core) -> Result<Tx, Error> {
        Ok(self.tx(core))
    }

    /// The packets sent, in the order of keys and sequence numbers.
    pub fn sorted(&self) -> Vec<(u32, u64)> {
        let mut all: Vec<_> =
            self.seen.lock().unwrap().iter().map(|seen| (seen.key, seen.sequence)).collect();
        all.sort_unstable();
        all
    }
}

/// A hash that spreads consecutive numbers over all 32 bits.
pub const fn mix(number: u64) -> u32 {
    (number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// An RX queue.
pub struct Rx {
    nic: Arc<Nic>,
    queue: u64,
    next: u64,
    pub count: u64,
    pub key: fn(u64) -> u32,
    pub at_ns: fn(u64) -> Option<u64>,
    pub lossless: bool,
    pub burst_max: usize,
    /// Number of packets that it reports too many, in the poll that delivers packet `lies_at`.
    pub said_more: isize,
    pub lies_at: u64,
    pub start_error: Option<&'static str>,
}

impl Source for Rx {
    type Item = Parcel;

    fn poll(&mut self, burst: &mut Burst<Parcel>) -> usize {
        let room = burst.room().min(self.burst_max) as u64;
        let numbers = self.next..self.next.saturating_add(room).min(self.count);
        self.next = numbers.end;
        let mut said = numbers.end - numbers.start;
        if numbers.contains(&self.lies_at) {
            said = said.wrapping_add_signed(self.said_more as i64);
        }
        for number in numbers {
            self.nic.received.fetch_add(1, SeqCst);
            let sequence = self.queue << 32 | number;
            burst.push(self.nic.pool.take((self.key)(number), sequence, (self.at_ns)(number)));
        }
        said as usize
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        assert!(
            limits.in_flight_max > 0 && limits.thread_count > 0,
            "limits are known at the start"
        );
        self.nic.started.fetch_add(1, SeqCst);
        self.start_error.map_or(Ok(()), |text| Err(Error::message(text)))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.nic) as _]
    }

    fn lossless(&self) -> bool {
        self.lossless
    }

    fn finished(&self) -> bool {
        self.next == self.count
    }
}

impl Drop for Rx {
    fn drop(&mut self) {
        self.nic.queues.fetch_sub(1, SeqCst);
    }
}

/// A TX queue.
pub struct Tx {
    nic: Arc<Nic>,
    seen: Arc<Mutex<Vec<Seen>>>,
    core: usize,
    /// Total number of packets that it takes before it is full.
    pub room: usize,
    /// Number of packets that it reports too many, after it has sent packet `lies_at`.
    pub said_more: isize,
    pub lies_at: u64,
    pub start_error: Option<&'static str>,
}

impl Sink for Tx {
    type Item = Parcel;

    fn send(&mut self, burst: &mut Burst<Parcel>) -> usize {
        let mut said = 0_usize;
        while self.room > 0 {
            let Some(parcel) = burst.pop() else { break };
            let (key, sequence) = (parcel.key, parcel.sequence);
            self.room -= 1;
            said += 1;
            if sequence == self.lies_at {
                said = said.wrapping_add_signed(self.said_more);
            }
            self.nic.sent.fetch_add(1, SeqCst);
            self.seen.lock().unwrap().push(Seen { key, sequence, core: self.core });
        }
        said
    }

    fn start(&mut self, _: &Limits) -> Result<(), Error> {
        self.nic.started.fetch_add(1, SeqCst);
        self.start_error.map_or(Ok(()), |text| Err(Error::message(text)))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.nic) as _]
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.nic.queues.fetch_sub(1, SeqCst);
    }
}

/// The result of a run.
pub type Outcome = Result<Report, RunError>;

/// Runs until every source is exhausted.
pub fn run(graph: impl Graph, deployment: Deployment) -> Outcome {
    let plan = Engine::plan(graph, deployment).unwrap();
    watched(|| {
        plan.run(|control| {
            control.wait_until_finished();
        })
    })
}

/// The report of a run that must be whole.
pub fn whole(result: Result<Report, RunError>) -> Report {
    let report = result.unwrap_or_else(|error| panic!("{error}"));
    assert_adds_up(&report);
    assert!(report.is_whole(), "{report}");
    report
}

/// The report of a run that must not be whole.
pub fn not_whole(result: Result<Report, RunError>) -> Report {
    match result {
        Err(RunError::NotWhole(report)) => *report,
        other => panic!("should not be whole: {other:?}"),
    }
}

/// Checks the account with the test's own sums, whatever the report contains.
pub fn assert_adds_up(report: &Report) {
    let entered = report.received + report.created;
    assert_eq!(entered, report.sent + report.dropped_sum(), "{report}");
    assert_eq!(report.in_flight, 0, "{report}");
    assert!(report.balanced && report.pools_whole, "{report}");
    for stage in &report.stages {
        let dropped: u64 = stage.dropped.values().sum();
        let entered = stage.received + stage.created;
        assert_eq!(entered, stage.emitted + dropped, "{} in {report}", stage.name);
    }
}

/// The finding for a place that emitted more than it had.
pub fn uncreated(place: &str, count: u64) -> String {
    format!("packets emitted but neither received nor created by {place}: {count}")
}

/// A core's name in reports.
pub fn core_name(deployment: Deployment, (group, index): (usize, usize)) -> String {
    if deployment.is_run_to_completion() {
        format!("core {index}")
    } else {
        format!("group {group} core {index}")
    }
}
