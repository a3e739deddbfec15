//! The memory of a table, with insertion and removal of flows.

use std::cell::Cell;
use std::hint;
use std::ops::Range;

use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use hotloop_arena::Arena;

use crate::Key;
use crate::config::FlowError;
use crate::entry::{Entry, Flow, Generation};
use crate::eviction_state::EvictionState;
use crate::group::{GROUP_SLOTS, Group};
use crate::key::HashSeed;
#[cfg(test)]
use crate::lines;
use crate::store_view::{Hash, StoreView};

/// Identifies a flow by its place in its table.
///
/// A handle is valid for as long as the flow is there and isn't moved to make place for a new one.
/// After that the handle is stale and stays so: with certainty until 2^27 others have come to the
/// table, then except for a chance of 1 in 2^27 that a later flow in that place is mistaken for it.
/// Handles of another table mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(crate) slot: u32,
    pub(crate) generation: Generation,
}

/// A full table's ratio of flows to groups: 0.85 of the slots.
const FULL_GROUPS: (usize, usize) = (51, 4);

/// The same for tables with entries that fit a second-level cache: 0.67. Memory doesn't matter
/// there, and lookups are faster if fewer flows are in their second groups or follow another of the
/// same tag.
const FULL_GROUPS_CACHED: (usize, usize) = (10, 1);

/// Entries of up to this size stay in the second-level cache of today's processors.
const CACHED_BYTES: usize = 1 << 20;

/// Groups of 15 slots. Slot `s` of group `g` has its tag in `control[g]` and its flow in
/// `entries[15 g + s]`. The tag is 0 if and only if the entry is vacant.
///
/// A flow is in its key's first or second group, which differ unless there is only one group. The
/// overflow count of a group is the number of flows that have it as their first group but are in
/// their second.
pub(crate) struct Store<K, V> {
    control: Box<[Group], Arena>,
    entries: Box<[Entry<K, V>], Arena>,
    /// By group.
    eviction_states: Box<[Cell<EvictionState>], Arena>,
    seed: HashSeed,
    /// The generation of the next flow inserted.
    generation: Generation,
    /// Number of flows in their second groups.
    overflow_len: usize,
}

impl<K: Key, V> Store<K, V> {
    /// The number of groups of a table for `capacity` flows, or `None` if handles can't number
    /// their slots.
    fn group_count(capacity: usize) -> Option<usize> {
        let is_cached = Self::is_cached(capacity);
        let (flows, groups) = if is_cached { FULL_GROUPS_CACHED } else { FULL_GROUPS };
        let count = capacity.checked_mul(groups)?.div_ceil(flows);
        (count * GROUP_SLOTS <= u32::MAX as usize).then_some(count)
    }

    /// Whether the entries of a table with this capacity fit into the second-level cache.
    pub(crate) fn is_cached(capacity: usize) -> bool {
        capacity <= CACHED_BYTES / size_of::<Entry<K, V>>()
    }

    /// The number of bytes that `new` takes, or `None` if that overflows.
    pub(crate) fn bytes(capacity: usize) -> Option<usize> {
        // An arena allocates whole cache lines.
        const LINE_BYTES: usize = 64;
        let count = Self::group_count(capacity)?;
        let control_bytes = (count * size_of::<Group>()).next_multiple_of(LINE_BYTES);
        let hands_bytes = (count * size_of::<EvictionState>()).next_multiple_of(LINE_BYTES);
        let entries_bytes = (count * GROUP_SLOTS).checked_mul(size_of::<Entry<K, V>>())?;
        let bytes = (control_bytes + hands_bytes).checked_add(entries_bytes)?;
        isize::try_from(bytes).is_ok().then_some(bytes)
    }

    /// Takes all memory for `capacity` flows from `arena`, and touches it.
    pub(crate) fn new(arena: Arena, capacity: usize, seed: u64) -> Result<Self, FlowError> {
        if capacity == 0 {
            return Err(FlowError::NoCapacity);
        }
        let too_large = FlowError::TooLarge { capacity };
        let needed_bytes = Self::bytes(capacity).ok_or(too_large)?;
        let group_count = Self::group_count(capacity).ok_or(too_large)?;
        let free_bytes_max = arena.free_bytes_max();
        let no_memory = |_| FlowError::NoMemory { capacity, needed_bytes, free_bytes_max };
        let mut control = Vec::new_in(arena.clone());
        control.try_reserve_exact(group_count).map_err(no_memory)?;
        control.resize(group_count, Group::EMPTY);
        let mut eviction_states = Vec::new_in(arena.clone());
        eviction_states.try_reserve_exact(group_count).map_err(no_memory)?;
        eviction_states.resize(group_count, Cell::default());
        let mut entries = Vec::new_in(arena);
        let entry_count = group_count * GROUP_SLOTS;
        entries.try_reserve_exact(entry_count).map_err(no_memory)?;
        entries.extend((0..entry_count).map(|_| Entry::vacant()));
        let (control, entries) = (control.into_boxed_slice(), entries.into_boxed_slice());
        Ok(Self {
            control,
            entries,
            eviction_states: eviction_states.into_boxed_slice(),
            seed: HashSeed::new(seed),
            generation: Generation::FIRST,
            overflow_len: 0,
        })
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn overflow_len(&self) -> usize {
        self.overflow_len
    }

    /// The generation of the next flow: while this is unchanged, no flow has come, moved or been
    /// replaced.
    #[inline(always)]
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> StoreView<'_, K, V> {
        StoreView {
            control: &self.control,
            entries: &self.entries,
            eviction_states: &self.eviction_states,
            seed: &self.seed,
        }
    }

    #[inline(always)]
    fn group_mut(&mut self, group: usize) -> &mut Group {
        #[cfg(test)]
        lines::note_group(group);
        &mut self.control[group]
    }

