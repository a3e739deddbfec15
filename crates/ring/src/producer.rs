//! The end that pushes.

use std::fmt;
use std::ops::Range;

use crate::lines::{Cursor, Line, Reached, claim, few, per_line};
use crate::shared::Shared;
use crate::sync::Arc;

/// The end of a ring that items are pushed into. Made by [`ring`](crate::ring).
///
/// There is one for each ring: it may move to another thread, but isn't cloned.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    state: State,
}

/// What the producer alone knows.
struct State {
    /// Where the next item goes. Slots before it are shown, outside of a push.
    cursor: Cursor,
    /// Single pushes into the cursor's line up to before this slot need no look at anything: the
    /// line doesn't end, and there is room.
    stop: usize,
    /// What the count of items pushed may reach: `slot_count` past those given back, as last read.
    limit: u64,
}

impl<T> Producer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        let state = State { cursor: shared.first(), stop: 0, limit: shared.slot_count() as u64 };
        Self { shared, state }
    }

    /// Pushes one item.
    ///
    /// # Errors
    /// Gives the item back when the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        let Self { shared, state } = self;
        let slot = state.cursor.slot;
        if slot + 1 < state.stop {
            state.put(shared, item);
            state.cursor.slot = slot + 1;
            return Ok(());
        }
        state.push_at_stop(shared, item)
    }

    /// Pushes up to `count` items, each from a call of `next`, and returns how many: as many as
    /// there is room for. `next` is called exactly that often, so no item is left over.
    ///
    /// The consumer sees the items of a cache line at once (seven of 8 bytes). When `next` panics,
    /// it sees all items before.
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
        if count == 1 && self.state.cursor.slot + 1 < self.state.stop {
            self.state.put(&self.shared, next());
            self.state.cursor.slot += 1;
            return 1;
        }
        let room_count = self.room_for(count);
        if room_count == 0 {
            return 0;
        }
        let Self { shared, state } = self;
        Written { shared, state }.fill(room_count, &mut next);
        room_count
    }

    /// How many of `wanted_count` items there is room for now. That room stays until it is pushed
    /// into: the consumer can only add to it.
    ///
    /// Reads what the consumer gave back only when the room last seen is too small.
    #[inline(always)]
    pub fn room_for(&mut self, wanted_count: usize) -> usize {
        if self.state.room() < wanted_count {
            self.state.look_for_room(&self.shared);
        }
        self.state.room().min(wanted_count)
    }

    /// How many items there is room for now, from what the consumer gave back so far. With the items
    /// in the ring that is [`capacity`](Self::capacity) at least.
    pub fn free_count(&mut self) -> usize {
        self.state.look_for_room(&self.shared);
        self.state.room()
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

    /// True when the consumer was dropped. Pushes still work while there is room, but nobody takes
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

    /// Puts an item into the cursor's slot, for which there is room, and shows it.
    #[inline(always)]
    fn put<T>(&self, shared: &Shared<T>, item: T) {
        let Cursor { line_index, slot, tag, .. } = self.cursor;
        let line = &shared.lines[line_index];
        // SAFETY: 1. There is one producer, and its state is borrowed. 2. There is room, so the line
        // was given back, and the slot at the cursor isn't shown yet.
        unsafe { line.slots.write(slot, item) };
        line.show(tag, slot + 1);
    }

    /// Pushes where a line or the known room may end.
    #[inline(never)]
    fn push_at_stop<T>(&mut self, shared: &Shared<T>, item: T) -> Result<(), T> {
        if self.room() == 0 {
            self.look_for_room(shared);
            if self.room() == 0 {
                return Err(item);
            }
        }
        self.put(shared, item);
        self.cursor.slot += 1;
        if self.cursor.slot == per_line::<T>() {
            shared.next_line(&mut self.cursor);
            claim(&shared.lines, self.cursor.line_index);
        }
        self.settle::<T>();
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn look_for_room<T>(&mut self, shared: &Shared<T>) {
        self.limit = shared.given_back().wrapping_add(shared.slot_count() as u64);
    }

    /// Settles where the next single push has to look again.
    #[inline(always)]
    fn settle<T>(&mut self) {
        let room = self.limit.wrapping_sub(self.cursor.behind);
        self.stop = room.min(per_line::<T>() as u64) as usize;
    }
}

/// A burst being written. Its drop shows what was written, so a panic in between loses nothing.
struct Written<'a, T> {
    shared: &'a Shared<T>,
    state: &'a mut State,
}

impl<T> Written<'_, T> {
    /// `room_count` is what `room_for` returned.
    #[inline(always)]
    fn fill(mut self, room_count: usize, next: &mut impl FnMut() -> T) {
        let lines = &self.shared.lines[..];
        let mut rest_count = room_count;
        loop {
            let Cursor { line_index, slot, tag, .. } = self.state.cursor;
            let line = &lines[line_index];
            let to_end_count = per_line::<T>() - slot;
            if rest_count < to_end_count {
                self.put(line, slot..slot + rest_count, || few(&mut *next));
                return;
            }
            if slot == 0 {
                // A count that the compiler knows.
                self.put(line, 0..per_line::<T>(), &mut *next);
            } else {
                self.put(line, slot..per_line::<T>(), || few(&mut *next));
            }
            line.show(tag, per_line::<T>());
            self.state.cursor.next_line(lines.len(), per_line::<T>());
            claim(lines, self.state.cursor.line_index);
            rest_count -= to_end_count;
        }
    }

    /// Puts an item into each of `slots`, which start at the cursor: there is room for them.
    #[inline(always)]
    fn put(&mut self, line: &Line<T>, slots: Range<usize>, mut next: impl FnMut() -> T) {
        let mut reached = Reached { slot: slots.start, cursor: &mut self.state.cursor };
        while reached.slot < slots.end {
            let item = next();
            // SAFETY: 1. There is one producer, and it is borrowed mutably. 2. There is room, so the
            // line was given back, and the slot isn't shown yet.
            unsafe { line.slots.write(reached.slot, item) };
            reached.slot += 1;
        }
    }
}

impl<T> Drop for Written<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        let Cursor { line_index, slot, tag, .. } = self.state.cursor;
        if slot != 0 {
            self.shared.lines[line_index].show(tag, slot);
        }
        self.state.settle::<T>();
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
