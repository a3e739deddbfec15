//! Eviction state of a group of a full table: where the next search continues.
//!
//! This is the clock algorithm for page replacement with its mark reversed: a marked flow was found
//! to be worth keeping, and is skipped from then on. So a flood of worthless flows evicts its own,
//! and each eviction reads one entry.

use crate::group::Mask;

/// The eviction state of a group: two sets of its slots, with a bit for each slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EvictionState {
    /// Slots whose flows a search has met and left in place. Vacant slots have no bit set.
    spared: u16,
    /// Slots that the next search visits first: those after the newest flow.
    ahead: u16,
}

impl EvictionState {
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
