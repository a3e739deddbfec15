//! The popping end.

use std::{fmt, mem};

use crate::memory::Lines;
use crate::moves::MoveIn;
use crate::record::{Cursor, FETCH_AHEAD, few, lines_of, per_line};
use crate::shared::Shared;
use crate::sync::{Arc, order};

/// The popping end of a ring, made by [`ring`](crate::ring).
///
/// Each ring has a single consumer, which may move to another thread, but can't be cloned.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    state: State,
}

/// State that only the consumer accesses.
struct State {
    /// Position of the next item. After the last item of a record the cursor stays there, and moves
    /// on when the consumer looks for the next record.
    cursor: Cursor,
    /// Items given back so far, as stored in `shared`.
    given_back: u64,
}

impl<T> Consumer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        Self { shared, state: State { cursor: Cursor::START, given_back: 0 } }
    }

    /// Pops the oldest item, or returns `None` if the ring is empty.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let Self { shared, state } = self;
        let lines = shared.memory.lines();
        if shown(&mut state.cursor, lines) == 0 {
            state.give_back_all(shared);
            return None;
        }
        let Cursor { line_index, slot, .. } = state.cursor;
        // SAFETY: 1. There is one consumer, and it is borrowed mutably. 2. The slot is shown. 3. The
        // cursor moves on below, so the item is taken once.
        let item = unsafe { lines.take(line_index, slot) };
        state.cursor.slot = slot + 1;
        if slot + 1 >= per_line::<T>() {
            state.give_back_late(shared);
        }
        Some(item)
    }

    /// Pops up to `count_max` items, oldest first, passes each to `each`, and returns their number.
    ///
    /// If `each` panics, it owns the item it was called with, and the following ones stay in the
    /// ring. [`pop_into`](Self::pop_into) costs less if the items should lie in one piece.
    ///
    /// ```
    /// let (mut tx, mut rx) = hotloop_ring::ring(8);
    /// let mut numbers = 1..=3;
    /// tx.push_burst(3, || numbers.next().unwrap());
    /// let mut burst = Vec::new();
    /// assert_eq!(rx.pop_burst(64, |item| burst.push(item)), 3);
    /// assert_eq!(burst, [1, 2, 3]);
    /// ```
    #[inline]
    pub fn pop_burst(&mut self, count_max: usize, each: impl FnMut(T)) -> usize {
        self.pop_lines::<false>(count_max, each)
    }

    /// [`pop_burst`](Self::pop_burst). If `ENDS_AT_LONG`, stops before a long record once it has
    /// other items.
    #[inline(always)]
    fn pop_lines<const ENDS_AT_LONG: bool>(
        &mut self,
        count_max: usize,
        mut each: impl FnMut(T),
    ) -> usize {
        if count_max == 1 {
            return usize::from(self.pop().map(&mut each).is_some());
        }
        let Self { shared, state } = self;
        let (lines, mut rest_count) = (shared.memory.lines(), count_max);
        let mut taken = Taken { shared, state, slot: 0 };
        while rest_count > 0 {
            let shown_count = shown(&mut taken.state.cursor, lines);
            let run_count = shown_count.min(rest_count);
            if run_count == 0 {
                break;
            }
            if ENDS_AT_LONG && shown_count > per_line::<T>() && rest_count < count_max {
                break;
            }
            rest_count -= run_count;
            taken.slot = taken.state.cursor.slot;
            if taken.slot == 0 && run_count == per_line::<T>() {
                // A count known at compile time.
                taken.hand_out(lines, per_line::<T>(), &mut each);
            } else {
                let end = taken.slot + run_count;
                taken.hand_out(lines, end, |item| few(|| each(item)));
            }
            taken.state.cursor.slot = taken.slot;
            if taken.slot == per_line::<T>() && run_count == shown_count {
                next_line(&mut taken.state.cursor, lines);
            }
        }
        mem::forget(taken);
        state.settle(shared, count_max - rest_count);
        count_max - rest_count
    }

    /// Pops up to `count_max` items, oldest first, and moves them into `to`, up to its room.
    /// Returns their number.
    ///
    /// A burst of `count_max` items or more that comes after other items is left whole for the next
    /// pop, so this may return fewer items than the ring holds. In a full ring, one partial push
    /// would otherwise split every later burst in two.
    ///
    /// ```
    /// let (mut tx, mut rx) = hotloop_ring::ring(64);
    /// let mut numbers = 1..=50;
    /// tx.push_burst(50, || numbers.next().unwrap());
    /// let mut burst = Vec::with_capacity(32);
    /// assert_eq!(rx.pop_into(8, &mut burst), 8);
    /// assert!(rx.pop_into(64, &mut burst) >= 24);
    /// assert!(burst.into_iter().eq(1..=50 - rx.len()));
    /// ```
    #[inline(always)]
    pub fn pop_into(&mut self, count_max: usize, to: &mut impl MoveIn<Item = T>) -> usize {
        let spare = to.spare();
        let (place, count_max) = (spare.as_mut_ptr().cast::<T>(), count_max.min(spare.len()));
        // SAFETY: 1. There is room for `count_max` items, which belongs to `to`.
        let mut count = unsafe { self.copy_long(place, count_max) };
        if count == 0 {
            // SAFETY: 1. As above.
            count = unsafe { self.copy_few(place, count_max) };
        } else if count < count_max && self.has_fewer_than(count_max) {
            // SAFETY: 1. As above.
            count = unsafe { self.copy_more(place, count, count_max) };
        }
        // SAFETY: 1. `spare` returned at least `count_max` places. 2. `count` items were moved in,
        // from the first place on.
        unsafe { to.moved_in(count) };
        count
    }

    /// Whether there are items at the cursor, or after it if it is at a record's end, and fewer
    /// than `count` in their record.
    #[inline(always)]
    pub(crate) fn has_fewer_than(&mut self, count: usize) -> bool {
        (1..count).contains(&shown(&mut self.state.cursor, self.shared.memory.lines()))
    }

    /// Moves up to `count_max` items of a long record to `place`, and returns their number: 0 if
    /// the record at the cursor has no more than a line's items left.
    ///
    /// # Safety
    /// `place` points to room for `count_max` items.
    #[inline(always)]
    unsafe fn copy_long(&mut self, place: *mut T, count_max: usize) -> usize {
        let Self { shared, state } = self;
        let (lines, mut cursor) = (shared.memory.lines(), state.cursor);
        let count = shown(&mut cursor, lines).min(count_max);
        if count <= per_line::<T>() {
            state.cursor = cursor;
            return 0;
        }
        state.cursor = Cursor { slot: cursor.slot + count, ..cursor };
        // The copy comes last, so that few values must be kept across the call. It does not panic.
        // SAFETY: 1. There is one consumer, and it is borrowed mutably. 2. The slots are shown. 3.
        // The cursor has moved on, so the items are taken once. 4. There is room, by contract.
        unsafe { lines.copy_out(cursor.line_index, cursor.slot, place, count) };
        state.give_back_late(shared);
        count
    }

    /// Moves up to `count_max` items to `place`, one by one up to the next long record, and returns
    /// their number.
    ///
    /// # Safety
    /// `place` points to room for `count_max` items.
    #[inline(always)]
    unsafe fn copy_lines(&mut self, mut place: *mut T, count_max: usize) -> usize {
        self.pop_lines::<true>(count_max, |item| {
            // SAFETY: 1. This is called at most `count_max` times, and there is room for
            // `count_max` items, by contract.
            unsafe { place.write(item) };
            place = place.wrapping_add(1);
        })
    }

    /// [`pop_into`](Self::pop_into) if the first record isn't long.
    ///
    /// # Safety
    /// `place` points to room for `count_max` items.
    #[inline(never)]
    unsafe fn copy_few(&mut self, place: *mut T, count_max: usize) -> usize {
        // SAFETY: 1. There is room, by contract.
        let count = unsafe { self.copy_lines(place, count_max) };
        if (1..count_max).contains(&count) && self.has_fewer_than(count_max) {
            // SAFETY: 1. As above.
            return unsafe { self.copy_more(place, count, count_max) };
        }
        count
    }

    /// Adds items to the `count` that are at `place`. Stops at `count_max` items, and before a record of `count_max` or
    /// more. Returns the new count.
    ///
    /// # Safety
    /// `place` points to room for `count_max` items.
    #[inline(never)]
    unsafe fn copy_more(&mut self, place: *mut T, mut count: usize, count_max: usize) -> usize {
        while count < count_max && self.has_fewer_than(count_max) {
            let (place, room) = (place.wrapping_add(count), count_max - count);
            // SAFETY: 1. There is room for the remaining items, by contract.
            let mut part_count = unsafe { self.copy_long(place, room) };
            if part_count == 0 {
                // SAFETY: 1. As above.
                part_count = unsafe { self.copy_lines(place, room) };
            }
            count += part_count;
        }
        count
    }

    /// Number of items in the ring, which can be popped now. The producer may add more while this
    /// returns.
    pub fn len(&self) -> usize {
        let count = self.shared.pushed().wrapping_sub(self.state.cursor.count());
        // The producer counts items after showing them: some may be taken already.
        if count.cast_signed() > 0 { count as usize } else { 0 }
    }

    /// Whether the ring is empty now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    /// Whether the producer was dropped. Items may still be in the ring.
    pub fn is_closed(&self) -> bool {
        self.shared.producer_gone()
    }

    /// Whether the producer was dropped and the ring is empty: no item will ever come.
    pub fn is_finished(&self) -> bool {
        // In this order: a producer that is gone pushes no more, so a ring found empty afterwards
        // stays empty.
        self.is_closed() && self.is_empty()
    }
}

