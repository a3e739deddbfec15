//! The pushing end.

use std::{fmt, mem};

use crate::memory::Lines;
use crate::moves::MoveOut;
use crate::record::{
    CLAIM_AHEAD, Cursor, few, items_in, lines_of, long_count, per_line, record_max,
};
use crate::shared::Shared;
use crate::sync::{Arc, Ordering, order};

/// The pushing end of a ring, made by [`ring`](crate::ring).
///
/// Each ring has a single producer, which may move to another thread, but can't be cloned.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    state: State,
}

/// State that only the producer accesses.
struct State {
    /// Position of the next item, in a line that isn't full. The line's header is 0 before its
    /// first item is shown.
    cursor: Cursor,
    /// Single pushes into the cursor's line before this slot need no check: the line doesn't end,
    /// and there is room.
    stop: usize,
    /// The maximum for the count of items pushed: `slot_count` past those given back, as last read.
    limit: u64,
}

impl<T> Producer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        let state = State { cursor: Cursor::START, stop: 0, limit: shared.slot_count() as u64 };
        Self { shared, state }
    }

    /// Pushes one item.
    ///
    /// # Errors
    /// Returns the item if the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        let Self { shared, state } = self;
        if state.cursor.slot + 1 < state.stop {
            state.put(shared, item);
            return Ok(());
        }
        state.push_at_stop(shared, item)
    }

    /// Pushes up to `count` items, as far as there is room, and returns their number. `next` is
    /// called exactly that often, so no item is left over.
    ///
    /// The consumer sees the items of a cache line at once (seven of 8 bytes). If `next` panics,
    /// the consumer sees all earlier items. [`push_from`](Self::push_from) costs less if the items
    /// lie in one piece.
    ///
    /// ```
    /// let (mut tx, mut rx) = hotloop_ring::ring(64);
    /// let mut waiting: Vec<u64> = (0..100).rev().collect();
    /// let pushed_count = tx.push_burst(waiting.len(), || waiting.pop().unwrap());
    /// assert!((64..=tx.slot_count()).contains(&pushed_count));
    /// assert_eq!(pushed_count + waiting.len(), 100);
    /// assert_eq!((rx.pop(), rx.pop()), (Some(0), Some(1)));
    /// ```
    #[inline]
    pub fn push_burst(&mut self, count: usize, mut next: impl FnMut() -> T) -> usize {
        self.push_lines(count, &mut next)
    }

    #[inline(always)]
    fn push_lines(&mut self, count: usize, next: &mut impl FnMut() -> T) -> usize {
        if count == 1 && self.state.cursor.slot + 1 < self.state.stop {
            self.state.put(&self.shared, next());
            return 1;
        }
        let room_count = self.room_for(count);
        if room_count == 0 {
            return 0;
        }
        let Self { shared, state } = self;
        let (lines, mut rest_count, slot) = (shared.memory.lines(), room_count, state.cursor.slot);
        let mut written = Written { shared, state, slot };
        loop {
            let to_end_count = per_line::<T>() - written.slot;
            if rest_count < to_end_count {
                let end = written.slot + rest_count;
                written.fill(lines, end, || few(&mut *next));
                break;
            }
            if written.slot == 0 {
                // A count known at compile time.
                written.fill(lines, per_line::<T>(), &mut *next);
            } else {
                written.fill(lines, per_line::<T>(), || few(&mut *next));
            }
            written.state.end_line(lines);
            written.slot = 0;
            rest_count -= to_end_count;
        }
        let slot = written.slot;
        mem::forget(written);
        state.show_up_to(lines, slot);
        state.settle(shared);
        room_count
    }

    /// Moves items out of `from`, from its front, as far as there is room, and returns their
    /// number.
    ///
    /// 28 or more items of 8 bytes become visible to the consumer all at once.
    ///
    /// ```
    /// let (mut tx, mut rx) = hotloop_ring::ring(64);
    /// let numbers = [1, 2, 3];
    /// assert_eq!(tx.push_from(&mut &numbers[..]), 3);
    /// let mut burst = Vec::with_capacity(64);
    /// assert_eq!(rx.pop_into(64, &mut burst), 3);
    /// assert_eq!(burst, numbers);
    /// ```
    #[inline(always)]
    pub fn push_from(&mut self, from: &mut impl MoveOut<Item = T>) -> usize {
        let (place, count) = (from.items().as_ptr(), from.items().len());
        let room_count = self.room_for(count);
        let is_long = room_count >= long_count::<T>();
        // SAFETY: 1. There is room for `room_count` items. 2. `from` has that many, which it
        // forgets below; nothing in between panics. 3. They are enough.
        if !(is_long && unsafe { self.copy_long(place, room_count) }) {
            // SAFETY: 1 and 2. As above.
            unsafe { self.copy_parts(place, room_count) };
        }
        // SAFETY: 1. There were at least `room_count` items. 2. They were moved into the ring.
        unsafe { from.forget_front(room_count) };
        room_count
    }

    /// Moves items into lines, one by one.
    ///
    /// # Safety
    /// 1. There is room for `count` items. 2. `place` points to `count` items, which are not used
    ///    again.
    #[inline(always)]
    unsafe fn copy_lines(&mut self, mut place: *const T, count: usize) {
        self.push_lines(count, &mut || {
            // SAFETY: 1. This is called at most `count` times: by contract there is an item, and each is moved
            // once.
            let item = unsafe { place.read() };
            place = place.wrapping_add(1);
            item
        });
    }

    /// Moves items into a record of their own, and shows it. Returns false and does nothing if they
    /// don't fit one.
    ///
    /// # Safety
    /// 1. There is room for `count` items. 2. `place` points to `count` items, which are not used
    ///    again if this returns true.
    /// 3. There are enough for a long record, or they fill all lines up to the last: the ring has lines for that.
    #[inline(always)]
    unsafe fn copy_long(&mut self, place: *const T, count: usize) -> bool {
        let Self { shared, state } = self;
        let (lines, Cursor { line_index, slot, behind }) = (shared.memory.lines(), state.cursor);
        let line_count = lines_of::<T>(count);
        if count > record_max::<T>() || slot != 0 || line_index + line_count > lines.count() {
            return false;
        }
        let mut next = Cursor { line_index, slot, behind };
        next.next_record(count, line_count, lines.count());
        // Before the consumer moves on to this line. SAFETY: 1. A cursor's line is one of the
        // ring's.
        unsafe { lines.set_header(next.line_index, 0, Ordering::Relaxed) };
        state.cursor = next;
        // Makes the next single push check for room.
        state.stop = 0;
        // The copy comes last, so that few values must be kept across the call. Nothing up to the
        // end panics. SAFETY: 1. There is one producer, and it is borrowed mutably. 2. There is
        // room, by contract, so the slots lie in lines that are the producer's, and aren't shown
        // yet. 3. By contract the items are there.
        unsafe { lines.copy_in(line_index, 0, place, count) };
        // SAFETY: 1. A cursor's line is one of the ring's.
        unsafe { lines.set_header(line_index, count, order::show_record()) };
        shared.set_pushed(state.cursor.behind);
        // Claims the lines of the record after the next, if both are as long as this one. Claiming
        // the next record's lines would be too late.
        let claimed = state.cursor.line_index + line_count;
        lines.claim_all(claimed..claimed + line_count);
        true
    }

    /// Moves items into lines, and into long records where they fit. The rest of the cursor's line
    /// or the end of the memory may keep them from going into one record.
    ///
    /// # Safety
    /// 1. There is room for `count` items. 2. `place` points to `count` items, which are not used
    ///    again.
    #[inline(never)]
    unsafe fn copy_parts(&mut self, mut place: *const T, count: usize) {
        let mut rest_count = count;
        while rest_count >= long_count::<T>() {
            let Cursor { line_index, slot, .. } = self.state.cursor;
            let to_end_count = items_in::<T>(self.shared.memory.lines().count() - line_index);
            let mut part_count = rest_count.min(record_max::<T>()).min(to_end_count);
            // SAFETY: 1 and 2. By contract, for a part of the remaining items. 3. There are enough,
            // or they fill all lines up to the last.
            if !unsafe { self.copy_long(place, part_count) } {
                part_count = per_line::<T>() - slot;
                // SAFETY: 1 and 2. By contract, for a part of the remaining items.
                unsafe { self.copy_lines(place, part_count) };
            }
            rest_count -= part_count;
            place = place.wrapping_add(part_count);
        }
        // SAFETY: 1 and 2. By contract, for the remaining items.
        unsafe { self.copy_lines(place, rest_count) };
    }

    /// Number of items, at most `wanted_count`, that there is room for now. The room stays until
    /// something is pushed: the consumer can only add to it.
    ///
    /// Reads the consumer's count only if the room last seen is too small.
    #[inline(always)]
    pub fn room_for(&mut self, wanted_count: usize) -> usize {
        if self.state.room() < wanted_count {
            self.state.look_for_room(&self.shared);
        }
        self.state.room().min(wanted_count)
    }

    /// Number of items that there is room for now, after reading the consumer's count. Together
    /// with the items in the ring, that is at least [`capacity`](Self::capacity).
    pub fn free_count(&mut self) -> usize {
        self.state.look_for_room(&self.shared);
        self.state.room()
    }

    /// Number of items that always fit: while the ring has fewer, a push succeeds.
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Maximum number of items in the ring: the capacity, plus items that were taken but aren't
    /// given back yet, which are fewer than an eighth of the capacity or fewer than a line's items.
    pub fn slot_count(&self) -> usize {
        self.shared.slot_count()
    }

    /// Whether the consumer was dropped. Pushes still work while there is room, but nothing takes
    /// the items: they are dropped with the producer.
    pub fn is_closed(&self) -> bool {
        self.shared.consumer_gone()
    }
}

