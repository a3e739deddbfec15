//! The memory of a table: entries that never move, and a chain of them for each bucket.

use std::num::NonZero;

use allocator_api2::vec::Vec;
use hotloop_arena::Arena;

use crate::Key;
use crate::config::FlowError;

/// The index that ends a chain.
const END: u32 = u32::MAX;

/// A key and its value.
pub(crate) struct Entry<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
}

/// Room for one entry.
pub(crate) struct Slot<K, V> {
    /// The entry, unless the slot is free.
    pub(crate) entry: Option<Entry<K, V>>,
    /// When its last packet came.
    pub(crate) seen_ns: u64,
    /// Which entry of this slot it is: raised whenever one leaves.
    pub(crate) generation: NonZero<u32>,
    /// The next slot of its chain: of its bucket's, or of the free ones.
    next: u32,
}

impl<K, V> Slot<K, V> {
    /// Makes handles to the present entry stale. After 2^32 − 1 entries the numbers begin anew.
    pub(crate) fn advance_generation(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or(NonZero::<u32>::MIN);
    }
}

/// All slots. Each is in exactly one chain: its key's bucket's when it holds an entry, the free one
/// when not.
pub(crate) struct Chains<K, V> {
    /// The first slot of each bucket; a power of two of them, at least as many as slots.
    heads: Vec<u32, Arena>,
    slots: Vec<Slot<K, V>, Arena>,
    /// The first free slot.
    free: u32,
    seed: u64,
}

impl<K: Key, V> Chains<K, V> {
    /// The bytes that `new` takes, or none where they are more than can be.
    pub(crate) fn bytes(capacity: usize) -> Option<usize> {
        // An arena gives whole cache lines.
        const LINE_BYTES: usize = 64;
        if capacity >= END as usize {
            return None;
        }
        let heads_bytes = capacity.next_power_of_two().checked_mul(size_of::<u32>())?;
        let slots_bytes = capacity.checked_mul(size_of::<Slot<K, V>>())?;
        let bytes = heads_bytes
            .checked_next_multiple_of(LINE_BYTES)?
            .checked_add(slots_bytes.checked_next_multiple_of(LINE_BYTES)?)?;
        isize::try_from(bytes).is_ok().then_some(bytes)
    }

    /// Takes all memory for `capacity` entries from `arena`, and touches it.
    pub(crate) fn new(arena: Arena, capacity: usize, seed: u64) -> Result<Self, FlowError> {
        if capacity == 0 {
            return Err(FlowError::NoCapacity);
        }
        let needed_bytes = Self::bytes(capacity).ok_or(FlowError::TooLarge { capacity })?;
        let free_bytes_max = arena.free_bytes_max();
        let no_memory = |_| FlowError::NoMemory { capacity, needed_bytes, free_bytes_max };
        let bucket_count = capacity.next_power_of_two();
        let mut heads = Vec::new_in(arena.clone());
        heads.try_reserve_exact(bucket_count).map_err(no_memory)?;
        heads.resize(bucket_count, END);
        let mut slots = Vec::new_in(arena);
        slots.try_reserve_exact(capacity).map_err(no_memory)?;
        slots.extend((1..=capacity as u32).map(|next| Slot {
            entry: None,
            seen_ns: 0,
            generation: NonZero::<u32>::MIN,
            next: if next as usize == capacity { END } else { next },
        }));
        Ok(Self { heads, slots, free: 0, seed })
    }

    #[inline(always)]
    pub(crate) fn bucket(&self, key: &K) -> usize {
        key.hash(self.seed) as usize & (self.heads.len() - 1)
    }

    /// The first slot of a bucket's chain, for [`find_from`](Self::find_from).
    #[inline(always)]
    pub(crate) fn head(&self, bucket: usize) -> u32 {
        self.heads[bucket]
    }

    /// The slot that holds `key`, in the chain from slot `index` on.
    #[inline(always)]
    pub(crate) fn find_from(&self, mut index: u32, key: &K) -> Option<u32> {
        while let Some(slot) = self.slots.get(index as usize) {
            if slot.entry.as_ref().is_some_and(|entry| entry.key == *key) {
                return Some(index);
            }
            index = slot.next;
        }
        None
    }

    /// Whether every slot holds an entry.
    pub(crate) fn is_full(&self) -> bool {
        self.free == END
    }

    /// Puts an entry, whose key is in no slot, into a free one of `bucket`, its key's. None when
    /// there is no free one.
    pub(crate) fn link(&mut self, bucket: usize, entry: Entry<K, V>, seen_ns: u64) -> Option<u32> {
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.next;
        slot.next = std::mem::replace(&mut self.heads[bucket], index);
        slot.seen_ns = seen_ns;
        slot.entry = Some(entry);
        Some(index)
    }

    /// Takes out the entry of slot `index`; none when it is free.
    pub(crate) fn unlink(&mut self, index: u32) -> Option<Entry<K, V>> {
        let slot = self.slots.get_mut(index as usize)?;
        let entry = slot.entry.take()?;
        slot.advance_generation();
        let next = std::mem::replace(&mut slot.next, self.free);
        self.free = index;
        let bucket = self.bucket(&entry.key);
        *self.link_to(bucket, index) = next;
        Some(entry)
    }

    /// What points to slot `index` in the chain of `bucket`.
    fn link_to(&mut self, bucket: usize, index: u32) -> &mut u32 {
        if self.heads[bucket] == index {
            return &mut self.heads[bucket];
        }
        let mut before = self.heads[bucket] as usize;
        while self.slots[before].next != index {
            before = self.slots[before].next as usize;
        }
        &mut self.slots[before].next
    }

    #[inline(always)]
    pub(crate) fn slot(&self, index: u32) -> &Slot<K, V> {
        &self.slots[index as usize]
    }

    #[inline(always)]
    pub(crate) fn slot_mut(&mut self, index: u32) -> &mut Slot<K, V> {
        &mut self.slots[index as usize]
    }

    pub(crate) fn slots(&self) -> &[Slot<K, V>] {
        &self.slots
    }
}
