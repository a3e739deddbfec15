//! Finding flows; for bursts, after prefetching their memory.

use std::hint;

use crate::clock::IdleTimeouts;
use crate::entry::{Entry, Generation};
#[cfg(target_arch = "x86_64")]
use crate::group::tagged_avx2;
use crate::group::{GROUP_SLOTS, Group, Lanes, Mask, Native};
use crate::table::{BURST_KEYS_MAX, Table, by_backend};
use crate::view::{Hash, View};
use crate::{Backend, Handle, Key};

/// A search prefetches the entry of the key this far ahead in the burst once more. A processor may
/// drop some of the many prefetches that [`Table::hint_burst`] issues in a row: with this, an AMD
/// EPYC needed three fifths of the time for hits among a million flows. With 8 it needed a tenth
/// more.
const AHEAD: usize = 16;

/// The hints for the keys of a burst, filled in by [`Table::hint_burst`]. Reuse the same hints for
/// every burst.
// Each word is a slot, or else the hash of a key that has no flow. Hashes that look like slots are
// rare and harmless: the slot then has another key, or none. The words after the burst hold
// arbitrary slots.
#[derive(Clone, Debug)]
pub struct Hints([u64; BURST_KEYS_MAX + AHEAD]);

impl Hints {
    /// Hints for no keys.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; BURST_KEYS_MAX + AHEAD])
    }

    /// The hint for the key at this index in the burst. If there was no key, the hint is empty.
    #[must_use]
    #[inline(always)]
    pub const fn at(&self, index: usize) -> Hint {
        if index >= BURST_KEYS_MAX {
            return Hint::NONE;
        }
        Hint { place: self.0[index], ahead: self.0[index + AHEAD] }
    }

    /// Marks the key at this index as absent from the table.
    #[inline(always)]
    pub(crate) fn set_absent(&mut self, index: usize, hash: Hash) {
        if index < BURST_KEYS_MAX {
            self.0[index] = hash.0;
        }
    }
}

impl Default for Hints {
    fn default() -> Self {
        Self::new()
    }
}

/// The place of a key's flow, as far as a table can tell without reading its entry. See
/// [`Table::hint_burst`].
///
/// The default is an empty hint. A hint stays usable even if flows have come, left or moved since.
/// But it belongs to its key and its table: with the hint of another key, a flow may not be found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint {
    place: u64,
    /// The place of a later key in the burst, to be prefetched.
    ahead: u64,
}

impl Hint {
    const NONE: Self = Self { place: 0, ahead: 0 };

    /// Whether the table had no flow of the key when the hint was made. This may be false even for
    /// an absent key, until [`Table::prefetch_insert`] finds that the hint leads to another key's
    /// flow.
    #[must_use]
    #[inline(always)]
    pub const fn is_absent(self) -> bool {
        self.place > u32::MAX as u64
    }

    /// The hash of an absent key; [`Hash::NONE`] if there may be a flow.
    #[inline(always)]
    pub(crate) fn hash(self) -> Hash {
        if self.is_absent() { Hash(self.place) } else { Hash::NONE }
    }
}

/// The time of a burst: see [`Table::seen_at`].
#[derive(Clone, Copy, Debug)]
pub struct SeenAt {
    step: u32,
}

/// A key that has no flow in a table, and the result of the search for it. [`Table::insert_ranked`]
/// takes this instead of the key, and needs no second search unless flows have come since.
///
/// A vacancy belongs to one table: in another, a key could end up there twice.
#[derive(Clone, Copy, Debug)]
pub struct Vacancy<K> {
    pub(crate) key: K,
    /// The key's hash, or [`Hash::NONE`].
    pub(crate) hash: Hash,
    /// The key has no flow before a flow of this generation comes. `None` if nothing is known.
    pub(crate) until: Option<Generation>,
}

impl<K: Copy> Vacancy<K> {
    /// The key.
    #[must_use]
    #[inline(always)]
    pub const fn key(&self) -> K {
        self.key
    }
}

impl<K> From<K> for Vacancy<K> {
    /// A key about which nothing is known.
    #[inline(always)]
    fn from(key: K) -> Self {
        Self { key, hash: Hash::NONE, until: None }
    }
}

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
        see(entry, now, &self.recent_timeouts)?;
        let generation = entry.generation()?;
        Some((Handle { slot: slot as u32, generation }, entry.value()?))
    }
}

/// Marks a flow as seen, unless it has expired.
#[inline(always)]
pub(crate) fn see<K: Copy, V>(
    entry: &Entry<K, V>,
    now: u32,
    idle_timeouts: &IdleTimeouts,
) -> Option<()> {
    if !entry.was_seen(now) {
        if entry.is_expired(now, idle_timeouts) {
            return None;
        }
        entry.touch(now);
    }
    Some(())
}

/// Stands for the slot of a flow that may be in its second group. It is past the last slot of any
/// table, and below every hash that marks a flow as absent.
const ELSEWHERE: u64 = u32::MAX as u64;

/// Hashes the keys of a burst, and returns their number. Prefetches their control groups, or, if
/// `is_cached`, compares their tags at once.
#[inline(always)]
fn hash_all<K: Key, V, I>(
    view: View<'_, K, V>,
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
fn hint_avx2<K: Key, V>(view: View<'_, K, V>, count: usize, is_full: bool, hints: &mut Hints) {
    hint(view, count, is_full, hints, |group, byte| tagged_avx2(group, byte));
}

/// Looks for the tags of the first `count` hashes, and prefetches the entries of those that match. If the table is full,
/// also prefetches the hand of each group without a match, for the search for a flow to evict. `tagged` is
/// [`Lanes::tagged`].
#[inline(always)]
fn hint<K: Key, V>(
    view: View<'_, K, V>,
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
                view.prefetch_hand(first);
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
