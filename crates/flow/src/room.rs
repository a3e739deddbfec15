//! Room for a new flow in a full table with flows of different worth.

use crate::Key;
use crate::config::Full;
use crate::eviction::Eviction;
use crate::group::Lanes;
use crate::table::{Table, by_backend};

impl<K: Key, V> Table<K, V> {
    /// Removes the next flow in turn that is worth nothing or has expired from a group of a full
    /// table. Returns its slot in the group, or `None` if all flows of the group are spared or if
    /// there are fewer than four: new ones would soon leave again, and other groups have older
    /// ones.
    #[inline(never)]
    pub(crate) fn make_room(
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
            is_expired
                || entry.value_if_in(classes).is_some_and(|value| {
                    eviction.rank(value, entry.class(), entry.silent_ns(now)) == Some(0)
                })
        });
        if let Some(left) = left {
            self.count_left(is_expired);
            eviction.leaves(left.key, left.value);
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
}