impl State {
    #[inline(always)]
    fn room(&self) -> usize {
        self.limit.wrapping_sub(self.cursor.count()) as usize
    }

    /// Shows the items before `slot` in the line at the cursor, which isn't full yet.
    #[inline(always)]
    fn show_up_to<T>(&mut self, lines: Lines<'_, T>, slot: usize) {
        self.cursor.slot = slot;
        if slot != 0 {
            // SAFETY: 1. A cursor's line is one of the ring's.
            unsafe { lines.set_header(self.cursor.line_index, slot, order::show_record()) };
        }
    }

    /// Shows the line at the cursor, which is full, and moves on to the next one.
    #[inline(always)]
    fn end_line<T>(&mut self, lines: Lines<'_, T>) {
        let line_index = self.cursor.line_index;
        self.cursor.next_record(per_line::<T>(), 1, lines.count());
        // Before the consumer moves on to this line. SAFETY: 1. A cursor's line is one of the
        // ring's.
        unsafe { lines.set_header(self.cursor.line_index, 0, Ordering::Relaxed) };
        // SAFETY: 1. A cursor's line is one of the ring's.
        unsafe { lines.set_header(line_index, per_line::<T>(), order::show_record()) };
        lines.claim(self.cursor.line_index + CLAIM_AHEAD);
    }

