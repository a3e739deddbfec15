//! Finding flows; for bursts, after prefetching their memory.

use std::hint;

use hotloop_packet::Instant;

use crate::clock::IdleTimeouts;
use crate::entry::{Entry, Generation};
#[cfg(target_arch = "x86_64")]
use crate::group::tagged_avx2;
use crate::group::{GROUP_SLOTS, Group, Lanes, Mask, Native};
use crate::hints::{AHEAD, BURST_KEYS_MAX, Hint, Hints, SeenAt, Vacancy};
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

    /// Finds the flow of `key`, and marks it as seen at `now`: a read of one cache line if `hint` is
    /// right, a search otherwise. Returns the flow's value, and its handle: `table[handle] = ..`
    /// changes the value without another search.
    ///
    /// `hint` is the latest or an earlier [hint](Self::hint_burst) for the key, or [`Hint::NONE`].
    /// The result doesn't depend on it. If the hint belongs to a burst, this prefetches the flow of
    /// a later key of the burst, so look keys up in their order.
    #[inline(always)]
    pub fn find(&mut self, key: &K, hint: Hint, now: Instant) -> Option<(Handle, &V)> {
        let now = self.clock.advance(now);
        if let Some((slot, entry)) = self.at_hint(key, hint) {
            return self.seen_flow(slot, entry, now, &self.idle_timeouts);
        }
        // Most absent flows have not come since.
        if hint.is_absent() && self.is_nowhere(hint.hash()) {
            None
        } else {
            self.find_anywhere(*key, now)
        }
    }

    /// Looks at the flow of `key` without marking it as seen, by a search. Returns its handle, and
    /// the time since its last packet in nanoseconds: rounded down, by less than two steps of
    /// [`STEP_NS`](crate::STEP_NS). For showing flows, and for packets that don't prove that their
    /// flow goes on. [`touch`](Self::touch) marks the flow later, by its handle.
    ///
    /// `hint` is a hint for the key, which saves hashing it if there is no flow, or [`Hint::NONE`].
    ///
    /// # Errors
    /// The key has no flow. The [`Vacancy`] saves [`insert`](Self::insert) the search.
    #[inline(always)]
    pub fn peek(&self, key: &K, hint: Hint, now: Instant) -> Result<(Handle, u64), Vacancy<K>> {
        let view = self.store.view();
        let hash = view.hash_unless(hint.hash(), key);
        let until = if self.is_nowhere(hash) {
            Some(self.store.generation())
        } else {
            match self.peek_anywhere(*key, hash, now) {
                Ok(found) => return Ok(found),
                Err(until) => until,
            }
        };
        Err(Vacancy { key: *key, hash, until })
    }

    /// Separate from [`peek`](Self::peek), to keep that small when inlined.
    ///
    /// # Errors
    /// The key has no flow: [`Vacancy::until`].
    #[cold]
    #[inline(never)]
    fn peek_anywhere(
        &self,
        key: K,
        hash: Hash,
        now: Instant,
    ) -> Result<(Handle, u64), Option<Generation>> {
        let view = self.store.view();
        let Some((slot, entry)) = by_backend!(self.backend, L => view.find::<L>(&key, hash)) else {
            return Err(Some(self.store.generation()));
        };
        let now = self.clock.peek(now);
        if entry.is_expired(now, &self.idle_timeouts) {
            // The expired flow is in its place all the same.
            return Err(None);
        }
        Ok((self.handle(slot), entry.silent_ns(now)))
    }

    /// Sets the table's clock to the time of a burst, for [`find_hinted`](Self::find_hinted).
    #[inline(always)]
    pub fn seen_at(&mut self, now: Instant) -> SeenAt {
        SeenAt { step: self.clock.advance(now) }
    }

    /// [`find`](Self::find) for most packets of a burst, at the least cost: for a stage that passes
    /// the rest to a slower function, which looks again. `seen_at` must be of the latest time
    /// passed to this table.
    ///
    /// Two kinds of flows are left to [`find`](Self::find) or [`peek`](Self::peek), unchanged: those
    /// that came after their hint, if it reports that they are [absent](Hint::is_absent), and those
    /// that have been silent for [`Config::recent_ns`](crate::Config::recent_ns) or longer.
    #[inline(always)]
    pub fn find_hinted(&mut self, key: &K, hint: Hint, seen_at: SeenAt) -> Option<(Handle, &V)> {
        debug_assert_eq!(seen_at.step, self.clock.latest(), "the latest of this table");
        if let Some((slot, entry)) = self.at_hint(key, hint) {
            return self.seen_flow(slot, entry, seen_at.step, &self.recent_timeouts);
        }
        if hint.is_absent() { None } else { self.find_recent(*key, seen_at.step) }
    }

    /// The value that a hint leads to: most likely its key's value, maybe another one. Doesn't mark
    /// the flow as seen. For prefetching data that values refer to, before [`find`](Self::find)
    /// reads them.
    #[inline(always)]
    pub fn likely_value(&self, hint: Hint) -> Option<&V> {
        self.store.view().entry_if_any(hint.place as usize)?.value()
    }

    /// Prefetches the memory that a new flow of `key` will be written to, for the keys of a burst
    /// ahead of their insertion. `index` must be the key's index in the burst of `hints`. Does
    /// nothing if the table has a flow of the key.
    ///
    /// Some hints lead to the flow of another key: about one in twenty for new keys in full groups.
    /// This function detects that by reading that flow, and changes the hint to one for an
    /// [absent](Hint::is_absent) key.
    #[inline]
    pub fn prefetch_insert(&self, key: &K, hints: &mut Hints, index: usize) {
        let hint = hints.at(index);
        let hash = if hint.is_absent() {
            hint.hash()
        } else if let Some(hash) = self.hash_if_absent(key, hint) {
            hints.set_absent(index, hash);
            hash
        } else {
            return;
        };
        let view = self.store.view();
        if self.stats.len < self.capacity {
            by_backend!(self.backend, L => view.prefetch_place::<L>(hash));
        } else {
            by_backend!(self.backend, L => view.prefetch_next_in_turn::<L>(hash));
        }
    }

    /// The hash of a key if it has no flow, whether or not its hint reports that.
    #[cold]
    #[inline(never)]
    fn hash_if_absent(&self, key: &K, hint: Hint) -> Option<Hash> {
        let view = self.store.view();
        if view.entry_if_any(hint.place as usize).is_some_and(|entry| entry.key() == Some(key)) {
            return None;
        }
        let hash = view.hash(key);
        by_backend!(self.backend, L => view.find::<L>(key, hash)).is_none().then_some(hash)
    }

    /// The entry that a hint leads to, if it has the key, and its slot. Prefetches that of a later
    /// key.
    #[inline(always)]
    fn at_hint(&self, key: &K, hint: Hint) -> Option<(usize, &Entry<K, V>)> {
        self.store.view().prefetch_entry(hint.ahead as usize);
        let slot = hint.place as usize;
        let entry = self.store.view().entry_if_any(slot)?;
        (entry.key() == Some(key)).then_some((slot, entry))
    }

    /// Whether the first group of a key with this hash shows that the key has no flow.
    #[inline(always)]
    fn is_nowhere(&self, hash: Hash) -> bool {
        let (_, group) = self.store.view().first_group(hash);
        group.overflow() == 0
            && by_backend!(self.backend, L => L::tagged(group, hash.byte()).is_empty())
    }

    /// [`find`](Self::find) without a right hint.
    #[cold]
    #[inline(never)]
    fn find_anywhere(&self, key: K, now: u32) -> Option<(Handle, &V)> {
        self.search(&key, now, &self.idle_timeouts)
    }

    /// [`find_hinted`](Self::find_hinted) without a right hint.
    #[cold]
    #[inline(never)]
    fn find_recent(&self, key: K, now: u32) -> Option<(Handle, &V)> {
        self.search(&key, now, &self.recent_timeouts)
    }

    #[inline(always)]
    fn search(&self, key: &K, now: u32, timeouts: &IdleTimeouts) -> Option<(Handle, &V)> {
        let view = self.store.view();
        let hash = view.hash(key);
        let (slot, entry) = by_backend!(self.backend, L => view.find::<L>(key, hash))?;
        self.seen_flow(slot, entry, now, timeouts)
    }

    #[inline(always)]
    fn seen_flow<'a>(
        &self,
        slot: usize,
        entry: &'a Entry<K, V>,
        now: u32,
        timeouts: &IdleTimeouts,
    ) -> Option<(Handle, &'a V)> {
        entry.see(now, timeouts)?;
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
