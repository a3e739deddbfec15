//! Going through all flows of a table, a few at a time.

use crate::Key;
use crate::group::{GROUP_SLOTS, Group, Lanes, Mask, Native};
use crate::table::Table;

/// Where a [`scan`](Table::scan) goes on; the beginning by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    slot: usize,
}

impl<K: Key, V> Table<K, V> {
    /// Looks at the next `budget` places of the table, at each at most once, takes out the flows
    /// whose time is up, hands each to `on_expire`, and returns how many.
    ///
    /// The next call goes on where this one ended. There are [`slot_count`](Self::slot_count) places,
    /// so a budget of `b` in each of `n` calls a second visits every flow within
    /// `slot_count / (b × n)` seconds, or in each step of [`STEP_NS`](crate::STEP_NS) if that is longer: no place is
    /// looked at twice in one, unless the budget is all of them. 15 places a burst of packets cost less than a nanosecond
    /// a packet; what the next call will look at, 15 places at most, is fetched in the meantime.
    ///
    /// Where `on_expire` panics, its flow has left the table, and the others are still in it.
    pub fn age(
        &mut self,
        now: impl Into<u64>,
        budget: usize,
        mut on_expire: impl FnMut(K, V),
    ) -> usize {
        let now = self.clock.advance(now.into());
        if budget >= self.slot_count() {
            self.age_left_count = self.slot_count();
        } else if self.age_left_count == 0 {
            // What is over in a step was so at its beginning; a flow whose class has changed since then goes in the next.
            if self.is_empty() || now == self.age_step {
                return 0;
            }
            (self.age_left_count, self.age_step) = (self.slot_count(), now);
        }
        let (mut left_count, mut expired_count) = (budget.min(self.age_left_count), 0);
        while left_count > 0 {
            let (group, start) = (self.age_slot / GROUP_SLOTS, self.age_slot % GROUP_SLOTS);
            let end = GROUP_SLOTS.min(start + left_count);
            let occupied = Native::occupied(self.store.view().group(group));
            for slot in occupied.range(start, end) {
                let slot = group * GROUP_SLOTS + slot;
                if self.store.view().entry(slot).is_expired(now, &self.idle_timeouts)
                    && let Some(flow) = self.store.unlink(slot)
                {
                    self.stats.len -= 1;
                    self.stats.expired_count += 1;
                    self.age_slot = self.slot_after(slot);
                    expired_count += 1;
                    on_expire(flow.key, flow.value);
                }
            }
            self.age_slot = self.slot_after(group * GROUP_SLOTS + end - 1);
            left_count -= end - start;
            self.age_left_count -= end - start;
        }
        self.prefetch_next(budget);
        expired_count
    }

    fn slot_after(&self, slot: usize) -> usize {
        if slot + 1 == self.slot_count() { 0 } else { slot + 1 }
    }

    /// Asks for what the next call of `age` will look at.
    fn prefetch_next(&self, budget: usize) {
        self.prefetch_entries(self.age_slot, budget);
        self.store.view().prefetch_group(self.age_slot / GROUP_SLOTS);
    }

    /// Asks for the entries in the next places from `start` on, as many as a group has at most.
    fn prefetch_entries(&self, start: usize, budget: usize) {
        let end = self.slot_count().min(start + budget.min(GROUP_SLOTS));
        for slot in start..end {
            self.store.view().prefetch_entry_head(slot);
        }
    }

    /// Shows the flows of the next `budget` places to `visit`, including those that have expired
    /// but were not cleared yet, and returns where to go on, or none when this was the end.
    ///
    /// Bounded steps between which the table may change: a flow that is there from the first to the last
    /// is shown once, but one that moves in the meantime may be shown twice or not at all.
    ///
    /// ```
    /// # use hotloop_arena::Arena;
    /// # use hotloop_flow::{Config, Cursor, Table};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut table = Table::new(Arena::on(None)?, Config::new(100, u64::MAX))?;
    /// for number in 0..100 {
    ///     table.insert([number], number * 2, 0_u64)?;
    /// }
    /// let (mut sum, mut next) = (0, Some(Cursor::default()));
    /// while let Some(cursor) = next {
    ///     next = table.scan(cursor, 15, |_key, value| sum += value);
    ///     // Between the steps, packets.
    /// }
    /// assert_eq!(sum, 99 * 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(
        &self,
        cursor: Cursor,
        budget: usize,
        mut visit: impl FnMut(&K, &V),
    ) -> Option<Cursor> {
        let start = cursor.slot.min(self.slot_count());
        let end = self.slot_count().min(start.saturating_add(budget));
        for entry in &self.store.view().entries[start..end] {
            if let (Some(key), Some(value)) = (entry.key(), entry.value()) {
                visit(key, value);
            }
        }
        (end < self.slot_count()).then_some(Cursor { slot: end })
    }

    /// As [`scan`](Self::scan), and the values can be changed. `visit` also gets for how long the flow had no packet, as
    /// [`peek_silent`](Self::peek_silent) returns it. No flow counts as seen. What the next call will look at, 15 places at
    /// most, is fetched in the meantime.
    pub fn scan_mut(
        &mut self,
        now: impl Into<u64>,
        cursor: Cursor,
        budget: usize,
        mut visit: impl FnMut(&K, &mut V, u64),
    ) -> Option<Cursor> {
        let now = self.clock.peek(now.into());
        let start = cursor.slot.min(self.slot_count());
        let end = self.slot_count().min(start.saturating_add(budget));
        for entry in self.store.entries_mut(start..end) {
            let silent_ns = entry.silent_ns(now);
            if let (Some(key), Some(value)) = (entry.key().copied(), entry.value_mut()) {
                visit(&key, value, silent_ns);
            }
        }
        self.prefetch_entries(end, budget);
        (end < self.slot_count()).then_some(Cursor { slot: end })
    }

    /// All flows in no particular order, including those that have expired but were not
    /// cleared yet. [`scan`](Self::scan) does it in steps.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (view, mut start) = (self.store.view(), 0);
        std::iter::from_fn(move || {
            let slot = next_occupied(view.control, start)?;
            start = slot + 1;
            let entry = view.entry(slot);
            entry.key().zip(entry.value())
        })
    }
}

/// The first occupied slot at or after `start`. It is not generic, so a debug build can optimise it with this crate.
fn next_occupied(control: &[Group], start: usize) -> Option<usize> {
    let (mut group, slot) = (start / GROUP_SLOTS, start % GROUP_SLOTS);
    let mut occupied = Native::occupied(control.get(group)?).range(slot, GROUP_SLOTS);
    while occupied.is_empty() {
        group += 1;
        occupied = Native::occupied(control.get(group)?);
    }
    Some(group * GROUP_SLOTS + occupied.first()?)
}

impl Mask {
    /// The slots from `start` to before `end`.
    fn range(self, start: usize, end: usize) -> Self {
        Self::of_bits(self.bits() & (u32::MAX << start) & !(u32::MAX << end))
    }
}
