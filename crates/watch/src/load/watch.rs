//! A core's records of its turns for other threads to read: all written with relaxed stores of its
//! own.

use super::counts::{LoadCounts, PlaceLoad, TimedTurns, Waiting};
use crate::place::{Place, PlaceKind};
use hotloop_stage::{BURST_CAPACITY, Counter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};

/// The number of turns between two timed ones, and between two calls of
/// [`Sink::maintain`](hotloop_stage::Sink::maintain).
const TIMED_INTERVAL: u64 = 64;

/// One of this many timed turns is timed place by place. The clock is then read at each place,
/// which makes the turn longer: the other turns are timed as a whole.
const BY_PLACE_INTERVAL: u64 = 4;

/// A timed turn that takes this many times longer than turns with the same number of packets is left out: the
/// thread did not run all the time.
const OUTLIER_FACTOR: u64 = 16;

/// The cost of a turn without its packets, in packets, for the comparison with other turns.
const TURN_PACKETS: u64 = 8;

/// In place of a place's number: the ticks of all places.
const TICKS: u32 = u32::MAX;

/// Nanoseconds of a clock that never goes back.
pub type TimeSource = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A core's own account of its turns. Only the core writes. The fields that every turn needs are on
/// the first line.
#[repr(C, align(128))]
pub struct Watch {
    /// The number of the place that runs, or ran last, from 0 in the order of a packet.
    place: AtomicU32,
    is_timed: AtomicBool,
    /// Turns of polling and of the drain: the number grows while the core passes burst boundaries.
    turns: Counter,
    /// Turns of polling that have ended, by whether packets came. Readers get the sum of both:
    /// compared with `turns`, which is read an instant before or after, it could yield a negative
    /// number of turns.
    empty_turns: Counter,
    busy_turns: Counter,
    packets: Counter,
    /// Number of times that its thread has slept.
    rests: Counter,
    timed: Timed,
    places: Box<[PlaceWatch]>,
    clock: Option<TimeSource>,
    /// The cost of reading the clock.
    clock_ns: u64,
    thread_id: AtomicI32,
    has_ended: AtomicBool,
}

/// Sums over timed turns.
#[derive(Debug, Default)]
struct Timed {
    count: Counter,
    outliers: Counter,
    empty_count: Counter,
    empty_ns: Counter,
    busy_count: Counter,
    packets: Counter,
    packets_squared: Counter,
    ns: Counter,
    ns_squared: Counter,
    packets_ns: Counter,
    /// Packets of the turns that were timed place by place.
    by_place_packets: Counter,
    /// The latest time read in such a turn.
    last_ns: Counter,
    /// The account that the time since then is charged to.
    charged: AtomicU32,
    /// The time of ticks, in this turn and in all.
    ticks_turn_ns: Counter,
    ticks_ns: Counter,
    /// The cost of a packet, a running average. The turn's own costs count as [`TURN_PACKETS`].
    typical_ns: Counter,
}

/// The records of one place.
#[derive(Debug, Default)]
struct PlaceWatch {
    /// The time in this turn.
    turn_ns: Counter,
    ns: Counter,
    /// Number of packets that wait there for the core, plus 1; 0 if unknown.
    waiting: Counter,
    waiting_max: Counter,
    capacity: Counter,
}

