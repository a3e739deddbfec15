//! Where the search for a flow to leave goes on in a group of a full table.
//!
//! This is the clock algorithm for page replacement with its mark reversed: a marked flow was found to be worth
//! keeping, and is skipped from then on. So a flood of worthless flows evicts its own, and each eviction reads
//! one entry.

use std::hint;

use crate::Key;
use crate::clock::IdleTimeouts;
use crate::entry::Entry;
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

/// The flow that leaves next.
#[derive(Clone, Copy)]
pub(crate) struct NextInTurn {
    pub(crate) group: usize,
    pub(crate) slot_of_group: usize,
    /// Whether its time is up.
    pub(crate) is_expired: bool,
}

impl<K: Key, V> View<'_, K, V> {
    /// Returns the next flow of a key's first group that has rank 0 or has expired, and spares the flows met
    /// before it. Returns `None` for a group of one to three flows: new ones would soon leave again, and other
    /// groups have older ones.
    #[inline(always)]
    pub(crate) fn next_in_turn<L: Lanes>(
        self,
        hash: Hash,
        (now, idle_timeouts): (u32, &IdleTimeouts),
        mut rank: impl FnMut(&Entry<K, V>) -> Option<u8>,
    ) -> Option<NextInTurn> {
        let (group, control) = self.first_group(hash);
        let occupied = L::occupied(control);
        if occupied.rest().rest().rest().is_empty() {
            return None;
        }
        let mut hand = self.hand(group);
        let mut found = None;
        while let Some(slot_of_group) = hand.next(occupied) {
            let entry = self.entry(group * GROUP_SLOTS + slot_of_group);
            let is_expired = entry.is_expired(now, idle_timeouts);
            if is_expired || rank(entry) == Some(0) {
                hand.go_past(slot_of_group);
                found = Some(NextInTurn { group, slot_of_group, is_expired });
                break;
            }
            // Most of the time the first one leaves.
            hint::cold_path();
            hand.spare(slot_of_group);
        }
        self.change_hand(group, |it| *it = hand);
        found
    }

    /// Prefetches the hand of a group.
    #[inline(always)]
    pub(crate) fn prefetch_hand(self, group: usize) {
        prefetch(self.hands.as_ptr().wrapping_add(group));
    }

    /// Prefetches the entry that [`next_in_turn`](Self::next_in_turn) will look at first.
    #[inline(always)]
    pub(crate) fn prefetch_next_in_turn<L: Lanes>(self, hash: Hash) {
        let (group, control) = self.first_group(hash);
        let occupied = L::occupied(control);
        if let Some(slot) = self.hand(group).next(occupied) {
            self.prefetch_entry(group * GROUP_SLOTS + slot);
        }
    }
}
