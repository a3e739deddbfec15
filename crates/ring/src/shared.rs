//! What both ends of a ring share: the lines, the counts, and which end has gone.

use crossbeam_utils::CachePadded;

use crate::lines::{Cursor, Line, per_line};
use crate::sync::{AtomicBool, AtomicU64, Ordering, order};

/// The memory of a ring.
///
/// Item `i` lies in line `i / per_line` (modulo the lines) at slot `i % per_line`. A line belongs to
/// the producer from when it is given back until its last slot is shown, but for the slots shown
/// already, which belong to the consumer until it gives the whole line back. All counts are of items
/// since the ring was made, and wrap.
pub(crate) struct Shared<T> {
    /// Items in the lines that the consumer gave back: a multiple of `per_line`, written late.
    given_back: CachePadded<AtomicU64>,
    /// Enough that `slot_count` items fit after those given back; never empty.
    pub(crate) lines: Box<[Line<T>]>,
    /// Most items that always fit.
    pub(crate) capacity: usize,
    /// Items that the consumer may keep from the producer after it took them, in whole lines.
    pub(crate) late_count: usize,
    /// Where both ends started.
    first: Cursor,
    /// Set when the producer is dropped, after its last item was shown.
    producer_gone: AtomicBool,
    /// Items popped; set when the consumer is dropped.
    popped: AtomicU64,
    /// Set when the consumer is dropped, after `popped`.
    consumer_gone: AtomicBool,
}

// SAFETY: 1. A `Shared` owns the items in its lines; moving it to a thread moves them, which
// `T: Send` allows. 2. It holds nothing tied to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

// SAFETY: 1. Slots are reached only through the unsafe functions of `Slots`, whose contracts give
// each slot to one thread at a time. 2. An item written by one thread is taken by another, never
// seen by both: `T: Send` is enough. 3. All else in here is atomic or never changes.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// An empty ring whose first lap has the number `lap`.
    ///
    /// The consumer gives lines back when an eighth of the capacity is in them. Between bursts that
    /// keeps fewer than `late_count` items in whole lines, and fewer than `per_line` in the line
    /// that it is in, from a producer that is owed `capacity`.
    pub(crate) fn new(capacity: usize, lap: u64) -> Self {
        assert!(capacity <= 1 << (usize::BITS - 2), "a ring's capacity is at most 2^62");
        let per_line = per_line::<T>();
        let late_count = (capacity / 8 / per_line).max(1) * per_line;
        let first = Cursor::start(lap);
        let line_count = slot_count(capacity, late_count).div_ceil(per_line).max(1);
        // All that may panic comes before there is a `Shared`, whose drop needs its lines.
        let mut lines = Vec::new();
        if let Err(error) = lines.try_reserve_exact(line_count) {
            panic!("no memory for a ring of {capacity} items: {error}");
        }
        lines.extend((0..line_count).map(|_| Line::before(first)));
        Self {
            given_back: CachePadded::new(AtomicU64::new(0)),
            lines: lines.into_boxed_slice(),
            capacity,
            late_count,
            first,
            producer_gone: AtomicBool::new(false),
            popped: AtomicU64::new(0),
            consumer_gone: AtomicBool::new(false),
        }
    }

    /// The most items that are ever in the ring: what is owed to the producer after the items given
    /// back, so that `capacity` fit after those taken.
    pub(crate) fn slot_count(&self) -> usize {
        slot_count(self.capacity, self.late_count)
    }

    /// Where both ends start.
    pub(crate) fn first(&self) -> Cursor {
        self.first
    }

    /// Moves an end's cursor from a finished line to the next one.
    #[inline(always)]
    pub(crate) fn next_line(&self, cursor: &mut Cursor) {
        cursor.next_line(self.lines.len(), per_line::<T>());
    }

    /// The count of items that was given back. The lines that they were in may be written again.
    #[inline(always)]
    pub(crate) fn given_back(&self) -> u64 {
        self.given_back.load(order::see_given_back())
    }

    /// Gives the lines of the first `count` items back to the producer. For the consumer only.
    #[inline(always)]
    pub(crate) fn give_back(&self, count: u64) {
        self.given_back.store(count, order::give_back());
    }

    /// Items in the ring, from the next one to be popped on: so many can be popped. For the consumer,
    /// or the only owner of the ring.
    pub(crate) fn count_from(&self, next: Cursor) -> usize {
        let shown_count = self.lines[next.line_index].shown_count(next.tag);
        if shown_count < per_line::<T>() {
            return shown_count - next.slot;
        }
        // Lines fill up in order: of those from `next` on, the first so many are full.
        let (mut full_count, mut end) = (1, self.lines.len());
        while full_count < end {
            let middle = full_count + (end - full_count) / 2;
            if self.shown_count_at(next, middle) == per_line::<T>() {
                full_count = middle + 1;
            } else {
                end = middle;
            }
        }
        let last_count =
            if full_count < self.lines.len() { self.shown_count_at(next, full_count) } else { 0 };
        full_count * per_line::<T>() + last_count - next.slot
    }

    /// What the line `offset` lines after that of `next` shows; less than a lap further on.
    fn shown_count_at(&self, next: Cursor, offset: usize) -> usize {
        let Cursor { line_index, tag, .. } = next.skip_lines(offset, self.lines.len());
        self.lines[line_index].shown_count(tag)
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

    /// `popped_count` is the count of items popped.
    pub(crate) fn leave_consumer(&self, popped_count: u64) {
        self.popped.store(popped_count, Ordering::Relaxed);
        self.consumer_gone.store(true, order::leave_consumer());
    }
}