impl Watch {
    /// The account of a core with `place_count` places. If there is a `clock`, some of its turns are timed.
    #[must_use]
    pub fn new(place_count: usize, clock: Option<TimeSource>) -> Self {
        let mut times = clock.iter().flat_map(|clock| (0..64).map(|_| clock()));
        let mut last = times.next();
        let steps = times.filter_map(|now| Some(now.saturating_sub(last.replace(now)?)));
        let clock_ns = steps.min().unwrap_or(0);
        Self {
            place: AtomicU32::new(0),
            is_timed: AtomicBool::new(false),
            turns: Counter::default(),
            empty_turns: Counter::default(),
            busy_turns: Counter::default(),
            packets: Counter::default(),
            rests: Counter::default(),
            timed: Timed::default(),
            places: (0..place_count).map(|_| PlaceWatch::default()).collect(),
            clock,
            clock_ns,
            thread_id: AtomicI32::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Makes the calling thread the core's thread.
    pub fn begin(&self) {
        self.thread_id.store(rustix::thread::gettid().as_raw_nonzero().get(), Relaxed);
    }

    /// Notes that the core has had its last turn.
    pub fn end(&self) {
        self.has_ended.store(true, Relaxed);
    }

    /// Notes that the place with this number takes packets from now on.
    #[inline(always)]
    pub fn enter(&self, place: u32) {
        if self.is_timed.load(Relaxed) {
            self.charge(place);
        }
        self.place.store(place, Relaxed);
    }

    /// Notes that places do from now on their work with or without packets.
    #[inline(always)]
    pub fn begin_ticks(&self) {
        if self.is_timed.load(Relaxed) {
            self.charge(TICKS);
        }
    }

    /// Notes that the place with this number does its work without packets.
    #[inline(always)]
    pub fn tick(&self, place: u32) {
        self.place.store(place, Relaxed);
    }

    /// Charges the time since the last reading to the current account, and the time from now on to
    /// `next`.
    #[cold]
    fn charge(&self, next: u32) {
        let Some(clock) = &self.clock else { return };
        let ns = clock().saturating_sub(self.timed.last_ns.count()).saturating_sub(self.clock_ns);
        let charged = self.timed.charged.swap(next, Relaxed) as usize;
        self.places.get(charged).map_or(&self.timed.ticks_turn_ns, |place| &place.turn_ns).add(ns);
        // Read again: the time of charging belongs to no account.
        self.timed.last_ns.set(clock());
    }

    /// Whether the next turn will be timed.
    #[inline(always)]
    #[must_use]
    pub fn is_timed_next(&self) -> bool {
        (self.turns.count() + 1).is_multiple_of(TIMED_INTERVAL)
    }

    /// Begins a turn of polling. Returns whether it is timed.
    #[inline(always)]
    pub fn begin_turn(&self) -> bool {
        self.turns.add(1);
        self.turns.count().is_multiple_of(TIMED_INTERVAL)
    }

    /// Begins a turn of the drain.
    pub fn begin_drain(&self) {
        self.turns.add(1);
        self.is_timed.store(false, Relaxed);
    }

    /// Counts a turn that has ended with `count` packets. [`time`](Self::time) calls this itself.
    #[inline(always)]
    pub fn count(&self, count: usize) {
        if count == 0 {
            self.empty_turns.add(1);
        } else {
            // In this order, no reader finds a turn without its packets.
            self.packets.add(count as u64);
            self.busy_turns.add(1);
        }
    }

    /// Notes the number of packets that wait at the place with this number, and its capacity, if
    /// known.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub fn note_fill(&self, place: u32, waiting: usize, capacity: Option<usize>) {
        self.places[place as usize].see(waiting, capacity);
    }

    /// Times and counts a turn. Returns the number of packets that came.
    pub fn time(&self, turn: impl FnOnce() -> usize) -> usize {
        let Some(clock) = &self.clock else {
            let count = turn();
            self.count(count);
            return count;
        };
        self.timed.count.add(1);
        let by_place = self.timed.count.count().is_multiple_of(BY_PLACE_INTERVAL);
        self.is_timed.store(by_place, Relaxed);
        self.timed.charged.store(TICKS, Relaxed);
        let start = clock();
        self.timed.last_ns.set(start);
        let count = turn();
        let ns = clock().saturating_sub(start).saturating_sub(self.clock_ns);
        if by_place {
            self.charge(TICKS);
            self.is_timed.store(false, Relaxed);
        }
        self.count(count);
        self.settle(count as u64, ns, by_place);
        count
    }

    /// Adds a timed turn to the sums, unless the thread was off its CPU in it.
    fn settle(&self, count: u64, ns: u64, by_place: bool) {
        let Timed { typical_ns, outliers, .. } = &self.timed;
        let (packet_ns, typical) = (ns / (count + TURN_PACKETS), typical_ns.count());
        let is_outlier = typical > 0 && packet_ns > typical * OUTLIER_FACTOR;
        if is_outlier {
            // If all turns are that long from now on, they soon stop being outliers.
            outliers.add(1);
            typical_ns.set(typical * 2);
        } else {
            typical_ns.set((typical * 7 + packet_ns).div_ceil(8));
        }
        let is_kept = !is_outlier && count > 0 && by_place;
        for place in self.places.iter().filter(|_| by_place) {
            if is_kept {
                place.ns.add(place.turn_ns.count());
            }
            place.turn_ns.set(0);
        }
        if by_place {
            let ns = self.timed.ticks_turn_ns.count();
            self.timed.ticks_turn_ns.set(0);
            self.timed.ticks_ns.add(if is_kept { ns } else { 0 });
        }
        if is_kept {
            self.timed.by_place_packets.add(count);
        } else if !is_outlier && !by_place {
            self.timed.add(count, ns);
        }
    }

    /// Notes that the core's thread has slept, at most for the longest permitted sleep.
    #[inline]
    pub fn rest(&self) {
        self.rests.add(1);
    }

    /// Number of times that the core's thread has slept.
    #[must_use]
    pub fn rest_count(&self) -> u64 {
        self.rests.count()
    }

    /// Number of turns that the core has begun, including those of the drain.
    #[must_use]
    pub fn turn_count(&self) -> u64 {
        self.turns.count()
    }

    /// The number of the place that runs, or ran last.
    #[inline]
    #[must_use]
    pub fn place(&self) -> u32 {
        self.place.load(Relaxed)
    }

    /// Whether the core has had its last turn.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// The kernel's number of the core's thread; `None` if it has no thread of its own.
    #[must_use]
    pub fn thread_id(&self) -> Option<i32> {
        Some(self.thread_id.load(Relaxed)).filter(|&id| id != 0)
    }

    /// The counts and times up to now, for `places`.
    pub(crate) fn counts(&self, core: &str, cpu: Option<usize>, places: &[Place]) -> LoadCounts {
        let place = |(place, watch): (&Place, &PlaceWatch)| PlaceLoad {
            group: place.group,
            place: place.kind.to_string(),
            name: place.name.clone(),
            ns: watch.ns.count(),
            waiting: watch.waiting(),
        };
        let places: Vec<_> = places.iter().zip(&self.places).map(place).collect();
        let inputs = places.iter().filter(|place| {
            let capacity = place.waiting.as_ref().and_then(|waiting| waiting.capacity);
            place.place == PlaceKind::Source.to_string() || capacity.is_some_and(|most| most > 0)
        });
        let empty_turns = self.empty_turns.count();
        LoadCounts {
            core: core.to_owned(),
            cpu,
            thread_id: self.thread_id(),
            turns: empty_turns + self.busy_turns.count(),
            empty_turns,
            packets: self.packets.count(),
            packets_per_turn_max: (inputs.count().max(1) * BURST_CAPACITY) as u64,
            timed: self.timed.read(),
            places,
        }
    }
}

impl Timed {
    fn add(&self, count: u64, ns: u64) {
        if count == 0 {
            self.empty_count.add(1);
            self.empty_ns.add(ns);
            return;
        }
        self.busy_count.add(1);
        self.packets.add(count);
        self.packets_squared.add(count * count);
        self.ns.add(ns);
        self.ns_squared.add(ns.wrapping_mul(ns));
        self.packets_ns.add(count.wrapping_mul(ns));
    }

