//! Finding flows; for bursts, after prefetching their memory.

use std::hint;

use crate::entry::Entry;
#[cfg(target_arch = "x86_64")]
use crate::group::tagged_avx2;
use crate::group::{GROUP_SLOTS, Group, Lanes, Mask, Native};
use crate::hints::{AHEAD, BURST_KEYS_MAX, Hint, Hints, SeenAt};
use crate::store::Handle;
use crate::store_view::{Hash, StoreView};
use crate::table::{Table, by_backend};
use crate::{Backend, Key};

impl<K: Key, V> Table<K, V> {
    /// Prefetches the memory of the flows of a burst, before [`find`](Self::find) reads it:
    /// `hints.at(i)` becomes the hint for the `i`-th key. Takes keys, or options of keys if some
    /// packets have none; the hints for `None` are empty. Keys beyond [`BURST_KEYS_MAX`] get no
    /// hints.
    ///
    /// The processor fetches the memory of many flows at once instead of waiting for each.
    #[inline]
    pub fn hint_burst<I>(&self, keys: I, hints: &mut Hints)
    where
        I: IntoIterator,
        I::Item: Into<Option<K>>,
    {
        let view = self.store.view();
        let count = hash_all(view, keys, hints, self.is_cached);
        if self.is_cached {
            return;
        }
        let is_full = self.stats.len >= self.capacity;
        match self.backend {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => {
                // SAFETY: 1. A table has a back-end only if the processor has it.
                unsafe { hint_avx2(view, count, is_full, hints) }
            }
            backend => by_backend!(backend, L => hint(view, count, is_full, hints, L::tagged)),
        }
    }

    /// The flow of `key`: its handle, for a change without a second search, and its value. Marks
    /// the flow as seen now. `hint` is the latest or an earlier hint for the key, or the default.
    /// If the hint belongs to a burst, this prefetches the flow of a later key of the burst, so
    /// look keys up in their order.
    ///
    /// If the hint reports that the flow is [absent](Hint::is_absent), a flow that came since is
    /// not found, except by [`get`](Self::get) and insertions. Otherwise the result does not depend
    /// on the hint.
    ///
    /// A flow that has been silent for [`Config::recent_ns`](crate::Config::recent_ns) or longer is
    /// not found, and not marked as seen.
    #[inline(always)]
    pub fn find(&mut self, key: &K, hint: Hint, now: impl Into<u64>) -> Option<(Handle, &V)> {
        let seen_at = self.seen_at(now);
        self.find_seen_at(key, hint, seen_at)
    }

    /// Sets the table's clock to the time of a burst, for [`find_seen_at`](Self::find_seen_at).
    #[inline(always)]
    pub fn seen_at(&mut self, now: impl Into<u64>) -> SeenAt {
        SeenAt { step: self.clock.advance(now.into()) }
    }

    /// [`find`](Self::find) at the time of a burst, which must be the latest time passed to this
    /// table.
    #[inline(always)]
    pub fn find_seen_at(&mut self, key: &K, hint: Hint, seen_at: SeenAt) -> Option<(Handle, &V)> {
        debug_assert_eq!(seen_at.step, self.clock.peek(0), "the latest of this table");
        self.store.view().prefetch_entry(hint.ahead as usize);
        let slot = hint.place as usize;
        if let Some(entry) = self.store.view().entry_if_any(slot)
            && entry.key() == Some(key)
        {
            return self.seen_flow(slot, entry, seen_at.step);
        }
        if hint.is_absent() { None } else { self.find_anywhere(*key, seen_at.step) }
    }

    /// The value that a hint leads to: most likely its key's value, maybe another one. Doesn't mark
    /// the flow as seen. For prefetching data that values refer to, before [`find`](Self::find)
    /// reads them.
    #[inline(always)]
    pub fn likely_value(&self, hint: Hint) -> Option<&V> {
        self.store.view().entry_if_any(hint.place as usize)?.value()
    }

    /// The hash of a key if it has no flow, whether or not its hint reports that.
    #[cold]
    #[inline(never)]
    pub(crate) fn hash_if_absent(&self, key: &K, hint: Hint) -> Option<Hash> {
        let view = self.store.view();
        if view.entry_if_any(hint.place as usize).is_some_and(|entry| entry.key() == Some(key)) {
            return None;
        }
        let hash = view.hash(key);
        by_backend!(self.backend, L => view.find::<L>(key, hash)).is_none().then_some(hash)
    }

