//! What cores log: each core has a ring of records, and a thread that may wait sends them as events.

use hotloop_ring::{Consumer, Producer, ring};
use hotloop_stage::Counter;
use hotloop_stage::log::{Recorder, SITE_COUNT_MAX, Site, Values, enter};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How many records one place in the source makes on one core in a row, before it is limited to one in
/// [`LOG_INTERVAL`].
pub const LOG_BURST: u32 = 10;

/// How long it takes until a place in the source that made [`LOG_BURST`] records may make one more on the
/// same core.
pub const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// How many records of one core wait for the thread that sends them, at least. Those for which there is
/// no room are lost, and counted.
pub const LOG_RING_CAPACITY: usize = 512;

const INTERVAL_NS: u64 = LOG_INTERVAL.as_nanos() as u64;

/// How often what was left out and lost is reported.
const REPORT_INTERVAL_NS: u64 = 1_000_000_000;

/// What the cores of a run log. It may outlive the run.
///
/// While nobody else does, the run's control thread sends the records as events, whenever it waits.
#[derive(Clone)]
pub struct Logs {
    clock: quanta::Clock,
    start: u64,
    is_followed: Arc<AtomicBool>,
    lanes: Arc<Mutex<Lanes>>,
}

/// The cores, and what was reported of them.
struct Lanes {
    cores: Vec<Lane>,
    /// The records that are being sent: empty otherwise.
    records: Vec<Record>,
    /// Those left out that were reported, by the index of their site.
    left_out: Box<[u64]>,
    lost: u64,
    /// When, in nanoseconds.
    reported_ns: u64,
    is_over: bool,
}

/// One core.
struct Lane {
    records: Consumer<Record>,
    counts: Arc<Counts>,
}

#[derive(Clone, Copy)]
struct Record {
    site: &'static Site,
    /// When it was made, in nanoseconds.
    at_ns: u64,
    values: Values,
}

/// What a core has counted of records that it did not hand over.
struct Counts {
    /// Those beyond the limit, by the index of their site.
    left_out: Box<[Counter]>,
    /// Those for which the ring had no room.
    lost: Counter,
}

/// A core's side.
struct CoreLog {
    clock: quanta::Clock,
    start: u64,
    records: RefCell<Producer<Record>>,
    /// When the records that each site has made would be over if each took [`LOG_INTERVAL`].
    due_ns: Box<[Cell<u64>]>,
    counts: Arc<Counts>,
}

impl Recorder for CoreLog {
    fn record(&self, site: &'static Site, values: &mut dyn FnMut() -> Values) {
        let index = site.index();
        let at_ns = self.clock.delta_as_nanos(self.start, self.clock.raw());
        let due_ns = self.due_ns[index].get();
        if due_ns > at_ns + u64::from(LOG_BURST - 1) * INTERVAL_NS {
            self.counts.left_out[index].add(1);
            return;
        }
        self.due_ns[index].set(due_ns.max(at_ns) + INTERVAL_NS);
        let record = Record { site, at_ns, values: values() };
        if self.records.borrow_mut().push(record).is_err() {
            self.counts.lost.add(1);
        }
    }
}

impl Logs {
    pub(crate) fn new() -> Self {
        let clock = quanta::Clock::new();
        let lanes = Lanes {
            cores: Vec::new(),
            records: Vec::new(),
            left_out: vec![0; SITE_COUNT_MAX].into(),
            lost: 0,
            reported_ns: 0,
            is_over: false,
        };
        let (start, lanes) = (clock.raw(), Arc::new(Mutex::new(lanes)));
        Self { clock, start, is_followed: Arc::default(), lanes }
    }

    /// From now on the calling thread is a core: what it logs goes to a ring.
    pub(crate) fn enter(&self) {
        let (producer, records) = ring(LOG_RING_CAPACITY);
        let left_out = (0..SITE_COUNT_MAX).map(|_| Counter::default()).collect();
        let counts = Arc::new(Counts { left_out, lost: Counter::default() });
        let core = CoreLog {
            clock: self.clock.clone(),
            start: self.start,
            records: RefCell::new(producer),
            due_ns: vec![Cell::new(0); SITE_COUNT_MAX].into(),
            counts: Arc::clone(&counts),
        };
        self.with_lanes(|lanes| lanes.cores.push(Lane { records, counts }));
        enter(Some(Rc::new(core)));
    }

    fn with_lanes<R>(&self, work: impl FnOnce(&mut Lanes) -> R) -> R {
        work(&mut self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now_ns(&self) -> u64 {
        self.clock.delta_as_nanos(self.start, self.clock.raw())
    }

    /// From now on the caller sends the records, by [`send`](Self::send) every few milliseconds, and no
    /// longer the control thread.
    #[must_use]
    pub fn follow(self) -> Self {
        self.is_followed.store(true, Relaxed);
        self
    }

    /// Sends as events what was recorded up to now, in the order of its time, and once a second how much was
    /// left out and lost. Where a subscriber waits or panics, so does this.
    ///
    /// Returns whether more may come: false once the run is over.
    pub fn send(&self) -> bool {
        let (now_ns, day) = (self.now_ns(), SystemTime::now());
        self.with_lanes(|lanes| {
            lanes.send(now_ns, day);
            // The end of the run may have reported after this was called.
            if now_ns.saturating_sub(lanes.reported_ns) >= REPORT_INTERVAL_NS {
                lanes.report(now_ns);
            }
            !lanes.is_over
        })
    }

    /// As [`send`](Self::send), for a control thread that waits.
    pub(crate) fn send_unless_followed(&self) {
        if !self.is_followed.load(Relaxed) {
            self.send();
        }
    }

    /// Sends what is left, once the threads of the cores have ended.
    pub(crate) fn end(&self) {
        let (now_ns, day) = (self.now_ns(), SystemTime::now());
        self.with_lanes(|lanes| {
            lanes.send(now_ns, day);
            lanes.report(now_ns);
            lanes.is_over = true;
        });
    }
}

impl Lanes {
    fn send(&mut self, now_ns: u64, day: SystemTime) {
        let Self { cores, records, .. } = self;
        for Lane { records: ring, .. } in cores {
            // No more than there is room for: what a core goes on to record is for the next time.
            ring.pop_burst(ring.slot_count(), |record| records.push(record));
        }
        records.sort_by_key(|record| record.at_ns);
        for Record { site, at_ns, values } in records.drain(..) {
            let age = Duration::from_nanos(now_ns.saturating_sub(at_ns));
            site.send(&values, day.checked_sub(age));
        }
    }

    fn report(&mut self, now_ns: u64) {
        let seconds = (now_ns - self.reported_ns).div_ceil(REPORT_INTERVAL_NS).max(1);
        for index in 0..SITE_COUNT_MAX {
            let count: u64 =
                self.cores.iter().map(|core| core.counts.left_out[index].count()).sum();
            let more = count - std::mem::replace(&mut self.left_out[index], count);
            match Site::of_index(index) {
                _ if more == 0 => {}
                Some(site) => site.send_left_out(more, seconds),
                None => tracing::warn!("{more} more records of other places were left out"),
            }
        }
        let lost: u64 = self.cores.iter().map(|core| core.counts.lost.count()).sum();
        let more = lost - std::mem::replace(&mut self.lost, lost);
        if more > 0 {
            tracing::warn!("{more} records of cores were lost: nobody took them away in time");
        }
        self.reported_ns = now_ns;
    }
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs").finish_non_exhaustive()
    }
}
