//! Visiting all flows of a table, a few at a time.

use hotloop_packet::Instant;

use crate::Key;
use crate::group::{GROUP_SLOTS, Group, Lanes, Mask, Native};
use crate::table::Table;

/// The position at which a [`scan`](Table::scan) continues; the default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    slot: usize,
}

/// Number of groups that a step of a [`scan`](Table::scan) looks at.
const SCAN_GROUPS: usize = 16;

impl<K: Key, V> Table<K, V> {
    /// Visits the next `budget` places of the table, removes expired flows, passes each to
    /// `on_expire`, and returns their number.
    ///
    /// The next call continues where this one ended. There are [`slot_count`](Self::slot_count)
    /// places, so a budget of `b` in each of `n` calls a second visits every flow within
    /// `slot_count / (b × n)` seconds, or once per step of [`STEP_NS`](crate::STEP_NS) if that is
    /// longer: no place is visited twice in a step, unless the budget covers all of them. 15 places
    /// per burst of packets cost less than a nanosecond a packet. This prefetches the places for
    /// the next call, at most 15.
    ///
    /// If `on_expire` panics, its flow has left the table, and the others are still there.
    pub fn expire(
        &mut self,
        now: Instant,
        budget: usize,
        mut on_expire: impl FnMut(K, V),
    ) -> usize {
        let now = self.clock.advance(now);
        if budget >= self.slot_count() {
            self.expire_left_count = self.slot_count();
        } else if self.expire_left_count == 0 {
            // A timeout that is over at any time in a step is over from its beginning; a flow whose
            // class has changed since then leaves in the next step.
            if self.is_empty() || now == self.expire_step {
                return 0;
            }
            (self.expire_left_count, self.expire_step) = (self.slot_count(), now);
        }
        let (mut left_count, mut expired_count) = (budget.min(self.expire_left_count), 0);
        while left_count > 0 {
            let (group, start) = (self.expire_slot / GROUP_SLOTS, self.expire_slot % GROUP_SLOTS);
            let end = GROUP_SLOTS.min(start + left_count);
            let occupied = Native::occupied(self.store.view().group(group));
            for slot in occupied.range(start, end) {
                let slot = group * GROUP_SLOTS + slot;
                if self.store.view().entry(slot).is_expired(now, &self.idle_timeouts)
                    && let Some(flow) = self.store.unlink(slot)
                {
                    self.stats.len -= 1;
                    self.stats.expired_count += 1;
                    self.expire_slot = self.slot_after(slot);
                    expired_count += 1;
                    on_expire(flow.key, flow.value);
                }
            }
            self.expire_slot = self.slot_after(group * GROUP_SLOTS + end - 1);
            left_count -= end - start;
            self.expire_left_count -= end - start;
        }
        self.prefetch_next(budget);
        expired_count
    }

    fn slot_after(&self, slot: usize) -> usize {
        if slot + 1 == self.slot_count() { 0 } else { slot + 1 }
    }

    /// Prefetches the places that the next call of `expire` will visit.
    fn prefetch_next(&self, budget: usize) {
        self.prefetch_entries(self.expire_slot, budget);
        self.store.view().prefetch_group(self.expire_slot / GROUP_SLOTS);
    }

    /// Prefetches the entries in the next places from `start` on, at most one group's number of
    /// them.
    fn prefetch_entries(&self, start: usize, budget: usize) {
        let end = self.slot_count().min(start + budget.min(GROUP_SLOTS));
        for slot in start..end {
            self.store.view().prefetch_entry_head(slot);
        }
    }

    /// Passes the next flows to `visit`, at most `budget`, including expired flows that were not
    /// cleared yet. Returns where to continue, or `None` at the end.
    ///
    /// A call looks through at most 240 places, so in a nearly empty table it may pass fewer flows.
    /// Empty places cost little: a cache line shows which of 60 are taken. This prefetches the
    /// places for the next call, at most 15.
    ///
    /// The table may change between these bounded steps: a flow that is there from the first to the
    /// last step is visited once, but one that moves in between may be visited twice or not at all.
    ///
    /// ```
    /// # use hotloop_arena::Arena;
    /// # use hotloop_flow::{Config, Cursor, Table};
    /// # use hotloop_packet::Instant;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut table = Table::new(Arena::on(None)?, Config::new(100, u64::MAX))?;
    /// for number in 0..100 {
    ///     table.insert([number], number * 2, Instant::from_ns(0), &mut |_, _| ())?;
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
        let (view, mut slot) = (self.store.view(), cursor.slot);
        let end = view.control.len().min(slot / GROUP_SLOTS + SCAN_GROUPS);
        for _ in 0..budget {
            let Some(occupied) = next_occupied(&view.control[..end], slot) else {
                slot = end * GROUP_SLOTS;
                break;
            };
            slot = occupied + 1;
            let entry = view.entry(occupied);
            if let (Some(key), Some(value)) = (entry.key(), entry.value()) {
                visit(key, value);
            }
        }
        self.prefetch_entries(slot, budget);
        (slot < self.slot_count()).then_some(Cursor { slot })
    }

    /// Passes the flows of the next `budget` places to `visit`, which may change the values and gets
    /// the time since the flow's last packet, as returned by [`peek`](Self::peek). Returns where to
    /// continue, or `None` at the end. Doesn't mark flows as seen.
    ///
    /// For walks that pass through all of [`slot_count`](Self::slot_count) in a given time;
    /// otherwise as [`scan`](Self::scan). Prefetches the places for the next call, at most 15.
    pub fn visit_places(
        &mut self,
        now: Instant,
        cursor: Cursor,
        budget: usize,
        mut visit: impl FnMut(&K, &mut V, u64),
    ) -> Option<Cursor> {
        let now = self.clock.peek(now);
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

    /// All flows in no particular order, including expired flows that were not cleared yet.
    /// [`scan`](Self::scan) visits them in steps.
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

/// The first occupied slot at or after `start`. Not generic, so that a debug build can optimise it
/// with this crate.
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