    fn read(&self) -> TimedTurns {
        TimedTurns {
            outliers: self.outliers.count(),
            empty_count: self.empty_count.count(),
            empty_ns: self.empty_ns.count(),
            busy_count: self.busy_count.count(),
            packets: self.packets.count(),
            packets_squared: self.packets_squared.count(),
            ns: self.ns.count(),
            ns_squared: self.ns_squared.count(),
            packets_ns: self.packets_ns.count(),
            by_place_packets: self.by_place_packets.count(),
            ticks_ns: self.ticks_ns.count(),
        }
    }
}

impl PlaceWatch {
    fn see(&self, waiting: usize, capacity: Option<usize>) {
        let waiting = waiting as u64;
        self.waiting.set(waiting + 1);
        self.waiting_max.set(self.waiting_max.count().max(waiting));
        self.capacity.set(capacity.map_or(0, |most| most as u64 + 1));
    }

    fn waiting(&self) -> Option<Waiting> {
        let now = self.waiting.count().checked_sub(1)?;
        let capacity = self.capacity.count().checked_sub(1);
        Some(Waiting { now, max: self.waiting_max.count(), capacity })
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (turns, place) = (self.turn_count(), self.place());
        f.debug_struct("Watch")
            .field("turns", &turns)
            .field("place", &place)
            .finish_non_exhaustive()
    }
}