fn slot_count(capacity: usize, late_count: usize) -> usize {
    if capacity == 0 { 0 } else { capacity + late_count - 1 }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Both ends are gone, and the last of them has seen what the other one did.
        let (popped, per_line) = (self.popped.load(Ordering::Relaxed), per_line::<T>() as u64);
        let (line, line_count) = (popped / per_line, self.lines.len() as u64);
        let mut cursor = self.first.skip_laps(line / line_count);
        cursor.line_index = (line % line_count) as usize;
        cursor.slot = (popped % per_line) as usize;
        Left { cursor, left_count: self.count_from(cursor), shared: self }.drop_items();
    }
}

/// The items that nobody popped, on their way out.
struct Left<'a, T> {
    /// Always past the last item taken, so that none is dropped twice.
    cursor: Cursor,
    left_count: usize,
    shared: &'a Shared<T>,
}

impl<T> Left<'_, T> {
    fn drop_items(&mut self) {
        while self.left_count > 0 {
            let Cursor { line_index, slot, .. } = self.cursor;
            self.left_count -= 1;
            self.cursor.slot += 1;
            if self.cursor.slot == per_line::<T>() {
                self.shared.next_line(&mut self.cursor);
            }
            // SAFETY: 1. Both ends are gone: the ring is being dropped and is the caller's alone.
            // 2. The slot is one of `left_count` that were written and not taken, after the popped
            // ones, and each comes by once.
            drop(unsafe { self.shared.lines[line_index].slots.take(slot) });
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Arc;
    use crate::{Consumer, Producer};

    /// An empty ring that starts `lap_count` laps before the lap number wraps.
    fn late<T>(capacity: usize, lap_count: u64) -> (Producer<T>, Consumer<T>) {
        let shared = Arc::new(Shared::new(capacity, lap_count.wrapping_neg()));
        (Producer::new(shared.clone()), Consumer::new(shared))
    }

    #[test]
    fn laps_wrap() {
        // The lap number has 56 bits.
        let first = Cursor::start(3_u64.wrapping_neg());
        assert_eq!(first.tag, 0_u64.wrapping_sub(3 << 8));
        for capacity in [1, 3, 14, 50] {
            let (mut tx, mut rx) = late(capacity, 3);
            let (mut pushed, mut popped) = (0_usize, 0);
            for _ in 0..40 {
                let mut numbers = pushed..;
                pushed += tx.push_burst(usize::MAX, || numbers.next().unwrap());
                assert!((capacity..=tx.slot_count()).contains(&(pushed - popped)));
                assert_eq!((rx.len(), tx.free_count()), (pushed - popped, 0));
                assert_eq!(tx.push(usize::MAX), Err(usize::MAX));
                for _ in 0..rx.len() / 2 {
                    assert_eq!(rx.pop(), Some(popped));
                    popped += 1;
                }
                rx.pop_burst(usize::MAX, |number| {
                    assert_eq!(number, popped);
                    popped += 1;
                });
                assert_eq!((popped, rx.is_empty()), (pushed, true));
            }
            let lap = pushed as u64 / per_line::<usize>() as u64 / line_count_of(capacity);
            assert!(lap > 3, "the lap number has wrapped");
        }
    }

    fn line_count_of(capacity: usize) -> u64 {
        Shared::<usize>::new(capacity, 0).lines.len() as u64
    }

    #[test]
    fn what_is_left_across_the_wrap_is_dropped() {
        let item = Arc::new(());
        for left_count in (0..30).step_by(if cfg!(miri) { 7 } else { 1 }) {
            let (mut tx, mut rx) = late(20, 1);
            let popped_count = 20 - left_count % 7;
            tx.push_burst(popped_count, || item.clone());
            assert_eq!(rx.pop_burst(popped_count, drop), popped_count);
            let pushed_count = tx.push_burst(left_count, || item.clone());
            assert_eq!(Arc::strong_count(&item), 1 + pushed_count);
            drop(tx);
            drop(rx);
            assert_eq!(Arc::strong_count(&item), 1);
        }
    }

    #[test]
    fn lines_are_one_cache_line_up_to_56_bytes() {
        assert_eq!((size_of::<Line<()>>(), per_line::<()>()), (64, 7));
        assert_eq!((size_of::<Line<u8>>(), per_line::<u8>()), (64, 56));
        assert_eq!((size_of::<Line<u64>>(), per_line::<u64>()), (64, 7));
        assert_eq!((size_of::<Line<[u64; 3]>>(), per_line::<[u64; 3]>()), (64, 2));
        assert_eq!((size_of::<Line<[u64; 7]>>(), per_line::<[u64; 7]>()), (64, 1));
        assert_eq!((size_of::<Line<[u64; 8]>>(), per_line::<[u64; 8]>()), (128, 1));
        assert_eq!((size_of::<Line<u128>>(), per_line::<u128>()), (128, 1));
    }
}
