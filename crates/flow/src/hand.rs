//! Eviction state of a group of a full table: where the next search continues.
//!
//! This is the clock algorithm for page replacement with its mark reversed: a marked flow was found
//! to be worth keeping, and is skipped from then on. So a flood of worthless flows evicts its own,
//! and each eviction reads one entry.

use crate::Key;
use crate::group::{GROUP_SLOTS, Lanes, Mask};
use crate::prefetch::prefetch;
use crate::view::{Hash, View};

/// The hand of a group: two sets of its slots, with a bit for each slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hand {
    /// Slots whose flows a search has met and left in place. Vacant slots have no bit set.
    spared: u16,
    /// Slots that the next search visits first: those after the newest flow.
    ahead: u16,
}

impl Hand {
    /// Returns the slot that a search visits next, out of those in `occupied` that were not spared.
    #[inline(always)]
    pub(crate) fn next(self, occupied: Mask) -> Option<usize> {
        let left = occupied.bits() & !u32::from(self.spared);
        let ahead = left & u32::from(self.ahead);
        Mask::of_bits(if ahead == 0 { left } else { ahead }).first()
    }

    /// Spares the flow of a slot: later searches skip it.
    #[inline(always)]
    pub(crate) fn spare(&mut self, slot: usize) {
        self.spared |= 1 << slot;
    }

    /// Clears the mark of a slot, because its flow is new or may be worth less than before.
    #[inline(always)]
    pub(crate) fn renew(&mut self, slot: usize) {
        self.spared &= !(1 << slot);
    }

    /// Makes the next search begin after this slot, which has the newest flow.
    #[inline(always)]
    pub(crate) fn go_past(&mut self, slot: usize) {
        self.ahead = !1 << slot;
    }
}

impl<K: Key, V> View<'_, K, V> {
    /// Prefetches the hand of a group.
    #[inline(always)]
    pub(crate) fn prefetch_hand(self, group: usize) {
        prefetch(self.hands.as_ptr().wrapping_add(group));
    }

    /// Prefetches the entry that a search for a flow to evict will visit first.
    #[inline(always)]
    pub(crate) fn prefetch_next_in_turn<L: Lanes>(self, hash: Hash) {
        let (group, control) = self.first_group(hash);
        let occupied = L::occupied(control);
        if let Some(slot) = self.hand(group).next(occupied) {
            self.prefetch_entry(group * GROUP_SLOTS + slot);
        }
    }
}
