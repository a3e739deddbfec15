//! The table of flows.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZero;
use std::ops::{Index, IndexMut};

use hotloop_arena::Arena;

use crate::Key;
use crate::chains::{Chains, Entry, Slot};
use crate::config::{Config, FlowError, Full, Stats};

/// The most keys of one burst.
pub const BURST_KEYS_MAX: usize = 64;

/// A flow's place in its table.
///
/// It stays the same for as long as the flow is there. When the flow has left, its handle is stale
/// and stays so, whatever takes the place: until 2^32 − 1 others came and left there. Handles of
/// another table mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    slot: u32,
    generation: NonZero<u32>,
}

/// The flows of one core: keys of type `K`, each with a value of type `V`, in memory that is taken
/// once.
///
/// Times are nanoseconds of one clock that doesn't run backwards. A flow whose last packet is more
/// than [`Config::idle_ns`] old is not found any more, whenever [`age`](Self::age) comes by to clear
/// its place; so what is found depends on the clock alone.
pub struct Table<K, V> {
    chains: Chains<K, V>,
    idle_ns: u64,
    /// The slot that `age` looks at next.
    age_index: u32,
    len: usize,
    stats: Stats,
}

impl<K: Key, V> Table<K, V> {
    /// A table in `arena`, with a random seed of its own. Takes all the memory that it will ever
    /// need, and touches it.
    ///
    /// # Errors
    /// [`FlowError`]: the capacity is 0 or too large, or the arena has no room for it.
    pub fn new(arena: Arena, config: Config) -> Result<Self, FlowError> {
        Self::with_seed(arena, config, RandomState::new().hash_one("flows"))
    }

