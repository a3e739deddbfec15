//! Where packets change cores: each to the worker that owns its shard.

use crate::chain::{Down, Line, Passage, Place, settle};
use crate::culprit::blame;
use hotloop_ring::Row;
use hotloop_stage::{BURST_CAPACITY, Burst, Counter, Counters, DropReason, drop_reasons};
use std::sync::Arc;

/// Which worker a packet goes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shard {
    /// The worker that owns this hash: equal hashes meet on one worker.
    Hash(u32),
    /// The worker of this number; past the last, counting starts over.
    Worker(usize),
}

impl From<u32> for Shard {
    #[inline]
    fn from(hash: u32) -> Self {
        Self::Hash(hash)
    }
}

impl Shard {
    /// The worker, of `worker_count`, that the packet goes to. Hashes are split into ranges of
    /// equal size.
    #[inline(always)]
    #[must_use]
    pub const fn worker(self, worker_count: usize) -> usize {
        match self {
            Self::Hash(hash) => ((hash as u64 * worker_count as u64) >> 32) as usize,
            Self::Worker(worker) => worker % worker_count,
        }
    }
}

drop_reasons! {
    enum RouterDrop { RingFull = "ring_full" }
}

/// A core's ways to the others: its row of the mesh, and a burst for each worker.
pub struct Lanes<T> {
    row: Option<Row<T>>,
    bursts: Box<[Burst<T>]>,
    counters: Arc<Counters>,
    crossed: Counter,
    /// Packets that stayed on their core and are not counted yet.
    kept: u64,
    /// Where the own shard's landing is lent: how many packets it held before.
    lent: Option<usize>,
}

impl<T: Send> Lanes<T> {
    /// Lanes to `worker_count` workers; without a row, all packets stay on this core.
    pub(crate) fn new(row: Option<Row<T>>, worker_count: usize) -> Self {
        let counters = Arc::new(Counters::new(RouterDrop::NAMES));
        let bursts = (0..worker_count).map(|_| Burst::new()).collect();
        let crossed = Counter::default();
        Self { row, bursts, counters, crossed, kept: 0, lent: None }
    }

    pub(crate) const fn worker_count(&self) -> usize {
        self.bursts.len()
    }

    /// How many packets every ring has room for.
    #[inline]
    pub(crate) fn room(&mut self) -> usize {
        self.row.as_mut().map_or(usize::MAX, Row::free_count_min)
    }

    /// Packets that went into a ring.
    pub(crate) fn crossed_count(&self) -> u64 {
        self.crossed.count()
    }

    /// Closes the rings: nothing comes any more.
    pub(crate) fn close(&mut self) {
        debug_assert!(self.in_flight() == 0, "lanes closed with packets in them");
        self.row = None;
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.bursts.iter().map(Burst::len).sum()
    }

    pub(crate) const fn in_flight_max(&self) -> usize {
        self.worker_count() * BURST_CAPACITY
    }

    pub(crate) fn abandon(&mut self) {
        self.count_kept();
        let left = self.in_flight() as u64;
        self.counters.received.add(left);
        self.counters.panicked.add(left);
        self.bursts.iter_mut().for_each(Burst::clear);
    }

    pub(crate) fn lines(&self, lines: &mut Vec<Line>) {
        lines.push(Line::new(Place::Boundary, "shard_by", &self.counters));
    }

    #[inline(always)]
    fn push(&mut self, worker: usize, item: T) {
        self.bursts[worker].push(item);
        if self.bursts[worker].is_full() {
            self.send(worker);
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        self.count_kept();
        for worker in 0..self.bursts.len() {
            if !self.bursts[worker].is_empty() {
                self.send(worker);
            }
        }
    }

    /// Moves a burst into its ring; what finds no room is the newest, and is dropped.
    #[inline(never)]
    fn send(&mut self, worker: usize) {
        let burst = &mut self.bursts[worker];
        let received = burst.len();
        let pushed = self.row.as_mut().map_or(0, |row| {
            row.push_burst(worker, received, || burst.pop().expect("as many as were promised"))
        });
        let mut dropped = 0;
        while burst.pop().is_some() {
            self.counters.count_drop(RouterDrop::RingFull.index());
            dropped += 1;
        }
        self.crossed.add(pushed as u64);
        let passage = Passage {
            received: received as u64,
            emitted: pushed as u64,
            dropped,
            ..Passage::default()
        };
        settle(&self.counters, passage, false);
    }

    /// Counts packets that stayed on their core.
    #[inline(always)]
    fn count_kept(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.counters.received.add(kept);
        self.counters.emitted.add(kept);
    }
}

/// What becomes of packets whose shard is on the core that received them.
pub trait Own<T> {
    /// The core's number among the workers, if it is one.
    fn worker(&self) -> Option<usize>;