/// Moves on from a line with all items taken.
#[inline(always)]
fn next_line<T>(cursor: &mut Cursor, lines: Lines<'_, T>) {
    cursor.next_record(per_line::<T>(), 1, lines.count());
    lines.fetch(cursor.line_index + FETCH_AHEAD);
}

/// Number of items of the record at the cursor that are shown and not taken. Moves on to the next
/// record if the last item was taken.
#[inline(always)]
fn shown<T>(cursor: &mut Cursor, lines: Lines<'_, T>) -> usize {
    // SAFETY: 1. A cursor's line is one of the ring's.
    let count = unsafe { lines.header(cursor.line_index, order::see_record()) };
    if count != cursor.slot {
        return count - cursor.slot;
    }
    if count < per_line::<T>() {
        return 0;
    }
    if count == per_line::<T>() {
        next_line(cursor, lines);
    } else {
        // Copying a record in one piece waits for all its lines at once.
        cursor.next_record(count, lines_of::<T>(count), lines.count());
    }
    // SAFETY: 1. As above.
    unsafe { lines.header(cursor.line_index, order::see_record()) }
}

impl State {
    /// Gives items back once about an eighth of the ring is taken: the producer then finds much
    /// room with one look, and the line with the count isn't fetched for every few items.
    #[inline(always)]
    fn give_back_late<T>(&mut self, shared: &Shared<T>) {
        let count = self.cursor.count();
        if count.wrapping_sub(self.given_back) > shared.keep_max {
            self.given_back = count;
            shared.give_back(count);
        }
    }

