//! Insertion of flows.

use std::mem;

use crate::Key;
use crate::config::{Class, Refused};
use crate::entry::Flow;
use crate::group::{GROUP_SLOTS, Lanes};
use crate::hints::BURST_KEYS_MAX;
use crate::place::{Place, Situation};
use crate::store::Handle;
use crate::store_view::Hash;
use crate::table::{Table, by_backend};

/// The result of a search for a key's flow, or else for a place.
#[derive(Clone, Copy)]
pub(crate) enum Spot {
    /// The flow is there.
    Live { slot: usize },
    /// The flow is there but has expired.
    Expired { slot: usize },
    /// The flow is not there; this is its place.
    New(Place),
}

/// A rank for flows that leave only in the order of their last packets.
fn all_alike<V>(_: &V, _: Class, _silent_ns: u64) -> Option<u8> {
    Some(0)
}

impl<K: Key, V> Table<K, V> {
    /// Inserts a flow that was seen now. If the key has a flow already, `value` replaces its value;
    /// its handles stay valid unless the flow had expired.
    ///
    /// A flow that leaves ([`Full::Evict`](crate::Full::Evict)), or an expired flow of this key, is
    /// counted and dropped; [`insert_evicting`](Self::insert_evicting) hands it out. A flow that
    /// has to move to make place gets a new handle, and its old handles become stale.
    ///
    /// # Errors
    /// [`Refused`], and `value` is dropped.
    #[inline]
    pub fn insert(&mut self, key: K, value: V, now: impl Into<u64>) -> Result<Handle, Refused> {
        self.insert_evicting(key, value, now, |_, _| ())
    }

    /// [`insert`](Self::insert), and passes the evicted or expired flow to `on_evict` once the new
    /// one is in place.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    #[inline]
    pub fn insert_evicting(
        &mut self,
        key: K,
        value: V,
        now: impl Into<u64>,
        on_evict: impl FnOnce(K, V),
    ) -> Result<Handle, Refused> {
        let seen = self.clock.advance(now.into());
        let hash = self.store.view().hash(&key);
        let spot = by_backend!(self.backend, L => {
            self.spot::<L>(&key, hash, seen, all_alike)
        })?;
        let flow = Flow { key, value, seen, class: Class::default() };
        Ok(self.put(spot, hash, flow, on_evict))
    }

    /// Inserts a flow, and passes the flow that left for it to `on_evict`.
    #[inline(always)]
    pub(crate) fn put(
        &mut self,
        spot: Spot,
        hash: Hash,
        flow: Flow<K, V>,
        on_evict: impl FnOnce(K, V),
    ) -> Handle {
        let (handle, left) = self.settle(spot, hash, flow);
        if let Some(left) = left {
            on_evict(left.key, left.value);
        }
        handle
    }

    /// The flow of `key`, or a new one with the value that `make` returns. Marks the flow as seen
    /// now. Other flows leave or move as for [`insert`](Self::insert).
    ///
    /// # Errors
    /// [`Refused`], and `make` is not called.
    #[inline]
    pub fn get_or_insert_with(
        &mut self,
        key: K,
        now: impl Into<u64>,
        make: impl FnOnce() -> V,
    ) -> Result<Handle, Refused> {
        let now = self.clock.advance(now.into());
        let hash = self.store.view().hash(&key);
        let spot = by_backend!(self.backend, L => {
            self.spot::<L>(&key, hash, now, all_alike)
        })?;
        if let Spot::Live { slot } = spot {
            self.store.entry_mut(slot).touch(now);
            return Ok(self.handle(slot));
        }
        // Nothing has changed yet if this panics.
        let value = make();
        Ok(self.settle(spot, hash, Flow { key, value, seen: now, class: Class::default() }).0)
    }