    /// Writes an item into the cursor's slot, and shows it. There must be room, and the item must
    /// not fill the line.
    #[inline(always)]
    fn put<T>(&mut self, shared: &Shared<T>, item: T) {
        let lines = shared.memory.lines();
        let Cursor { line_index, slot, .. } = self.cursor;
        // SAFETY: 1. There is one producer, and its state is borrowed. 2. There is room, so the slot lies in
        // a line that is the producer's, and isn't shown yet.
        unsafe { lines.write(line_index, slot, item) };
        self.cursor.slot = slot + 1;
        // SAFETY: 1. A cursor's line is one of the ring's.
        unsafe { lines.set_header(line_index, slot + 1, order::show_record()) };
        shared.set_pushed(self.cursor.count());
    }

    /// Pushes an item when a line or the known room may end.
    #[inline(never)]
    fn push_at_stop<T>(&mut self, shared: &Shared<T>, item: T) -> Result<(), T> {
        if self.room() == 0 {
            self.look_for_room(shared);
            if self.room() == 0 {
                return Err(item);
            }
        }
        if self.cursor.slot + 1 < per_line::<T>() {
            self.put(shared, item);
        } else {
            let (lines, Cursor { line_index, slot, .. }) = (shared.memory.lines(), self.cursor);
            // SAFETY: 1 and 2. As in `put`.
            unsafe { lines.write(line_index, slot, item) };
            self.end_line(lines);
        }
        self.settle(shared);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn look_for_room<T>(&mut self, shared: &Shared<T>) {
        self.limit = shared.given_back().wrapping_add(shared.slot_count() as u64);
    }

    /// Counts the items shown, and computes when the next single push has to check again.
    #[inline(always)]
    fn settle<T>(&mut self, shared: &Shared<T>) {
        shared.set_pushed(self.cursor.count());
        let room = self.limit.wrapping_sub(self.cursor.behind);
        self.stop = room.min(per_line::<T>() as u64) as usize;
    }
}

/// A burst being written, up to `slot` of the line at the cursor. Dropped only if a panic ends the
/// burst; the drop then shows the items written, so that none is lost.
struct Written<'a, T> {
    shared: &'a Shared<T>,
    state: &'a mut State,
    slot: usize,
}

impl<T> Written<'_, T> {
    /// Writes an item into each slot before `end`. There must be room.
    #[inline(always)]
    fn fill(&mut self, lines: Lines<'_, T>, end: usize, mut next: impl FnMut() -> T) {
        let line_index = self.state.cursor.line_index;
        while self.slot < end {
            let item = next();
            // SAFETY: 1. There is one producer, and it is borrowed mutably. 2. There is room, so the
            // slot lies in lines that are the producer's, and isn't shown yet.
            unsafe { lines.write(line_index, self.slot, item) };
            self.slot += 1;
        }
    }
}

impl<T> Drop for Written<'_, T> {
    #[cold]
    fn drop(&mut self) {
        self.state.show_up_to(self.shared.memory.lines(), self.slot);
        self.state.settle(self.shared);
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.leave_producer();
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