    /// Gives all items back, because there is nothing else to do.
    #[inline(always)]
    fn give_back_all<T>(&mut self, shared: &Shared<T>) {
        let count = self.cursor.count();
        if count != self.given_back {
            self.given_back = count;
            shared.give_back(count);
        }
    }

    /// Gives items back after a burst of `count`.
    #[inline(always)]
    fn settle<T>(&mut self, shared: &Shared<T>, count: usize) {
        if count == 0 {
            self.give_back_all(shared);
        } else {
            self.give_back_late(shared);
        }
    }
}

/// A burst being taken, up to `slot` of the record at the cursor. Dropped only if a panic ends the
/// burst; the drop then counts the items taken.
struct Taken<'a, T> {
    shared: &'a Shared<T>,
    state: &'a mut State,
    slot: usize,
}

impl<T> Taken<'_, T> {
    /// Hands out the items before `end`, which are shown.
    #[inline(always)]
    fn hand_out(&mut self, lines: Lines<'_, T>, end: usize, mut each: impl FnMut(T)) {
        let line_index = self.state.cursor.line_index;
        while self.slot < end {
            // SAFETY: 1. There is one consumer, and it is borrowed mutably. 2. The slot is shown.
            // 3. The slot moves on before `each` can panic, so the item is taken once.
            let item = unsafe { lines.take(line_index, self.slot) };
            self.slot += 1;
            each(item);
        }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[cold]
    fn drop(&mut self) {
        self.state.cursor.slot = self.slot;
        self.state.give_back_late(self.shared);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.leave_consumer(self.state.cursor);
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
