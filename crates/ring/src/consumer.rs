//! The end that pops.

use std::fmt;
use std::ops::Range;

use crate::lines::{Cursor, Line, Reached, fetch, few, per_line};
use crate::shared::Shared;
use crate::sync::Arc;

/// The end of a ring that items are popped from. Made by [`ring`](crate::ring).
///
/// There is one for each ring: it may move to another thread, but isn't cloned.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    state: State,
}

/// What the consumer alone knows.
struct State {
    /// Where the next item comes from.
    cursor: Cursor,
    /// The items in the lines that were given back so far, as `shared` shows it.
    given_back: u64,
}

impl<T> Consumer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        let state = State { cursor: shared.first(), given_back: 0 };
        Self { shared, state }
    }

    /// Pops the oldest item, or nothing when the ring is empty.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let Self { shared, state } = self;
        let Cursor { line_index, slot, tag, .. } = state.cursor;
        let line = &shared.lines[line_index];
        if line.shown_count(tag) == slot {
            state.give_back_all(shared);
            return None;
        }
        // SAFETY: 1. There is one consumer, and it is borrowed mutably. 2. The slot is shown. 3. The
        // cursor moves on below, so the item is taken once.
        let item = unsafe { line.slots.take(slot) };
        state.cursor.slot = slot + 1;
        if slot + 1 == per_line::<T>() {
            shared.next_line(&mut state.cursor);
            fetch(&shared.lines, state.cursor.line_index);
            state.give_back_late(shared);
        }
        Some(item)
    }

    /// Pops up to `count_max` items, oldest first, hands each to `each`, and returns how many.
    ///
    /// When `each` panics, it has the item it was called with, and the following ones stay in the ring.
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
    pub fn pop_burst(&mut self, count_max: usize, mut each: impl FnMut(T)) -> usize {
        if count_max == 1 {
            return usize::from(self.pop().map(&mut each).is_some());
        }
        let Self { shared, state } = self;
        let popped = state.cursor.count();
        Taken { shared, state, popped }.hand_out(count_max, &mut each)
    }

    /// Items in the ring now: so many can be popped. The producer may add some while this returns.
    pub fn len(&self) -> usize {
        self.shared.count_from(self.state.cursor)
    }

    /// True when the ring holds nothing now.
    pub fn is_empty(&self) -> bool {
        let Cursor { line_index, slot, tag, .. } = self.state.cursor;
        self.shared.lines[line_index].known_count(tag) == slot
    }

    /// The most items that always fit: while fewer are in the ring, a push succeeds.
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// The most items that the ring ever holds at once: the capacity, and fewer than an eighth of it
    /// or than a line's items more, for what was taken but isn't given back yet.
    pub fn slot_count(&self) -> usize {
        self.shared.slot_count()
    }

    /// True when the producer was dropped. Items may still be in the ring.
    pub fn is_closed(&self) -> bool {
        self.shared.producer_gone()
    }

    /// True when the producer was dropped and nothing is left: no item will ever come.
    pub fn is_finished(&self) -> bool {
        // In this order: a producer that is gone pushes no more, so what is empty then stays so.
        self.is_closed() && self.is_empty()
    }
}

impl State {
    /// Gives lines back once an eighth of the ring is taken: the producer then finds much room with
    /// one look, and its line isn't fetched for every few items.
    #[inline(always)]
    fn give_back_late<T>(&mut self, shared: &Shared<T>) {
        if self.cursor.behind.wrapping_sub(self.given_back) >= shared.late_count as u64 {
            self.given_back = self.cursor.behind;
            shared.give_back(self.given_back);
        }
    }

    /// Gives all lines back, now that there is nothing else to do.
    #[inline(always)]
    fn give_back_all<T>(&mut self, shared: &Shared<T>) {
        if self.cursor.behind != self.given_back {
            self.given_back = self.cursor.behind;
            shared.give_back(self.given_back);
        }
    }

    /// Gives lines back after a burst of `count` items.
    #[inline(always)]
    fn settle<T>(&mut self, shared: &Shared<T>, count: usize) {
        if count == 0 {
            self.give_back_all(shared);
            return;
        }
        self.give_back_late(shared);
    }
}

/// A burst being taken. Its drop counts what was taken, and gives lines back.
struct Taken<'a, T> {
    shared: &'a Shared<T>,
    state: &'a mut State,
    /// The count of items popped before this burst.
    popped: u64,
}

impl<T> Taken<'_, T> {
    #[inline(always)]
    fn hand_out(mut self, count_max: usize, each: &mut impl FnMut(T)) -> usize {
        let lines = &self.shared.lines[..];
        let mut rest_count = count_max;
        while rest_count > 0 {
            let Cursor { line_index, slot, tag, .. } = self.state.cursor;
            let line = &lines[line_index];
            let end = slot + (line.shown_count(tag) - slot).min(rest_count);
            if slot == 0 && end == per_line::<T>() {
                // A count that the compiler knows.
                self.hand(line, 0..per_line::<T>(), &mut *each);
            } else {
                self.hand(line, slot..end, |item| few(|| each(item)));
            }
            rest_count -= end - slot;
            if end != per_line::<T>() {
                break;
            }
            self.state.cursor.next_line(lines.len(), per_line::<T>());
            fetch(lines, self.state.cursor.line_index);
        }
        count_max - rest_count
    }

    /// Hands out the items of `slots`, which start at the cursor and are shown.
    #[inline(always)]
    fn hand(&mut self, line: &Line<T>, slots: Range<usize>, mut each: impl FnMut(T)) {
        let mut reached = Reached { slot: slots.start, cursor: &mut self.state.cursor };
        while reached.slot < slots.end {
            // SAFETY: 1. There is one consumer, and it is borrowed mutably. 2. The slot is shown.
            // 3. The cursor moves on before `each` can panic, so the item is taken once.
            let item = unsafe { line.slots.take(reached.slot) };
            reached.slot += 1;
            each(item);
        }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // A panic of `each` may have left the cursor past the line's last slot.
        if self.state.cursor.slot == per_line::<T>() {
            self.shared.next_line(&mut self.state.cursor);
        }
        let count = self.state.cursor.count().wrapping_sub(self.popped) as usize;
        self.state.settle(self.shared, count);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.leave_consumer(self.state.cursor.count());
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
