//! Looking up a burst of keys.

use std::hint::select_unpredictable;

use crate::Key;
use crate::clock::IdleTimeouts;
use crate::entry::Entry;
use crate::group::{GROUP_SLOTS, Lanes, Mask};
use crate::table::{BURST_KEYS_MAX, Handle};
use crate::view::{Hash, View};
use crate::window::{List, room};

/// What a lookup has found so far, by place in the burst.
pub(crate) type Found = [Option<Handle>; BURST_KEYS_MAX];

/// A lookup of keys at one time.
pub(crate) struct Lookup<'a, K, V> {
    pub(crate) view: View<'a, K, V>,
    pub(crate) now: u32,
    pub(crate) idle_timeouts: &'a IdleTimeouts,
    /// Whether the table is in the cache, as far as its size tells.
    pub(crate) is_cached: bool,
}

/// A key to be found.
#[derive(Clone, Copy)]
struct Wanted<K> {
    key: K,
    hash: Hash,
    /// Its first group.
    group: u32,
    /// Its place in the burst.
    index: u32,
}

/// A slot where a key's flow may be.
#[derive(Clone, Copy)]
struct Candidate {
    /// Which of the keys.
    number: u32,
    slot: u32,
}

/// A key that may have other candidates.
#[derive(Clone, Copy)]
struct Unusual {
    /// Which of the keys.
    number: u32,
    /// The slots of its first group that match, but for the first. Where there are none, there are
    /// no matches there at all.
    rest: Mask,
}