    /// As [`new`](Self::new), with a given seed: for tests. Who knows the seed can slow the table
    /// down with keys that share a bucket.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_seed(arena: Arena, config: Config, seed: u64) -> Result<Self, FlowError> {
        let chains = Chains::new(arena, config.capacity, seed)?;
        let stats = Stats::default();
        Ok(Self { chains, idle_ns: config.idle_ns, age_index: 0, len: 0, stats })
    }

    /// The bytes of an arena that a table for `capacity` flows takes, or none where they are more
    /// than can be addressed.
    pub fn bytes(capacity: usize) -> Option<usize> {
        Chains::<K, V>::bytes(capacity)
    }

    /// Looks up a burst of keys: `found[i]` becomes what the `i`-th key has, and none where that is
    /// none or there is no such key. Flows that are found were seen now.
    ///
    /// Takes keys, or options of keys where not every packet has one. One key may come several
    /// times.
    ///
    /// # Panics
    /// When there are more than [`BURST_KEYS_MAX`] keys.
    #[inline]
    pub fn lookup_burst<I>(
        &mut self,
        keys: I,
        now: impl Into<u64>,
        found: &mut [Option<Handle>; BURST_KEYS_MAX],
    ) where
        I: IntoIterator,
        I::Item: Into<Option<K>>,
    {
        let now_ns = now.into();
        // All hashes first, then all buckets, then all entries: the processor waits for the memory
        // of many at once.
        let mut wanted: [Option<(K, usize)>; BURST_KEYS_MAX] = [None; BURST_KEYS_MAX];
        let mut count = 0;
        for key in keys {
            assert!(count < BURST_KEYS_MAX, "more than {BURST_KEYS_MAX} keys in a burst");
            wanted[count] = key.into().map(|key| (key, self.chains.bucket(&key)));
            count += 1;
        }
        let mut heads = [None; BURST_KEYS_MAX];
        for (head, wanted) in heads.iter_mut().zip(&wanted[..count]) {
            *head = wanted.map(|(key, bucket)| (key, self.chains.head(bucket)));
        }
        for (found, head) in found.iter_mut().zip(heads) {
            *found = head.and_then(|(key, head)| self.see(head, &key, now_ns));
        }
    }

    /// The flow of `key`. It was seen `now`, which is in nanoseconds, here and everywhere.
    #[inline]
    pub fn get(&mut self, key: &K, now: impl Into<u64>) -> Option<Handle> {
        let now_ns = now.into();
        let head = self.chains.head(self.chains.bucket(key));
        self.see(head, key, now_ns)
    }

    /// Puts in a flow that was seen now. Where there is one of this key, `value` takes the place of
    /// its value; its handles stay valid unless its time was up.
    ///
    /// # Errors
    /// [`Full`], and `value` is dropped.
    pub fn insert(&mut self, key: K, value: V, now: impl Into<u64>) -> Result<Handle, Full> {
        let now_ns = now.into();
        let bucket = self.chains.bucket(&key);
        let entry = Entry { key, value };
        match self.chains.find_from(self.chains.head(bucket), &key) {
            Some(index) => Ok(self.replace(index, entry, now_ns)),
            None => self.link(bucket, entry, now_ns),
        }
    }

    /// The flow of `key`, or a new one with the value that `make` returns. It was seen now.
    ///
    /// # Errors
    /// [`Full`], and `make` is not called.
    pub fn get_or_insert_with(
        &mut self,
        key: K,
        now: impl Into<u64>,
        make: impl FnOnce() -> V,
    ) -> Result<Handle, Full> {
        let now_ns = now.into();
        let bucket = self.chains.bucket(&key);
        match self.chains.find_from(self.chains.head(bucket), &key) {
            Some(index) if self.is_expired(self.chains.slot(index), now_ns) => {
                Ok(self.replace(index, Entry { key, value: make() }, now_ns))
            }
            Some(index) => Ok(self.touch(index, now_ns)),
            None if self.chains.is_full() => self.refuse(),
            None => self.link(bucket, Entry { key, value: make() }, now_ns),
        }
    }

    /// The value of a flow, or none when the handle is stale.
    #[inline]
    pub fn value(&self, handle: Handle) -> Option<&V> {
        let slot = self.chains.slots().get(handle.slot as usize)?;
        let entry = slot.entry.as_ref().filter(|_| slot.generation == handle.generation)?;
        Some(&entry.value)
    }

    /// Takes a flow out, its time being up or not.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let head = self.chains.head(self.chains.bucket(key));
        let index = self.chains.find_from(head, key)?;
        let entry = self.chains.unlink(index)?;
        self.len -= 1;
        self.stats.removed_count += 1;
        Some(entry.value)
    }

    /// Looks at the next `budget` places of the table, at each at most once, takes out the flows
    /// whose time is up, hands each to `on_expire`, and returns how many.
    ///
    /// The next call goes on where this one ended: a budget of `b` in each of `n` calls a second
    /// visits every flow within `capacity / (b × n)` seconds.
    pub fn age(
        &mut self,
        now: impl Into<u64>,
        budget: usize,
        mut on_expire: impl FnMut(K, V),
    ) -> usize {
        let now_ns = now.into();
        let mut expired_count = 0;
        for _ in 0..budget.min(self.capacity()) {
            if self.len == 0 {
                break;
            }
            let index = self.age_index;
            self.age_index = (index + 1) % self.chains.slots().len() as u32;
            if self.is_expired(self.chains.slot(index), now_ns)
                && let Some(entry) = self.chains.unlink(index)
            {
                self.len -= 1;
                self.stats.expired_count += 1;
                expired_count += 1;
                on_expire(entry.key, entry.value);
            }
        }
        expired_count
    }

    /// All flows in no particular order, those included whose time is up and whose places were not
    /// cleared yet.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let entries = self.chains.slots().iter().filter_map(|slot| slot.entry.as_ref());
        entries.map(|entry| (&entry.key, &entry.value))
    }

    /// Flows in the table, those included whose time is up and whose places were not cleared yet.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when the table holds no flow.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most flows at once: exactly so many fit.
    pub fn capacity(&self) -> usize {
        self.chains.slots().len()
    }

    /// What happened to flows so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Finds `key` in the chain from slot `head` on, unless its time is up.
    #[inline(always)]
    fn see(&mut self, head: u32, key: &K, now_ns: u64) -> Option<Handle> {
        let index = self.chains.find_from(head, key)?;
        if self.is_expired(self.chains.slot(index), now_ns) {
            return None;
        }
        Some(self.touch(index, now_ns))
    }

    #[inline(always)]
    fn touch(&mut self, index: u32, now_ns: u64) -> Handle {
        let slot = self.chains.slot_mut(index);
        slot.seen_ns = slot.seen_ns.max(now_ns);
        Handle { slot: index, generation: slot.generation }
    }

    #[inline(always)]
    fn is_expired(&self, slot: &Slot<K, V>, now_ns: u64) -> bool {
        now_ns.saturating_sub(slot.seen_ns) > self.idle_ns
    }

    /// Puts `entry` where one of the same key is.
    fn replace(&mut self, index: u32, entry: Entry<K, V>, now_ns: u64) -> Handle {
        if self.is_expired(self.chains.slot(index), now_ns) {
            self.chains.slot_mut(index).advance_generation();
            self.stats.expired_count += 1;
            self.stats.inserted_count += 1;
        }
        self.chains.slot_mut(index).entry = Some(entry);
        self.touch(index, now_ns)
    }

    /// Puts `entry`, whose key is not in the table, into its bucket.
    fn link(&mut self, bucket: usize, entry: Entry<K, V>, now_ns: u64) -> Result<Handle, Full> {
        let Some(index) = self.chains.link(bucket, entry, now_ns) else { return self.refuse() };
        self.len += 1;
        self.stats.inserted_count += 1;
        self.stats.len_max = self.stats.len_max.max(self.len);
        Ok(self.touch(index, now_ns))
    }

    fn refuse(&mut self) -> Result<Handle, Full> {
        self.stats.refused_count += 1;
        Err(Full)
    }
}

impl<K: Key, V> Index<Handle> for Table<K, V> {
    type Output = V;

    /// # Panics
    /// When the handle is stale. [`value`](Table::value) asks first.
    #[inline]
    fn index(&self, handle: Handle) -> &V {
        self.value(handle).expect("the flow of this handle has left the table")
    }
}

impl<K: Key, V> IndexMut<Handle> for Table<K, V> {
    /// # Panics
    /// When the handle is stale.
    #[inline]
    fn index_mut(&mut self, handle: Handle) -> &mut V {
        assert!(self.value(handle).is_some(), "the flow of this handle has left the table");
        let entry = self.chains.slot_mut(handle.slot).entry.as_mut();
        &mut entry.expect("has a value").value
    }
}

impl<K: Key, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
