//! A table's memory, to look at: where a key's flow may be, and finding it there.

use crate::Key;
use crate::entry::Entry;
use crate::group::{GROUP_SLOTS, Group, Lanes};
#[cfg(test)]
use crate::lines;
use crate::prefetch::{prefetch, prefetch_all};

/// A key's hash under the seed of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(u64);

impl Hash {
    /// 1 to 255. Bits that no table of up to 2^24 groups takes into account when it chooses groups.
    #[inline(always)]
    pub(crate) fn tag(self) -> u8 {
        let tag = (self.0 >> 32) as u8;
        tag + u8::from(tag == 0)
    }

    /// Where in a group to begin looking for a flow that may leave.
    #[inline(always)]
    pub(crate) fn start(self) -> usize {
        (usize::from(self.0 as u16) * GROUP_SLOTS) >> 16
    }
}

/// The parts of a [`Store`](crate::store::Store), in as many registers: not reached through a
/// pointer again after each write to memory.
pub(crate) struct View<'a, K, V> {
    pub(crate) control: &'a [Group],
    pub(crate) entries: &'a [Entry<K, V>],
    pub(crate) seed: u64,
}

impl<K, V> Clone for View<'_, K, V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for View<'_, K, V> {}

impl<'a, K: Key, V> View<'a, K, V> {
    #[inline(always)]
    pub(crate) fn hash(self, key: &K) -> Hash {
        Hash(key.hash(self.seed))
    }

    /// The group where a flow goes if it can.
    #[inline(always)]
    pub(crate) fn first(self, hash: Hash) -> usize {
        (((hash.0 >> 32) * self.control.len() as u64) >> 32) as usize
    }

    /// The group where it goes else: another one, where there are two.
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

    #[inline(always)]
    pub(crate) fn prefetch_group(self, group: usize) {
        prefetch(self.control.as_ptr().wrapping_add(group));
    }

    #[inline(always)]
    pub(crate) fn prefetch_entry(self, slot: usize) {
        prefetch_all(self.entries.as_ptr().wrapping_add(slot));
    }

    /// As [`prefetch_entry`](Self::prefetch_entry) unless `is_none`, without a branch: then it asks
    /// for what was just read.
    #[inline(always)]
    pub(crate) fn prefetch_entry_or(self, is_none: bool, slot: usize, group: &Group) {
        let entry: *const Entry<K, V> = self.entries.as_ptr().wrapping_add(slot);
        let group: *const Group = group;
        prefetch_all(std::hint::select_unpredictable(is_none, group.cast(), entry));
    }

    /// The line of an entry that has what the table notes of its flow.
    #[inline(always)]
    pub(crate) fn prefetch_entry_head(self, slot: usize) {
        prefetch(&raw const self.entries[slot]);
    }

    /// The slot of `key`, and its entry.
    #[inline(always)]
    pub(crate) fn find<L: Lanes>(self, key: &K, hash: Hash) -> Option<(usize, &'a Entry<K, V>)> {
        let first = self.first(hash);
        let found = self.find_in::<L>(first, key, hash);
        if found.is_some() || self.group(first).overflow() == 0 {
            return found;
        }
        self.find_in::<L>(self.second(hash, first), key, hash)
    }

    #[inline(always)]
    fn find_in<L: Lanes>(
        self,
        group: usize,
        key: &K,
        hash: Hash,
    ) -> Option<(usize, &'a Entry<K, V>)> {
        L::matches(self.group(group), hash.tag())
            .into_iter()
            .map(|slot| group * GROUP_SLOTS + slot)
            .map(|slot| (slot, self.entry(slot)))
            .find(|(_, entry)| entry.key() == Some(key))
    }
}
