//! Insertion of flows.

use std::mem;

use hotloop_packet::Instant;

use crate::Key;
use crate::config::{Class, Refused};
use crate::entry::Flow;
use crate::eviction::Eviction;
use crate::group::{GROUP_SLOTS, Lanes};
use crate::hints::Vacancy;
use crate::place::{Place, Situation};
use crate::store::Handle;
use crate::store_view::Hash;
use crate::table::{Table, by_backend};

/// The result of a search for a key's flow, or else for a place.
#[derive(Clone, Copy)]
enum Spot {
    /// The flow is there.
    Live { slot: usize },
    /// The flow is there but has expired.
    Expired { slot: usize },
    /// The flow is not there; this is its place.
    New(Place),
}

impl<K: Key, V> Table<K, V> {
    /// Inserts a flow that was seen at `now`: a search, and one write; with a [`Vacancy`] instead
    /// of the key, usually the write alone. `eviction` gets the flow that has to leave for this
    /// one, if any: in a full table with [`Full::Evict`](crate::Full::Evict) another, and in every
    /// table an expired flow of the same key. `&mut |_, _| ()` drops it.
    ///
    /// If the key has a flow already, `value` replaces its value, and its class and handles stay. A
    /// flow that has to move to make place gets a new handle, and its old handles become stale.
    ///
    /// An [`Eviction`] without ranks, like a closure, makes the flow leave that was silent for
    /// longest among four, as described at [`Full::Evict`](crate::Full::Evict).
    ///
    /// With ranks, for flows of different worth, the search in a full table goes round the new
    /// flow's group, beginning after the newest flow. The first flow of rank 0 leaves, or the first
    /// expired one. All other flows that the search meets stay, and later searches skip them until
    /// their class changes; so a flood of worthless flows evicts its own, and each eviction looks
    /// at one flow. If nothing leaves that way, or if the group has fewer than four flows, the
    /// search samples both groups. It stops at the fourth flow of rank 0, at the eighth of the
    /// lowest rank found if that is higher, or after sixteen flows that may leave. The flow that
    /// leaves is the longest silent one of the lowest rank. Only flows that may leave are ranked,
    /// 45 of them at most, and never an expired one.
    ///
    /// ```
    /// use hotloop_arena::{Arena, Pages, Request};
    /// use hotloop_flow::{Class, Classes, Config, Full, Table};
    /// use hotloop_packet::Instant;
    ///
    /// let config = Config { full: Full::Evict(Classes::ALL), ..Config::new(1, 1_000_000_000) };
    /// let request = Request { pages: vec![Pages::Small], ..Request::new(1 << 16) };
    /// let mut table: Table<[u64; 2], u64> = Table::new(Arena::new(request)?.0, config)?;
    /// let (mut left, now) = (None, Instant::from_ns(0));
    /// table.insert([1, 0], 3, now, &mut |_, _| ())?;
    /// table.insert([2, 0], 4, now, &mut |_, value| left = Some(value))?;
    /// assert_eq!(left, Some(3));
    ///
    /// let mut even_ones_leave = (
    ///     |value: &u64, _: Class, _: u64| (value % 2 == 0).then_some(0),
    ///     |_, value| left = Some(value),
    /// );
    /// table.insert([3, 0], 5, now, &mut even_ones_leave)?;
    /// assert!(table.insert([4, 0], 6, now, &mut even_ones_leave).is_err());
    /// assert_eq!(left, Some(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], and `value` is dropped.
    ///
    /// # Panics
    /// If `eviction` panics. The table stays whole, without the flow that left.
    #[inline(always)]
    pub fn insert<E: Eviction<K, V>>(
        &mut self,
        key: impl Into<Vacancy<K>>,
        value: V,
        now: Instant,
        eviction: &mut E,
    ) -> Result<Handle, Refused> {
        let seen = self.clock.advance(now);
        let Vacancy { key, hash, until } = key.into();
        let class = eviction.class(&value);
        let is_new = self.store.generation().is(until);
        if is_new {
            let (first, group) = self.store.view().first_group(hash);
            let slot = if self.stats.len < self.capacity {
                // Usually there is a free slot in the first group.
                by_backend!(self.backend, L => L::free(group).first())
            } else if E::HAS_RANKS {
                self.make_room(first, seen, eviction)
            } else {
                None
            };
            if let Some(slot) = slot {
                self.count_new();
                self.note_newest((first, slot));
                let flow = Flow { key, value, seen, class };
                return Ok(self.store.link_in((first, slot), false, hash.tag(), flow));
            }
        }
        self.insert_anywhere((hash, is_new), Flow { key, value, seen, class }, eviction)
    }

    /// Separate from [`insert`](Self::insert), to keep that small when inlined.
    #[cold]
    #[inline(never)]
    fn insert_anywhere<E: Eviction<K, V>>(
        &mut self,
        (hash, is_new): (Hash, bool),
        flow: Flow<K, V>,
        eviction: &mut E,
    ) -> Result<Handle, Refused> {
        let view = self.store.view();
        let (hash, seen) = (view.hash_unless(hash, &flow.key), flow.seen);
        let spot = by_backend!(self.backend, L => {
            let known = if is_new { None } else { self.spot_of_key::<L>(&flow.key, hash, seen) };
            match known {
                Some(spot) => spot,
                None => {
                    let first = self.store.view().first(hash);
                    // If the key is new, `insert` has tried this already.
                    let is_full = E::HAS_RANKS && !is_new && self.stats.len >= self.capacity;
                    match is_full.then(|| self.make_room(first, seen, eviction)).flatten() {
                        Some(slot) => {
                            Spot::New(Place::Free { slot: first * GROUP_SLOTS + slot })
                        }
                        None => self.new_spot::<L>(hash, seen, |value, class, silent_ns| {
                            eviction.rank(value, class, silent_ns)
                        })?,
                    }
                }
            }
        });
        let (handle, left) = self.settle(spot, hash, flow);
        if let Some(left) = left {
            eviction.leaves(left.key, left.value);
        }
        Ok(handle)
    }

    /// The slot of `key`'s flow, if it is there.
    #[inline(always)]
    fn spot_of_key<L: Lanes>(&self, key: &K, hash: Hash, now: u32) -> Option<Spot> {
        let (slot, entry) = self.store.view().find::<L>(key, hash)?;
        let is_expired = entry.is_expired(now, &self.idle_timeouts);
        Some(if is_expired { Spot::Expired { slot } } else { Spot::Live { slot } })
    }

    /// A place for a key without a flow. Changes only the count of refused flows.
    #[inline(always)]
    fn new_spot<L: Lanes>(
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

    /// Puts a flow into its place. Returns the flow that had to leave.
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

    /// Counts a flow that has come.
    #[inline(always)]
    fn count_new(&mut self) {
        self.stats.inserted_count += 1;
        self.stats.len += 1;
        self.stats.len_max = self.stats.len_max.max(self.stats.len);
    }
}