    /// [`find`](Self::find) without a hint.
    #[cold]
    #[inline(never)]
    fn find_anywhere(&self, key: K, now: u32) -> Option<(Handle, &V)> {
        let view = self.store.view();
        let hash = view.hash(&key);
        let (slot, entry) = by_backend!(self.backend, L => view.find::<L>(&key, hash))?;
        self.seen_flow(slot, entry, now)
    }

    #[inline(always)]
    fn seen_flow<'a>(
        &self,
        slot: usize,
        entry: &'a Entry<K, V>,
        now: u32,
    ) -> Option<(Handle, &'a V)> {
        entry.see(now, &self.recent_timeouts)?;
        let generation = entry.generation()?;
        Some((Handle { slot: slot as u32, generation }, entry.value()?))
    }
}

/// Stands for the slot of a flow that may be in its second group. It is past the last slot of any
/// table, and below every hash that marks a flow as absent.
const ELSEWHERE: u64 = u32::MAX as u64;

/// Hashes the keys of a burst, and returns their number. Prefetches their control groups, or, if
/// `is_cached`, compares their tags at once.
#[inline(always)]
fn hash_all<K: Key, V, I>(
    view: StoreView<'_, K, V>,
    keys: I,
    Hints(places): &mut Hints,
    is_cached: bool,
) -> usize
where
    I: IntoIterator,
    I::Item: Into<Option<K>>,
{
    let mut count = 0;
    // One loop for both cases, so that the iterator is inlined.
    for (place, key) in places[..BURST_KEYS_MAX].iter_mut().zip(keys) {
        let hash = key.into().map_or(Hash::NONE, |key| view.hash(&key));
        *place = if is_cached {
            match view.first_match::<Native>(hash) {
                Ok(slot) => slot as u64,
                Err(is_elsewhere) => {
                    // Makes this a branch: selecting one of three values costs six instructions per
                    // key.
                    hint::cold_path();
                    if is_elsewhere { ELSEWHERE } else { hash.0 }
                }
            }
        } else {
            // Large tables wait for memory anyway, so they get the extra jumps.
            hint::cold_path();
            view.prefetch_group(view.first(hash));
            hash.0
        };
        count += 1;
    }
    places[count..count + AHEAD].fill(0);
    count
}

/// [`hint`], compiled for AVX2.
///
/// # Safety
/// The processor has AVX2, BMI1, BMI2 and LZCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn hint_avx2<K: Key, V>(view: StoreView<'_, K, V>, count: usize, is_full: bool, hints: &mut Hints) {
    hint(view, count, is_full, hints, |group, byte| tagged_avx2(group, byte));
}

/// Looks for the tags of the first `count` hashes, and prefetches the entries of those that match. If the table is full,
/// also prefetches the eviction state of each group without a match, for the search for a flow to evict. `tagged` is
/// [`Lanes::tagged`].
#[inline(always)]
fn hint<K: Key, V>(
    view: StoreView<'_, K, V>,
    count: usize,
    is_full: bool,
    Hints(places): &mut Hints,
    tagged: impl Fn(&Group, u8) -> Mask,
) {
    // Keys that may be in their second groups, a bit each.
    let mut overflowed = 0_u64;
    for (index, place) in places[..count].iter_mut().enumerate() {
        let hash = Hash(*place);
        let (first, group) = view.first_group(hash);
        let matches = tagged(group, hash.byte());
        if let Some(slot) = matches.first() {
            let slot = first * GROUP_SLOTS + slot;
            view.prefetch_entry(slot);
            *place = slot as u64;
            if let Some(other) = matches.rest().first() {
                view.prefetch_entry(first * GROUP_SLOTS + other);
            }
        } else {
            if is_full {
                view.prefetch_eviction_state(first);
            }
            // The hash stays in its place.
            overflowed |= u64::from(group.overflow() > 0) << index;
        }
    }
    for index in Ones(overflowed) {
        let hash = Hash(places[index]);
        view.prefetch_group(view.second(hash, view.first(hash)));
    }
    for index in Ones(overflowed) {
        let hash = Hash(places[index]);
        let second = view.second(hash, view.first(hash));
        if let Some(slot) = tagged(view.group(second), hash.byte()).first() {
            let slot = second * GROUP_SLOTS + slot;
            view.prefetch_entry(slot);
            places[index] = slot as u64;
        }
    }
}

/// The positions of the ones in a word, from the lowest.
struct Ones(u64);

impl Iterator for Ones {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let place = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(place)
    }
}
