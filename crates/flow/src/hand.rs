//! Where the search for a flow to leave goes on in a group of a full table.
//!
//! This is the clock algorithm for page replacement with its mark reversed: a marked flow was found to be worth
//! keeping, and is skipped from then on. So a flood of worthless flows evicts its own, and each eviction reads
//! one entry.

use crate::Key;
use crate::group::{GROUP_SLOTS, Lanes, Mask};
use crate::prefetch::prefetch;
use crate::view::{Hash, View};

/// The hand of a group: two sets of its slots, with a bit for each slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hand {
    /// Slots whose flows a search has met and left in place. Vacant slots have no bit set.
    spared: u16,
    /// Slots that the next search looks at before all others: those after the flow that came last.
    ahead: u16,
}

impl Hand {
    /// Returns the slot that a search looks at next, out of those in `occupied` that were not spared.
    #[inline(always)]
    pub(crate) fn next(self, occupied: Mask) -> Option<usize> {
        let left = occupied.bits() & !u32::from(self.spared);
        let ahead = left & u32::from(self.ahead);
        Mask::of_bits(if ahead == 0 { left } else { ahead }).first()
    }

    /// The flow of a slot stays: later searches leave it out.
    #[inline(always)]
    pub(crate) fn spare(&mut self, slot: usize) {
        self.spared |= 1 << slot;
    }

    /// The flow of a slot is a new one, or may be worth less than it was: searches look at it again.
    #[inline(always)]
    pub(crate) fn renew(&mut self, slot: usize) {
        self.spared &= !(1 << slot);
    }

    /// The flow of a slot has just come: the next search begins after it.
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

    /// Prefetches the entry that a search for a flow to leave will look at first.
    #[inline(always)]
    pub(crate) fn prefetch_next_in_turn<L: Lanes>(self, hash: Hash) {
        let (group, control) = self.first_group(hash);
        let occupied = L::occupied(control);
        if let Some(slot) = self.hand(group).next(occupied) {
            self.prefetch_entry(group * GROUP_SLOTS + slot);
        }
    }
}
