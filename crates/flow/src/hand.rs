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
use crate::view::{Hash, View};

/// The hand of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hand {
    /// The slots of flows that a search has met and left in their places, a bit each. Those of vacant slots
    /// are 0.
    spared: u16,
    /// The slot where the next search begins.
    start: u16,
}

impl Hand {
    /// The slots that a search goes through: those of `occupied` whose flows were not spared.
    #[inline(always)]
    pub(crate) fn candidates(self, occupied: Mask) -> impl Iterator<Item = usize> {
        Mask::of_bits(occupied.bits() & !u32::from(self.spared)).iter_from(self.start.into())
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
        self.start = if slot + 1 == GROUP_SLOTS { 0 } else { slot as u16 + 1 };
    }
}

impl<K: Key, V> View<'_, K, V> {
    /// The next flow of a key's first group that is of rank 0, or whose time is up: the group, and its slot
    /// there. What is met before it is spared. Of a group of one to three flows, none: those that have just
    /// come would leave soon, and other groups have older ones.
    #[inline(always)]
    pub(crate) fn next_in_turn<L: Lanes>(
        self,
        hash: Hash,
        (now, idle_timeouts): (u32, &IdleTimeouts),
        mut rank: impl FnMut(&Entry<K, V>) -> Option<u8>,
    ) -> Option<(usize, usize)> {
        let (group, control) = self.first_group(hash);
        let occupied = L::occupied(control);
        if occupied.rest().rest().rest().is_empty() {
            return None;
        }
        let mut hand = self.hand(group);
        let mut found = None;
        for slot in hand.candidates(occupied) {
            let entry = self.entry(group * GROUP_SLOTS + slot);
            if entry.is_expired(now, idle_timeouts) || rank(entry) == Some(0) {
                found = Some(slot);
                break;
            }
            // Most of the time the first one leaves.
            hint::cold_path();
            hand.spare(slot);
        }
        if let Some(slot) = found {
            hand.go_past(slot);
        }
        self.change_hand(group, |it| *it = hand);
        found.map(|slot| (group, slot))
    }

    /// Prefetches the entry that [`next_in_turn`](Self::next_in_turn) will look at first.
    #[inline(always)]
    pub(crate) fn prefetch_next_in_turn<L: Lanes>(self, hash: Hash) {
        let (group, control) = self.first_group(hash);
        let occupied = L::occupied(control);
        if let Some(slot) = self.hand(group).candidates(occupied).next() {
            self.prefetch_entry(group * GROUP_SLOTS + slot);
        }
    }
}