    #[inline(always)]
    pub(crate) fn entry_mut(&mut self, slot: usize) -> &mut Entry<K, V> {
        #[cfg(test)]
        lines::note_entry(slot);
        &mut self.entries[slot]
    }

    /// The entry of a slot, if this table has such a slot.
    #[inline(always)]
    pub(crate) fn entry_if_any(&self, slot: u32) -> Option<&Entry<K, V>> {
        self.entries.get(slot as usize)
    }

    /// [`entry_if_any`](Self::entry_if_any), mutable.
    #[inline(always)]
    pub(crate) fn entry_if_any_mut(&mut self, slot: u32) -> Option<&mut Entry<K, V>> {
        self.entries.get_mut(slot as usize)
    }

    /// The entries of these slots.
    pub(crate) fn entries_mut(&mut self, slots: Range<usize>) -> &mut [Entry<K, V>] {
        &mut self.entries[slots]
    }

    /// Puts a flow, whose key isn't in the table, into a free slot of its first or second group.
    #[inline(always)]
    pub(crate) fn link(&mut self, slot: usize, hash: Hash, flow: Flow<K, V>) -> Handle {
        let group = slot / GROUP_SLOTS;
        let first = self.view().first(hash);
        if group != first {
            self.group_mut(first).raise_overflow();
            self.overflow_len += 1;
        }
        self.link_in((group, slot % GROUP_SLOTS), group != first, hash.tag(), flow)
    }

    /// Puts a flow, whose key isn't in the table, into a free slot of a group. If that is its
    /// second group, the first one must count the flow already.
    #[inline(always)]
    pub(crate) fn link_in(
        &mut self,
        (group, slot_of_group): (usize, usize),
        is_in_second: bool,
        tag: u8,
        flow: Flow<K, V>,
    ) -> Handle {
        let slot = group * GROUP_SLOTS + slot_of_group;
        self.group_mut(group).occupy(slot_of_group, tag);
        let generation = self.generation;
        self.generation = generation.next();
        self.entry_mut(slot).put(flow, generation, is_in_second);
        Handle { slot: slot as u32, generation }
    }

    /// Replaces a flow and returns it. The group is the first one of both.
    #[inline(always)]
    pub(crate) fn swap(
        &mut self,
        slot: usize,
        hash: Hash,
        flow: Flow<K, V>,
    ) -> (Handle, Option<Flow<K, V>>) {
        self.renew(slot);
        self.group_mut(slot / GROUP_SLOTS).occupy(slot % GROUP_SLOTS, hash.tag());
        self.exchange(slot, flow)
    }

    /// Makes the next search for a flow to evict visit this slot, even if it was spared.
    #[inline(always)]
    pub(crate) fn renew(&self, slot: usize) {
        self.view()
            .change_eviction_state(slot / GROUP_SLOTS, |state| state.renew(slot % GROUP_SLOTS));
    }

    /// Replaces a flow of the same key and returns it.
    #[inline(always)]
    pub(crate) fn replace(
        &mut self,
        slot: usize,
        flow: Flow<K, V>,
    ) -> (Handle, Option<Flow<K, V>>) {
        self.renew(slot);
        self.exchange(slot, flow)
    }

    /// Replaces a flow and returns it. The group is the first one of both, or the second one of
    /// both.
    #[inline(always)]
    fn exchange(&mut self, slot: usize, flow: Flow<K, V>) -> (Handle, Option<Flow<K, V>>) {
        let generation = self.generation;
        self.generation = generation.next();
        let entry = self.entry_mut(slot);
        let is_in_second = entry.is_in_second();
        let before = entry.take();
        entry.put(flow, generation, is_in_second);
        (Handle { slot: slot as u32, generation }, before)
    }

    /// Takes out the flow of a slot; `None` if the slot is free.
    pub(crate) fn unlink(&mut self, slot: usize) -> Option<Flow<K, V>> {
        self.renew(slot);
        let (group, slot_of_group) = (slot / GROUP_SLOTS, slot % GROUP_SLOTS);
        if self.entry_mut(slot).is_in_second() {
            self.lower_overflow(slot);
        }
        let flow = self.entry_mut(slot).take()?;
        self.group_mut(group).vacate(slot_of_group);
        Some(flow)
    }

    /// Takes out the flow of a slot if `leaves` returns true. The slot must not be spared.
    #[inline(always)]
    pub(crate) fn unlink_if(
        &mut self,
        (group, slot_of_group): (usize, usize),
        leaves: impl FnOnce(&Entry<K, V>) -> bool,
    ) -> Option<Flow<K, V>> {
        let slot = group * GROUP_SLOTS + slot_of_group;
        let entry = self.entry_mut(slot);
        if !leaves(entry) {
            return None;
        }
        if entry.is_in_second() {
            hint::cold_path();
            return self.unlink(slot);
        }
        let flow = entry.take()?;
        self.group_mut(group).vacate(slot_of_group);
        Some(flow)
    }

    /// Lowers the count of the first group of a flow that is in its second one.
    #[cold]
    #[inline(never)]
    fn lower_overflow(&mut self, slot: usize) {
        let view = self.view();
        // Before any change, because this calls code outside this crate.
        let Some(hash) = view.entry(slot).key().map(|key| view.hash(key)) else { return };
        let first = view.first(hash);
        self.group_mut(first).lower_overflow();
        self.overflow_len = self.overflow_len.saturating_sub(1);
    }

    /// Sets a count to an artificial value.
    #[cfg(test)]
    pub(crate) fn raise_overflow(&mut self, group: usize, count: u32) {
        (0..count).for_each(|_| self.control[group].raise_overflow());
    }
}
