//! Insertion into a table with flows of different worth.

use crate::Key;
use crate::config::{Class, Full, Refused};
use crate::entry::Flow;
use crate::group::{GROUP_SLOTS, Lanes};
use crate::hints::Vacancy;
use crate::insert::Spot;
use crate::place::Place;
use crate::store::Handle;
use crate::store_view::Hash;
use crate::table::{Table, by_backend};

/// Ranks the flows of a full table for [`Table::insert_ranked`], and is called with the one that
/// leaves.
///
/// A pair of closures implements this. If flows often leave for new ones, a type with methods that
/// are always inlined is faster.
pub trait Eviction<K, V> {
    /// Returns the cost of losing a flow: 0 if it is worth nothing, `None` if it must stay.
    /// `silent_ns` is the time since the flow's last packet in nanoseconds, rounded up by less than
    /// two steps of [`STEP_NS`](crate::STEP_NS).
    fn rank(&mut self, value: &V, class: Class, silent_ns: u64) -> Option<u8>;

    /// Called with the flow that leaves, evicted or expired: at most once for each insertion.
    fn leaves(&mut self, key: &K, value: &V);
}

impl<K, V, R, L> Eviction<K, V> for (R, L)
where
    R: FnMut(&V, Class, u64) -> Option<u8>,
    L: FnMut(&K, &V),
{
    fn rank(&mut self, value: &V, class: Class, silent_ns: u64) -> Option<u8> {
        (self.0)(value, class, silent_ns)
    }

    fn leaves(&mut self, key: &K, value: &V) {
        (self.1)(key, value);
    }
}

impl<K: Key, V> Table<K, V> {
    /// [`insert`](Self::insert) with an initial class and an eviction order of the caller's, for
    /// flows of different worth. The flow that leaves for this one is dropped after `eviction` has
    /// seen it.
    ///
    /// In a full table, the search goes round the new flow's group, beginning after the newest
    /// flow. The first flow of rank 0 leaves, or the first expired one. All other flows that the
    /// search meets stay, and later searches skip them until their class changes; so a flood of
    /// worthless flows evicts its own, and each eviction looks at one flow. If nothing leaves that
    /// way, or if the group has fewer than four flows, the search samples both groups. It stops at
    /// the fourth flow of rank 0, at the eighth of the lowest rank found if that is higher, or
    /// after sixteen flows that may leave. The flow that leaves is the longest silent one of the
    /// lowest rank.
    ///
    /// Only flows that may leave are ranked, 45 of them at most, and never an expired one.
    ///
    /// An initial class costs less than a later [`set_class`](Self::set_class), which reads what
    /// was just written. If the key already has a flow, its class stays.
    ///
    /// With a [`Vacancy`] instead of the key, the key is not searched for again.
    ///
    /// ```
    /// use hotloop_arena::{Arena, Pages, Request};
    /// use hotloop_flow::{Class, Classes, Config, Full, Table};
    ///
    /// let config = Config { full: Full::Evict(Classes::ALL), ..Config::new(1, 1_000_000_000) };
    /// let request = Request { pages: vec![Pages::Small], ..Request::new(1 << 16) };
    /// let mut table: Table<[u64; 2], u64> = Table::new(Arena::new(request)?.0, config)?;
    /// let mut left = None;
    /// let mut even_ones_leave = (
    ///     |value: &u64, _: Class, _: u64| (value % 2 == 0).then_some(0),
    ///     |_: &[u64; 2], value: &u64| left = Some(*value),
    /// );
    /// let class = Class::default();
    /// table.insert_ranked([1, 0], 4, class, 0_u64, &mut even_ones_leave)?;
    /// table.insert_ranked([2, 0], 5, class, 0_u64, &mut even_ones_leave)?;
    /// assert!(table.insert_ranked([3, 0], 6, class, 0_u64, &mut even_ones_leave).is_err());
    /// assert_eq!(left, Some(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    #[inline(always)]
    pub fn insert_ranked(
        &mut self,
        key: impl Into<Vacancy<K>>,
        value: V,
        class: Class,
        now: impl Into<u64>,
        eviction: &mut impl Eviction<K, V>,
    ) -> Result<Handle, Refused> {
        let seen = self.clock.advance(now.into());
        let Vacancy { key, hash, until } = key.into();
        let is_new = self.store.generation().is(until);
        if is_new {
            let (first, group) = self.store.view().first_group(hash);
            let slot = if self.stats.len < self.capacity {
                // Usually there is a free slot in the first group.
                by_backend!(self.backend, L => L::free(group).first())
            } else {
                self.make_room(first, seen, eviction)
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

    /// Separate from [`insert_ranked`](Self::insert_ranked), to keep that small when inlined.
    #[cold]
    #[inline(never)]
    fn insert_anywhere(
        &mut self,
        (hash, is_new): (Hash, bool),
        flow: Flow<K, V>,
        eviction: &mut impl Eviction<K, V>,
    ) -> Result<Handle, Refused> {
        let view = self.store.view();
        let (hash, seen) = (view.hash_unless(hash, &flow.key), flow.seen);
        let spot = by_backend!(self.backend, L => {
            let known = if is_new { None } else { self.spot_of_key::<L>(&flow.key, hash, seen) };
            match known {
                Some(spot) => spot,
                None => {
                    let first = self.store.view().first(hash);
                    // If the key is new, `insert_ranked` has tried this already.
                    let is_full = !is_new && self.stats.len >= self.capacity;
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
        Ok(self.put(spot, hash, flow, |key, value| eviction.leaves(&key, &value)))
    }

    /// Removes the next flow in turn that is worth nothing or has expired from a group of a full
    /// table. Returns its slot in the group, or `None` if all flows of the group are spared or if
    /// there are fewer than four: new ones would soon leave again, and other groups have older
    /// ones.
    #[inline(never)]
    fn make_room(
        &mut self,
        group: usize,
        now: u32,
        eviction: &mut impl Eviction<K, V>,
    ) -> Option<usize> {
        let Full::Evict(classes) = self.full else { return None };
        let view = self.store.view();
        let occupied = by_backend!(self.backend, L => L::occupied(view.group(group)));
        if occupied.rest().rest().rest().is_empty() {
            return None;
        }
        let slot_of_group = view.eviction_state(group).next(occupied)?;
        let mut is_expired = false;
        let idle_timeouts = &self.idle_timeouts;
        let left = self.store.unlink_if((group, slot_of_group), |entry| {
            is_expired = entry.is_expired(now, idle_timeouts);
            let leaves = is_expired
                || entry.value_if_in(classes).is_some_and(|value| {
                    eviction.rank(value, entry.class(), entry.silent_ns(now)) == Some(0)
                });
            if leaves && let Some((key, value)) = entry.key().zip(entry.value()) {
                eviction.leaves(key, value);
            }
            leaves
        });
        if left.is_some() {
            self.count_left(is_expired);
            return Some(slot_of_group);
        }
        self.spare_and_make_room((group, slot_of_group), now, eviction)
    }

    /// [`make_room`](Self::make_room) after a flow that stays. Usually the first flow leaves: a
    /// loop would compute values that only later ones need.
    #[cold]
    #[inline(never)]
    fn spare_and_make_room(
        &mut self,
        (group, slot_of_group): (usize, usize),
        now: u32,
        eviction: &mut impl Eviction<K, V>,
    ) -> Option<usize> {
        self.store.view().change_eviction_state(group, |state| state.spare(slot_of_group));
        self.make_room(group, now, eviction)
    }
}
