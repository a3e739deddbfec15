//! State shared by both ends of a ring: the lines, the counts, and which end has gone.

use crossbeam_utils::CachePadded;

use crate::memory::Memory;
use crate::record::{Cursor, lines_of, long_count, per_line, record_max};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, order};

/// The memory of a ring.
///
/// Records follow each other through the lines, round and round. The producer owns its current
/// record except the items in it that are shown already, and all lines after it up to the
/// consumer's record. The consumer owns the items shown and not taken, and may read the header of
/// its current record even after it gave back all items of that. All counts are of items since the
/// ring was made, and wrap.
pub(crate) struct Shared<T> {
    /// Items that the consumer gave back, written late.
    given_back: CachePadded<AtomicU64>,
    /// Items shown, for calls that ask for the number of items in the ring: the consumer itself
    /// reads the headers.
    pushed: CachePadded<AtomicU64>,
    /// Has enough lines for `slot_count` items after those given back, a whole record before them,
    /// and the header after them.
    pub(crate) memory: Memory<T>,
    /// Number of items that always fit.
    pub(crate) capacity: usize,
    /// Number of items that the consumer may hold back after taking them, plus 1.
    late_count: usize,
    /// Number of items that may be held back when the consumer is about to take less than a line's
    /// items without checking.
    pub(crate) keep_max: u64,
    /// Set when the producer is dropped, after its last item was shown.
    producer_gone: AtomicBool,
    /// The consumer's last position; set when it is dropped.
    left_at: (AtomicUsize, AtomicUsize),
    /// Set when the consumer is dropped, after `left_at`.
    consumer_gone: AtomicBool,
}

// SAFETY: 1. A `Shared` owns the items in its lines; moving it to a thread moves them, which
// `T: Send` allows. 2. It holds nothing tied to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

// SAFETY: 1. Items are reached only through the unsafe functions of `Memory`, whose contracts give
// each slot to one thread at a time. 2. An item written by one thread is taken by another, never
// visible to both: `T: Send` is enough. 3. All other fields are atomic or never change.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// An empty ring.
    ///
    /// The consumer gives items back before it holds back `late_count`, an eighth of the capacity.
    /// Despite that, the producer is owed `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity <= 1 << (usize::BITS - 2), "a ring's capacity is at most 2^62");
        let per_line = per_line::<T>();
        let late_count = (capacity / 8).max(per_line);
        // Each long record takes less than a line more than its items would line by line. One line
        // more is for the producer's current line, and another for the rounding of both divisions.
        let slot_count = slot_count(capacity, late_count);
        let item_count = slot_count + record_max::<T>().min(slot_count);
        let line_count = item_count / per_line + item_count / long_count::<T>() + 2;
        // Everything that may panic comes before there is a `Shared`, whose drop needs its lines.
        let memory = Memory::new(line_count).unwrap_or_else(|error| {
            panic!("no memory for a ring of {capacity} items: {error}");
        });
        Self {
            given_back: CachePadded::new(AtomicU64::new(0)),
            pushed: CachePadded::new(AtomicU64::new(0)),
            memory,
            capacity,
            late_count,
            keep_max: (late_count - per_line) as u64,
            producer_gone: AtomicBool::new(false),
            left_at: (AtomicUsize::new(0), AtomicUsize::new(0)),
            consumer_gone: AtomicBool::new(false),
        }
    }

    /// Maximum number of items in the ring, counted from the items given back, so that `capacity`
    /// fit after those taken.
    pub(crate) fn slot_count(&self) -> usize {
        slot_count(self.capacity, self.late_count)
    }

    /// Items pushed, all of them shown: the caller may take them.
    #[inline(always)]
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed.load(order::see_pushed())
    }

    /// Sets the count of items pushed, which are shown. Only for the producer.
    #[inline(always)]
    pub(crate) fn set_pushed(&self, count: u64) {
        self.pushed.store(count, order::set_pushed());
    }

    /// The number of items given back. Their slots may be written again.
    #[inline(always)]
    pub(crate) fn given_back(&self) -> u64 {
        self.given_back.load(order::see_given_back())
    }

    /// Gives the first `count` items back to the producer. Only for the consumer.
    #[inline(always)]
    pub(crate) fn give_back(&self, count: u64) {
        self.given_back.store(count, order::give_back());
    }

    pub(crate) fn producer_gone(&self) -> bool {
        self.producer_gone.load(order::see_producer_gone())
    }

    pub(crate) fn consumer_gone(&self) -> bool {
        self.consumer_gone.load(order::see_consumer_gone())
    }

    pub(crate) fn leave_producer(&self) {
        self.producer_gone.store(true, order::leave_producer());
    }

    /// `cursor` is the consumer's position.
    pub(crate) fn leave_consumer(&self, cursor: Cursor) {
        self.left_at.0.store(cursor.line_index, Ordering::Relaxed);
        self.left_at.1.store(cursor.slot, Ordering::Relaxed);
        self.consumer_gone.store(true, order::leave_consumer());
    }
}

fn slot_count(capacity: usize, late_count: usize) -> usize {
    if capacity == 0 { 0 } else { capacity + late_count - 1 }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Both ends are gone, and the later of them has seen the other's writes.
        let [line_index, slot] =
            [&self.left_at.0, &self.left_at.1].map(|at| at.load(Ordering::Relaxed));
        Left { cursor: Cursor { line_index, slot, behind: 0 }, shared: self }.drop_items();
    }
}

/// The items that were never popped, being dropped.
struct Left<'a, T> {
    /// Always past the last item taken, so that none is dropped twice.
    cursor: Cursor,
    shared: &'a Shared<T>,
}

impl<T> Left<'_, T> {
    fn drop_items(&mut self) {
        let lines = self.shared.memory.lines();
        loop {
            let Cursor { line_index, slot, .. } = self.cursor;
            // SAFETY: 1. A cursor's line is one of the ring's.
            let count = unsafe { lines.header(line_index, Ordering::Relaxed) };
            if slot < count {
                self.cursor.slot += 1;
                // SAFETY: 1. Both ends are gone: the ring is being dropped, and only the caller has
                // it.
                // 2. The item is shown and was not taken, and each is visited once.
                drop(unsafe { lines.take(line_index, slot) });
            } else if count < per_line::<T>() {
                return;
            } else {
                self.cursor.next_record(count, lines_of::<T>(count), lines.count());
            }
        }
    }
}

impl<T> Drop for Left<'_, T> {
    /// Does nothing unless an item's own drop panicked; then the rest is still dropped, as with the
    /// standard collections.
    fn drop(&mut self) {
        self.drop_items();
    }
}