    /// Inserts a burst of flows that were seen now, each as [`insert`](Self::insert) does.
    /// `placed[i]` becomes the handle of the `i`-th flow, or `None` if that was refused or doesn't
    /// exist. Returns the number of handles.
    ///
    /// Evicted and expired flows are passed to `on_evict`. If two flows of the burst have the same
    /// key, the later one's value stays, and both get the same handle. If a flow of the burst has
    /// to leave for a later one (in small tables, or if all sampled flows are as new), it is passed
    /// to `on_evict`, too, and has no handle.
    ///
    /// # Panics
    /// If there are more than [`BURST_KEYS_MAX`] flows. If this, the iterator or `on_evict` panics,
    /// flows of the burst that are not in the table yet are dropped.
    pub fn insert_burst(
        &mut self,
        flows: impl IntoIterator<Item = (K, V)>,
        now: impl Into<u64>,
        placed: &mut [Option<Handle>; BURST_KEYS_MAX],
        on_evict: impl FnMut(K, V),
    ) -> usize {
        let now = self.clock.advance(now.into());
        let flows = flows.into_iter();
        by_backend!(self.backend, L => self.insert_window::<L>(flows, now, placed, on_evict))
    }

    fn insert_window<L: Lanes>(
        &mut self,
        flows: impl Iterator<Item = (K, V)>,
        now: u32,
        placed: &mut [Option<Handle>; BURST_KEYS_MAX],
        mut on_evict: impl FnMut(K, V),
    ) -> usize {
        *placed = [None; BURST_KEYS_MAX];
        let view = self.store.view();
        let mut wanted = [None; BURST_KEYS_MAX];
        let mut values = [const { None }; BURST_KEYS_MAX];
        let mut count = 0;
        for (key, value) in flows {
            assert!(count < BURST_KEYS_MAX, "more than {BURST_KEYS_MAX} flows in a burst");
            let hash = view.hash(&key);
            view.prefetch_group(view.first(hash));
            wanted[count] = Some((key, hash));
            values[count] = Some(value);
            count += 1;
        }
        let wanted = &wanted[..count];
        self.prefetch_spots::<L>(wanted);

        let disturbed_count = self.stats.moved_count + self.stats.evicted_count;
        for (index, (wanted, value)) in wanted.iter().zip(&mut values).enumerate() {
            let (Some((key, hash)), Some(value)) = (*wanted, value.take()) else { continue };
            if let Ok(spot) = self.spot::<L>(&key, hash, now, all_alike) {
                let flow = Flow { key, value, seen: now, class: Class::default() };
                let (handle, left) = self.settle(spot, hash, flow);
                placed[index] = Some(handle);
                if let Some(left) = left {
                    on_evict(left.key, left.value);
                }
            }
        }
        if self.stats.moved_count + self.stats.evicted_count != disturbed_count {
            self.renew::<L>(wanted, placed);
        }
        placed.iter().flatten().count()
    }

    /// Prefetches the entries that are compared with the keys of new flows, or may take the flows.
    #[inline(always)]
    fn prefetch_spots<L: Lanes>(&self, wanted: &[Option<(K, Hash)>]) {
        let view = self.store.view();
        for (index, &(_, hash)) in wanted.iter().flatten().enumerate() {
            let first = view.first(hash);
            if let Some(slot) = L::matches(view.group(first), hash.tag()).first() {
                view.prefetch_entry(first * GROUP_SLOTS + slot);
            }
            let is_full = self.stats.len + index >= self.capacity;
            view.prefetch_place::<L>(hash, is_full);
        }
    }

    /// Looks up flows of the burst again if later ones made them move or leave.
    fn renew<L: Lanes>(
        &self,
        wanted: &[Option<(K, Hash)>],
        placed: &mut [Option<Handle>; BURST_KEYS_MAX],
    ) {
        for (placed, (key, hash)) in placed.iter_mut().zip(wanted.iter().flatten()) {
            if placed.is_some_and(|handle| self.value(handle).is_none()) {
                let found = self.store.view().find::<L>(key, *hash);
                *placed = found.map(|(slot, _)| self.handle(slot));
            }
        }
    }

