//! A read-only view of a table's memory, for finding a key's flow.

use std::cell::Cell;

use crate::entry::Entry;
use crate::eviction_state::EvictionState;
use crate::group::{GROUP_SLOTS, Group, Lanes, Mask, tag};
#[cfg(test)]
use crate::lines;
use crate::prefetch::{prefetch, prefetch_all};
use crate::{HashSeed, Key};

/// A key's hash under the seed of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hash(pub(crate) u64);

impl Hash {
    /// Stands for the hash of no key: the default.
    pub(crate) const NONE: Self = Self(0);

    /// The byte that [`tag`] makes the flow's tag from: bits that no table of up to 2^24 groups
    /// uses to choose groups.
    #[inline(always)]
    pub(crate) fn byte(self) -> u8 {
        (self.0 >> 32) as u8
    }

    #[inline(always)]
    pub(crate) fn tag(self) -> u8 {
        tag(self.byte())
    }

    /// The slot of a group at which to begin looking for a flow to evict.
    #[inline(always)]
    pub(crate) fn start(self) -> usize {
        (usize::from(self.0 as u16) * GROUP_SLOTS) >> 16
    }
}

/// The parts of a [`Store`](crate::store::Store) in registers, so that they are not reloaded
/// through a pointer after each write to memory.
pub(crate) struct StoreView<'a, K, V> {
    /// Invariant: not empty, because the store has at least one group.
    pub(crate) control: &'a [Group],
    /// Invariant: one for each slot of each group.
    pub(crate) entries: &'a [Entry<K, V>],
    pub(crate) eviction_states: &'a [Cell<EvictionState>],
    pub(crate) seed: &'a HashSeed,
}

impl<K, V> Clone for StoreView<'_, K, V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for StoreView<'_, K, V> {}

impl<'a, K: Key, V> StoreView<'a, K, V> {
    #[inline(always)]
    pub(crate) fn hash(self, key: &K) -> Hash {
        Hash(key.hash(self.seed))
    }

    /// `known`, or the key's hash if `known` is [`Hash::NONE`].
    #[inline(always)]
    pub(crate) fn hash_unless(self, known: Hash, key: &K) -> Hash {
        debug_assert!(known == Hash::NONE || known == self.hash(key), "the hash of another key");
        if known == Hash::NONE { self.hash(key) } else { known }
    }

    /// The preferred group of a flow.
    #[inline(always)]
    pub(crate) fn first(self, hash: Hash) -> usize {
        (((hash.0 >> 32) * self.control.len() as u64) >> 32) as usize
    }

    /// The preferred group, and its number.
    #[inline(always)]
    pub(crate) fn first_group(self, hash: Hash) -> (usize, &'a Group) {
        let first = self.first(hash);
        #[cfg(test)]
        lines::note_group(first);
        debug_assert!(first < self.control.len());
        // SAFETY: 1. `first` is below the number of groups: it is the upper half of a product of
        // that number and one below 2^32. 2. There are groups, by the field's invariant.
        (first, unsafe { self.control.get_unchecked(first) })
    }

    /// The first slot of that group with the hash's tag. If there is none: whether flows of the
    /// group are elsewhere.
    #[inline(always)]
    pub(crate) fn first_match<L: Lanes>(self, hash: Hash) -> Result<usize, bool> {
        let (first, group) = self.first_group(hash);
        let slot = L::tagged(group, hash.byte()).first().ok_or(group.overflow() > 0)?;
        Ok(first * GROUP_SLOTS + slot)
    }

    /// The alternative group of a flow, which differs from the first if there are two.
    #[inline(always)]
    pub(crate) fn second(self, hash: Hash, first: usize) -> usize {
        let others = self.control.len() as u64 - 1;
        let step = 1 + ((u64::from(hash.0 as u32) * others) >> 32) as usize;
        let second = first + step;
        if second < self.control.len() { second } else { second - self.control.len() }
    }

    #[inline(always)]
    pub(crate) fn group(self, group: usize) -> &'a Group {
        #[cfg(test)]
        lines::note_group(group);
        &self.control[group]
    }

    #[inline(always)]
    pub(crate) fn entry(self, slot: usize) -> &'a Entry<K, V> {
        #[cfg(test)]
        lines::note_entry(slot);
        &self.entries[slot]
    }

    /// [`entry`](Self::entry), or `None` if there is no such slot.
    #[inline(always)]
    pub(crate) fn entry_if_any(self, slot: usize) -> Option<&'a Entry<K, V>> {
        let entry = self.entries.get(slot)?;
        #[cfg(test)]
        lines::note_entry(slot);
        Some(entry)
    }

    #[inline(always)]
    pub(crate) fn eviction_state(self, group: usize) -> EvictionState {
        #[cfg(test)]
        lines::note_eviction_state(group);
        self.eviction_states[group].get()
    }

    #[inline(always)]
    pub(crate) fn change_eviction_state(
        self,
        group: usize,
        change: impl FnOnce(&mut EvictionState),
    ) {
        let mut state = self.eviction_state(group);
        change(&mut state);
        self.eviction_states[group].set(state);
    }

    #[inline(always)]
    pub(crate) fn prefetch_group(self, group: usize) {
        prefetch(self.control.as_ptr().wrapping_add(group));
    }

    #[inline(always)]
    pub(crate) fn prefetch_entry(self, slot: usize) {
        prefetch_all(self.entries.as_ptr().wrapping_add(slot));
    }

    /// Prefetches the line of an entry that holds the table's notes about its flow.
    #[inline(always)]
    pub(crate) fn prefetch_entry_head(self, slot: usize) {
        prefetch(&raw const self.entries[slot]);
    }

    /// Prefetches the eviction state of a group.
    #[inline(always)]
    pub(crate) fn prefetch_eviction_state(self, group: usize) {
        prefetch(self.eviction_states.as_ptr().wrapping_add(group));
    }

    /// Prefetches the entry that a search for a flow to evict will visit first.
    #[inline(always)]
    pub(crate) fn prefetch_next_in_turn<L: Lanes>(self, hash: Hash) {
        let (group, control) = self.first_group(hash);
        let occupied = L::occupied(control);
        if let Some(slot) = self.eviction_state(group).next(occupied) {
            self.prefetch_entry(group * GROUP_SLOTS + slot);
        }
    }

    /// The slot of `key`, and its entry.
    #[inline(always)]
    pub(crate) fn find<L: Lanes>(self, key: &K, hash: Hash) -> Option<(usize, &'a Entry<K, V>)> {
        let first = self.first(hash);
        let group = self.group(first);
        let found = self.find_in(first, L::tagged(group, hash.byte()), key);
        if found.is_some() || group.overflow() == 0 {
            return found;
        }
        let second = self.second(hash, first);
        self.find_in(second, L::tagged(self.group(second), hash.byte()), key)
    }

    #[inline(always)]
    fn find_in(self, group: usize, matches: Mask, key: &K) -> Option<(usize, &'a Entry<K, V>)> {
        matches
            .into_iter()
            .map(|slot| group * GROUP_SLOTS + slot)
            .map(|slot| (slot, self.entry(slot)))
            .find(|(_, entry)| entry.key() == Some(key))
    }
}
