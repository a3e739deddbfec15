//! Results of looking keys up in bursts, or in vain: hints and vacancies.

use crate::entry::Generation;
use crate::store_view::Hash;

/// Maximum number of keys in a burst.
pub const BURST_KEYS_MAX: usize = 64;

/// A search prefetches the entry of the key this far ahead in the burst once more. A processor may
/// drop some of the many prefetches that [`Table::hint_burst`](crate::Table::hint_burst) issues in a row: with this, an AMD
/// EPYC needed three fifths of the time for hits among a million flows. With 8 it needed a tenth
/// more.
pub(crate) const AHEAD: usize = 16;

/// The hints for the keys of a burst, filled in by [`Table::hint_burst`](crate::Table::hint_burst). Reuse the same hints for
/// every burst.
// Each word is a slot, or else the hash of a key that has no flow. Hashes that look like slots are
// rare and harmless: the slot then has another key, or none. The words after the burst hold
// arbitrary slots.
#[derive(Clone, Debug)]
pub struct Hints(pub(crate) [u64; BURST_KEYS_MAX + AHEAD]);

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
            // Any place: zeroes cost an instruction less than `NONE`.
            return Hint { place: 0, ahead: 0 };
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
/// [`Table::hint_burst`](crate::Table::hint_burst).
///
/// The default is [`NONE`](Self::NONE). A hint stays usable even if flows have come, left or moved
/// since. But it belongs to its key and its table: with the hint of another key, a flow may not be
/// found.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    pub(crate) place: u64,
    /// The place of a later key in the burst, to be prefetched.
    pub(crate) ahead: u64,
}

impl Hint {
    /// No hint: for a key that was not in a burst.
    // Past the last slot of any table.
    pub const NONE: Self = Self { place: u32::MAX as u64, ahead: 0 };

    /// Whether the table had no flow of the key when the hint was made. This may be false even for
    /// an absent key, until [`Table::prefetch_insert`](crate::Table::prefetch_insert) finds that the hint leads to another key's
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

impl Default for Hint {
    fn default() -> Self {
        Self::NONE
    }
}

/// The time of a burst: see [`Table::seen_at`](crate::Table::seen_at).
#[derive(Clone, Copy, Debug)]
pub struct SeenAt {
    pub(crate) step: u32,
}

/// A key that has no flow in a table, and the result of the search for it.
/// [`Table::insert`](crate::Table::insert) takes this instead of the key, and needs no second search
/// unless flows have come since.
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