    /// The slot of `key`'s flow, or a place for it. Changes only the count of refused flows.
    #[inline(always)]
    fn spot<L: Lanes>(
        &mut self,
        key: &K,
        hash: Hash,
        now: u32,
        rank: impl FnMut(&V, Class, u64) -> Option<u8>,
    ) -> Result<Spot, Refused> {
        match self.spot_of_key::<L>(key, hash, now) {
            Some(spot) => Ok(spot),
            None => self.new_spot::<L>(hash, now, rank),
        }
    }

    /// The slot of `key`'s flow, if it is there.
    #[inline(always)]
    pub(crate) fn spot_of_key<L: Lanes>(&self, key: &K, hash: Hash, now: u32) -> Option<Spot> {
        let (slot, entry) = self.store.view().find::<L>(key, hash)?;
        let is_expired = entry.is_expired(now, &self.idle_timeouts);
        Some(if is_expired { Spot::Expired { slot } } else { Spot::Live { slot } })
    }

    /// [`spot`](Self::spot) for a key without a flow.
    #[inline(always)]
    pub(crate) fn new_spot<L: Lanes>(
        &mut self,
        hash: Hash,
        now: u32,
        rank: impl FnMut(&V, Class, u64) -> Option<u8>,
    ) -> Result<Spot, Refused> {
        let is_full = self.stats.len >= self.capacity;
        let situation = Situation {
            now,
            idle_timeouts: &self.idle_timeouts,
            full: self.full,
            is_full,
            turn: self.stats.inserted_count,
        };
        match self.store.view().place::<L>(hash, situation, rank) {
            Some(place) => Ok(Spot::New(place)),
            None => {
                self.stats.refused_count += 1;
                Err(Refused)
            }
        }
    }

    /// Puts a flow into the place that [`spot`](Self::spot) has just returned. Returns the flow
    /// that had to leave.
    #[inline(always)]
    fn settle(&mut self, spot: Spot, hash: Hash, flow: Flow<K, V>) -> (Handle, Option<Flow<K, V>>) {
        let now = flow.seen;
        let (handle, left) = match spot {
            Spot::Live { slot } => {
                let entry = self.store.entry_mut(slot);
                entry.touch(now);
                let before = entry.value_mut().map(|before| mem::replace(before, flow.value));
                let handle = self.handle(slot);
                drop(before);
                return (handle, None);
            }
            Spot::Expired { slot } => self.store.replace(slot, flow),
            Spot::New(place) => {
                self.stats.moved_count += u64::from(matches!(place, Place::Moved { .. }));
                self.store.settle(place, hash, flow)
            }
        };
        if let Some(left) = &left {
            self.count_left(self.idle_timeouts.is_over(left.class, left.seen, now));
        }
        self.count_new();
        let slot = handle.slot as usize;
        self.note_newest((slot / GROUP_SLOTS, slot % GROUP_SLOTS));
        (handle, left)
    }

    /// Makes the flow in a slot of a group the last of its group to be evicted. Hands are not
    /// touched unless the table is or was full.
    #[inline(always)]
    pub(crate) fn note_newest(&self, (group, slot_of_group): (usize, usize)) {
        if self.stats.len_max >= self.capacity {
            self.store.view().change_eviction_state(group, |state| state.go_past(slot_of_group));
        }
    }

    /// Counts a flow that has left as expired or evicted.
    #[inline(always)]
    pub(crate) fn count_left(&mut self, is_expired: bool) {
        self.stats.len -= 1;
        if is_expired {
            self.stats.expired_count += 1;
        } else {
            self.stats.evicted_count += 1;
        }
    }

    /// Counts a flow that has come.
    #[inline(always)]
    pub(crate) fn count_new(&mut self) {
        self.stats.inserted_count += 1;
        self.stats.len += 1;
        self.stats.len_max = self.stats.len_max.max(self.stats.len);
    }
}