    /// Takes a packet of the core's own shard.
    fn keep(&mut self, item: T);

    /// Where packets of the core's own shard may be put instead of being kept one by one; none where
    /// it owns no shard. [`landed`](Self::landed) follows.
    fn landing(&mut self) -> Option<&mut Burst<T>>;

    /// As many packets were put into the [`landing`](Self::landing).
    fn landed(&mut self, count: usize);

    /// Works on the landing where it is full.
    fn run_full(&mut self);
}

/// A dispatcher owns no shard.
pub struct NoShard;

impl<T> Own<T> for NoShard {
    #[inline(always)]
    fn worker(&self) -> Option<usize> {
        None
    }

    fn keep(&mut self, _: T) {
        unreachable!("a core without a shard keeps nothing");
    }

    #[inline(always)]
    fn landing(&mut self) -> Option<&mut Burst<T>> {
        None
    }

    fn landed(&mut self, _: usize) {}

    fn run_full(&mut self) {}
}

/// The end of a core's first chain: routes each packet by its shard.
pub struct Router<'a, T, K, O> {
    key: &'a K,
    lanes: &'a mut Lanes<T>,
    own: O,
}

impl<'a, T: Send, K, O: Own<T>> Router<'a, T, K, O> {
    pub(crate) const fn new(key: &'a K, lanes: &'a mut Lanes<T>, own: O) -> Self {
        Self { key, lanes, own }
    }

    /// Counts what was put into the landing that was lent. After a panic of who put it there, this is
    /// all that is missing.
    #[inline(always)]
    pub(crate) fn take_back(&mut self) {
        let Some(len_before) = self.lanes.lent.take() else { return };
        let len = self.own.landing().map_or(0, |burst| burst.len());
        let count = len - len_before;
        self.lanes.kept += count as u64;
        self.own.landed(count);
    }
}

impl<T, K, I, O> Down<T> for Router<'_, T, K, O>
where
    T: Send,
    K: Fn(&T) -> I,
    I: Into<Shard>,
    O: Own<T>,
{
    #[inline(always)]
    fn accept(&mut self, item: T) {
        let counters = &self.lanes.counters;
        let at_key = LostOnPanic(counters);
        let shard: Shard = blame(|| "shard_by".to_owned(), || (self.key)(&item).into());
        std::mem::forget(at_key);
        let worker = shard.worker(self.lanes.worker_count());
        if Some(worker) == self.own.worker() {
            self.lanes.kept += 1;
            self.own.keep(item);
        } else {
            self.lanes.push(worker, item);
        }
    }

    /// Where there is one worker, all shards are its own: nothing need be asked of the packets.
    #[inline(always)]
    fn landing(&mut self, count: usize) -> Option<&mut Burst<T>> {
        if self.lanes.worker_count() != 1 {
            return None;
        }
        let burst = self.own.landing().filter(|burst| burst.room() >= count)?;
        self.lanes.lent = Some(burst.len());
        Some(burst)
    }

    #[inline(always)]
    fn landed(&mut self) {
        self.take_back();
        self.own.run_full();
    }

    #[inline(always)]
    fn flush(&mut self) {
        self.lanes.flush();
    }
}

/// Counts the packet in hand as lost when the key panics.
struct LostOnPanic<'a>(&'a Counters);

impl Drop for LostOnPanic<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.received.add(1);
        self.0.panicked.add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_split_evenly_and_stay_in_range() {
        for worker_count in 1..=7 {
            let mut counts = vec![0; worker_count];
            for step in 0..10_000_u32 {
                counts[Shard::Hash(step * (u32::MAX / 10_000)).worker(worker_count)] += 1;
            }
            let fair = 10_000 / worker_count;
            assert!(counts.iter().all(|&count: &usize| count.abs_diff(fair) <= 2), "{counts:?}");
            assert_eq!(Shard::Hash(u32::MAX).worker(worker_count), worker_count - 1);
            assert!(Shard::Worker(usize::MAX).worker(worker_count) < worker_count);
        }
    }

    #[test]
    fn what_a_full_ring_refuses_is_counted() {
        // One item fills a line of the ring, so that it holds no more than its capacity.
        let hotloop_ring::Mesh { mut rows, columns } = hotloop_ring::Mesh::new(1, 1, 4);
        let mut lanes = Lanes::new(rows.pop(), 1);
        (0..6).for_each(|item: u64| lanes.push(0, [item; 7]));
        assert_eq!((lanes.room(), lanes.in_flight()), (4, 6));
        lanes.flush();
        assert_eq!((lanes.crossed_count(), lanes.counters.dropped_sum()), (4, 2));
        assert_eq!((lanes.in_flight(), columns[0].len()), (0, 4));
    }
}