impl<K: Key, V> Lookup<'_, K, V> {
    /// [`burst`](Self::burst), compiled for AVX2.
    ///
    /// # Safety
    /// The processor has AVX2, BMI1, BMI2 and LZCNT.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    pub(crate) fn burst_avx2<I>(self, keys: I, found: &mut Found)
    where
        I: IntoIterator,
        I::Item: Into<Option<K>>,
    {
        self.burst::<crate::group::Native, I>(keys, found);
    }

    /// Looks up all of `keys`, 64 at most.
    #[inline(always)]
    pub(crate) fn burst<L: Lanes, I>(self, keys: I, found: &mut Found)
    where
        I: IntoIterator,
        I::Item: Into<Option<K>>,
    {
        let mut keys = keys.into_iter();
        let count = if self.is_cached {
            self.one_by_one::<L, _>(&mut keys, found)
        } else {
            self.in_stages::<L, _>(&mut keys, found)
        };
        let is_whole = count < BURST_KEYS_MAX || keys.next().is_none();
        assert!(is_whole, "more than {BURST_KEYS_MAX} keys in a burst");
    }

    #[inline(always)]
    fn one_by_one<L: Lanes, I>(&self, keys: &mut I, found: &mut Found) -> usize
    where
        I: Iterator,
        I::Item: Into<Option<K>>,
    {
        let mut count = 0;
        for (found, key) in found.iter_mut().zip(keys) {
            *found = key.into().and_then(|key| self.one::<L>(&key));
            count += 1;
        }
        found[count..].fill(None);
        count
    }

    /// All control groups are asked for first, then all entries: the processor waits for the memory
    /// of many at once. No stage branches on what it finds, but for what is rare.
    #[inline(always)]
    fn in_stages<L: Lanes, I>(&self, keys: &mut I, found: &mut Found) -> usize
    where
        I: Iterator,
        I::Item: Into<Option<K>>,
    {
        found.fill(None);
        let (mut wanted, mut candidates) = (room(), room());
        let (mut wanted, mut candidates) = (List::new(&mut wanted), List::new(&mut candidates));
        let count = self.hash_keys(keys, &mut wanted);
        let wanted = wanted.notes();
        let (mut unusual, mut others) = (room(), room());
        let (mut unusual, mut others) = (List::new(&mut unusual), List::new(&mut others));
        self.match_tags::<L>(wanted, &mut candidates, &mut unusual);
        // What is asked for late has come when half of the rest is done.
        self.prefetch_unusual(wanted, unusual.notes());
        let half = candidates.notes().len() / 2;
        self.compare_keys(wanted, &candidates.notes()[..half], &mut others, found);
        self.match_second_tags::<L>(wanted, unusual.notes(), &mut candidates);
        self.compare_keys(wanted, &candidates.notes()[half..], &mut others, found);
        for &number in others.notes() {
            let wanted = &wanted[number as usize];
            found[wanted.index as usize] = self.other_than::<L>(wanted.key, wanted.hash);
        }
        count
    }

    /// Asks for the group of each key.
    #[inline(always)]
    fn hash_keys<I>(&self, keys: &mut I, wanted: &mut List<'_, Wanted<K>>) -> usize
    where
        I: Iterator,
        I::Item: Into<Option<K>>,
    {
        let mut count = 0;
        for key in keys.take(BURST_KEYS_MAX) {
            if let Some(key) = key.into() {
                let hash = self.view.hash(&key);
                let group = self.view.first(hash);
                self.view.prefetch_group(group);
                wanted.push(Wanted { key, hash, group: group as u32, index: count });
            }
            count += 1;
        }
        count as usize
    }

    /// Finds the first slot with the tag of each key, and asks for its entry. Notes which keys are
    /// unusual: those with another match, and those without one that may be in their second groups.
    #[inline(always)]
    fn match_tags<L: Lanes>(
        &self,
        wanted: &[Wanted<K>],
        candidates: &mut List<'_, Candidate>,
        unusual: &mut List<'_, Unusual>,
    ) {
        let view = self.view;
        for (number, wanted) in (0_u32..).zip(wanted) {
            let group = view.group(wanted.group as usize);
            let matches = L::matches(group, wanted.hash.tag());
            let slot = wanted.group * GROUP_SLOTS as u32 + matches.first_or_any() as u32;
            candidates.push_if(!matches.is_empty(), Candidate { number, slot });
            view.prefetch_entry_or(matches.is_empty(), slot as usize, group);
            let rest = matches.rest();
            let overflow = group.overflow().into();
            let more = select_unpredictable(matches.is_empty(), overflow, rest.bits());
            unusual.push_if(more != 0, Unusual { number, rest });
        }
    }

    /// Asks for the entries of second matches, or else for second groups.
    #[inline(always)]
    fn prefetch_unusual(&self, wanted: &[Wanted<K>], unusual: &[Unusual]) {
        let view = self.view;
        for &Unusual { number, rest } in unusual {
            let wanted = &wanted[number as usize];
            let slot = wanted.group * GROUP_SLOTS as u32 + rest.first_or_any() as u32;
            let second = view.second(wanted.hash, wanted.group as usize);
            view.prefetch_entry_or(rest.is_empty(), slot as usize, &view.control[second]);
        }
    }

    /// Finds the first slot with the tag of each key in its second group, for keys that have none
    /// in their first.
    #[inline(always)]
    fn match_second_tags<L: Lanes>(
        &self,
        wanted: &[Wanted<K>],
        unusual: &[Unusual],
        candidates: &mut List<'_, Candidate>,
    ) {
        let view = self.view;
        for &Unusual { number, rest } in unusual {
            let wanted = &wanted[number as usize];
            let second = view.second(wanted.hash, wanted.group as usize);
            let group = view.group(second);
            let matches = L::matches(group, wanted.hash.tag());
            let slot = (second * GROUP_SLOTS + matches.first_or_any()) as u32;
            let is_candidate = rest.is_empty() & !matches.is_empty();
            candidates.push_if(is_candidate, Candidate { number, slot });
            view.prefetch_entry_or(!is_candidate, slot as usize, group);
        }
    }

    /// Sees which candidates are what was wanted, and notes which others to look for.
    #[inline(always)]
    fn compare_keys(
        &self,
        wanted: &[Wanted<K>],
        candidates: &[Candidate],
        others: &mut List<'_, u32>,
        found: &mut Found,
    ) {
        for &Candidate { number, slot } in candidates {
            let wanted = &wanted[number as usize];
            let entry = self.view.entry(slot as usize);
            if entry.key() == Some(&wanted.key) {
                found[wanted.index as usize % BURST_KEYS_MAX] = self.see(slot as usize, entry);
            } else {
                others.push(number);
            }
        }
    }

    /// The flow of a key that is not where it was looked for first.
    #[inline(never)]
    fn other_than<L: Lanes>(&self, key: K, hash: Hash) -> Option<Handle> {
        let (slot, entry) = self.view.find::<L>(&key, hash)?;
        self.see(slot, entry)
    }

    /// The flow of one key, unless its time is up. It was seen.
    #[inline(always)]
    pub(crate) fn one<L: Lanes>(&self, key: &K) -> Option<Handle> {
        let view = self.view;
        let hash = view.hash(key);
        let first = view.first(hash);
        let group = view.group(first);
        let matches = L::matches(group, hash.tag());
        if let Some(slot) = matches.first() {
            let slot = first * GROUP_SLOTS + slot;
            let entry = view.entry(slot);
            if entry.key() == Some(key) {
                return self.see(slot, entry);
            }
        }
        if matches.rest().is_empty() && group.overflow() == 0 {
            return None;
        }
        self.other_than::<L>(*key, hash)
    }

    #[inline(always)]
    fn see(&self, slot: usize, entry: &Entry<K, V>) -> Option<Handle> {
        if !entry.was_seen(self.now) {
            if entry.is_expired(self.now, self.idle_timeouts) {
                return None;
            }
            entry.touch(self.now);
        }
        entry.generation().map(|generation| Handle { slot: slot as u32, generation })
    }
}
