//! The choice of a place for a new flow.
//!
//! A place is chosen first, which changes nothing, and taken later. Together with the searches
//! before it, a choice never touches more than [`LINES_MAX`] cache lines: two groups, their eviction states
//! and their entries. Lines elsewhere are touched only in exchange for some of these.

use crate::Key;
use crate::clock::IdleTimeouts;
use crate::config::{Class, Full};
use crate::entry::{Entry, Flow};
use crate::group::{GROUP_SLOTS, Lanes};
use crate::store::{Handle, Store};
use crate::store_view::{Hash, StoreView};

/// The most cache lines of a table that one operation touches, with entries of one line: two of
/// control groups, two of their eviction states and 30 of entries.
pub const LINES_MAX: usize = 2 + SEARCHED_LINES_MAX;

/// Lines without eviction states.
const SEARCHED_LINES_MAX: usize = 2 + 2 * GROUP_SLOTS;

/// Minimum number of flows that are sampled for eviction.
const SAMPLE_COUNT: usize = 4;

/// Sampling ends after this number of flows of the lowest rank: for rank 0, and for any other.
/// Losing the wrong flow of a higher rank costs more, and neighbours are often alike, as slots fill
/// from the lowest.
const ALIKE_COUNTS: [u32; 2] = [4, 8];

/// Sampling ends after this number of flows of any rank.
const MIXED_SAMPLE_COUNT: usize = 16;

/// Number of groups besides a key's own that are searched for a flow to evict.
const OTHER_GROUP_COUNT: u64 = 4;

/// A place for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A free slot.
    Free { slot: usize },
    /// Into the slot of a flow that moves to its other group first.
    Moved { slot: usize, to: usize },
    /// The slot of a flow that leaves. For both flows, this is their first group.
    Swapped { slot: usize },
    /// A slot that is free once the flow in `leaving` is gone; usually both are the same.
    Left { slot: usize, leaving: usize },
}

/// The inputs of a choice besides the store.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub(crate) now: u32,
    pub(crate) idle_timeouts: &'a IdleTimeouts,
    pub(crate) full: Full,
    /// Whether the table is at its capacity.
    pub(crate) is_full: bool,
    /// A number that differs for each flow.
    pub(crate) turn: u64,
}

/// The two groups of a key, and the further lines touched on its behalf.
struct Candidates {
    groups: [usize; 2],
    /// Touched entries: a bit for each slot of the first group, then of the second.
    entries: u32,
    /// Control groups of flows in these slots that are neither of the two.
    others: u32,
}

/// The bit of a slot of the first group or the second.
#[inline(always)]
fn bit(which: usize, slot: usize) -> u32 {
    1 << (which * GROUP_SLOTS + slot)
}

impl Candidates {
    /// Marks these entries and other groups as touched if that leaves `spare_count` lines. Returns
    /// whether it does.
    fn touch(&mut self, entries: u32, others: u32, spare_count: u32) -> bool {
        let (entries, others) = (self.entries | entries, self.others | others);
        let line_count = 2 + entries.count_ones() + others.count_ones() + spare_count;
        let may = line_count <= SEARCHED_LINES_MAX as u32;
        if may {
            (self.entries, self.others) = (entries, others);
        }
        may
    }
}

/// The best flow to evict so far: of the lowest rank, and silent for longest within that rank.
struct Sample {
    /// The lowest rank, or a value above all ranks.
    rank: u32,
    /// Number of further flows of this rank to sample.
    missing_count: u32,
    /// Number of steps for which the flow to evict was silent, and its slot.
    silent_steps: u32,
    slot: usize,
}

impl Sample {
    const NONE: Self = Self { rank: u32::MAX, missing_count: 0, silent_steps: 0, slot: 0 };

    fn slot(&self) -> Option<usize> {
        (self.rank != Self::NONE.rank).then_some(self.slot)
    }

    /// Whether `count` flows of any rank are enough to settle for the best one: more than one group
    /// has.
    fn is_enough_of(&self, count: usize) -> bool {
        count >= MIXED_SAMPLE_COUNT && self.slot().is_some()
    }

    /// Adds the flow of a slot. Returns whether the sample is complete.
    #[inline(always)]
    fn add<K: Copy, V>(
        &mut self,
        slot: usize,
        entry: &Entry<K, V>,
        situation: &Situation<'_>,
        rank: &mut impl FnMut(&Entry<K, V>) -> Option<u8>,
    ) -> bool {
        let silent_steps = entry.silent_steps(situation.now);
        if entry.is_expired(situation.now, situation.idle_timeouts) {
            *self = Self { rank: 0, missing_count: 0, silent_steps, slot };
            return true;
        }
        let Some(rank) = rank(entry).map(u32::from) else { return false };
        if rank < self.rank {
            let missing_count = ALIKE_COUNTS[usize::from(rank > 0)] - 1;
            *self = Self { rank, missing_count, silent_steps, slot };
        } else if rank == self.rank {
            if silent_steps > self.silent_steps {
                (self.silent_steps, self.slot) = (silent_steps, slot);
            }
            self.missing_count -= 1;
            return self.missing_count == 0;
        }
        false
    }
}

impl<K: Key, V> StoreView<'_, K, V> {
    /// A place for a flow, after a search for its key has failed.
    #[inline(always)]
    pub(crate) fn place<L: Lanes>(
        self,
        hash: Hash,
        situation: Situation<'_>,
        rank: impl FnMut(&V, Class, u64) -> Option<u8>,
    ) -> Option<Place> {
        let first = self.first(hash);
        if situation.is_full {
            return match situation.full {
                Full::Refuse => None,
                Full::Evict(_) => self.place_by_force::<L>(hash, situation, rank),
            };
        }
        if let Some(slot) = L::free(self.group(first)).first() {
            return Some(Place::Free { slot: first * GROUP_SLOTS + slot });
        }
        let second = self.second(hash, first);
        if let Some(slot) = L::free(self.group(second)).first() {
            return Some(Place::Free { slot: second * GROUP_SLOTS + slot });
        }
        self.place_by_force::<L>(hash, situation, rank)
    }

    /// A place that another flow has.
    #[inline(never)]
    fn place_by_force<L: Lanes>(
        self,
        hash: Hash,
        situation: Situation<'_>,
        mut rank: impl FnMut(&V, Class, u64) -> Option<u8>,
    ) -> Option<Place> {
        let Full::Evict(classes) = situation.full else {
            return self.movable::<L>(hash, &mut self.candidates(hash));
        };
        let mut rank = |entry: &Entry<K, V>| {
            let value = entry.value_if_in(classes)?;
            rank(value, entry.class(), entry.silent_ns(situation.now))
        };
        if !situation.is_full {
            return self.place_in_full_groups::<L>(hash, &situation, rank);
        }
        let mut sample = Sample::NONE;
        // All entries may be touched, because nothing else was: this case must be fast.
        let first = self.first(hash);
        for slot in L::occupied(self.group(first)).iter_from(hash.start()) {
            let slot = first * GROUP_SLOTS + slot;
            if sample.add(slot, self.entry(slot), &situation, &mut rank) {
                let leaving = sample.slot()?;
                if !self.entry(leaving).is_in_second() {
                    return Some(Place::Swapped { slot: leaving });
                }
                return self.left_for::<L>(hash, leaving, self.candidates(hash));
            }
        }
        self.expendable_further::<L>(hash, &situation, rank, sample)
    }
    /// The entries that the search for a key compared: all with its tag.
    fn compared<L: Lanes>(self, hash: Hash, groups: [usize; 2]) -> u32 {
        let [first, second] = groups.map(|group| L::matches(self.group(group), hash.tag()).bits());
        let has_second = self.group(groups[0]).overflow() > 0;
        if has_second { first | second << GROUP_SLOTS } else { first }
    }

    /// A flow of the two groups that has room in its other group.
    fn movable<L: Lanes>(self, hash: Hash, candidates: &mut Candidates) -> Option<Place> {
        candidates.entries = self.compared::<L>(hash, candidates.groups);
        for (which, group) in candidates.groups.into_iter().enumerate() {
            for slot in L::occupied(self.group(group)).iter_from(hash.start()) {
                // The spare line is the entry that the flow would move to.
                let bit = bit(which, slot);
                if !candidates.touch(bit, bit, 1) {
                    return None;
                }
                let slot = group * GROUP_SLOTS + slot;
                let key = self.entry(slot).key()?;
                let other = self.other_group(self.hash(key), group);
                if let Some(free) = L::free(self.group(other)).first() {
                    return Some(Place::Moved { slot, to: other * GROUP_SLOTS + free });
                }
            }
        }
        None
    }

    /// A place in a table that has room, but not in the groups of the key.
    #[inline(never)]
    fn place_in_full_groups<L: Lanes>(
        self,
        hash: Hash,
        situation: &Situation<'_>,
        mut rank: impl FnMut(&Entry<K, V>) -> Option<u8>,
    ) -> Option<Place> {
        let mut candidates = self.candidates(hash);
        if let Some(place) = self.movable::<L>(hash, &mut candidates) {
            return Some(place);
        }
        let mut sample = Sample::NONE;
        let slots = self.occupied_of::<L>(hash, self.groups(hash));
        for (index, (which, slot)) in slots.enumerate() {
            let bit = bit(which, slot % GROUP_SLOTS);
            let may = candidates.touch(bit, 0, 0);
            if !may
                || sample.add(slot, self.entry(slot), situation, &mut rank)
                || sample.is_enough_of(index + 1)
            {
                break;
            }
        }
        self.left_for::<L>(hash, sample.slot()?, candidates)
    }

    /// A flow of a full table to evict if the first group was not enough: from the second group,
    /// or, if both are nearly empty, from other groups that differ with each turn.
    #[inline(never)]
    fn expendable_further<L: Lanes>(
        self,
        hash: Hash,
        situation: &Situation<'_>,
        mut rank: impl FnMut(&Entry<K, V>) -> Option<u8>,
        mut sample: Sample,
    ) -> Option<Place> {
        let candidates = self.candidates(hash);
        let [first, second] = candidates.groups;
        let mut count = L::occupied(self.group(first)).count();
        // A table of one group has no second one.
        if second != first {
            for slot in L::occupied(self.group(second)).iter_from(hash.start()) {
                let slot = second * GROUP_SLOTS + slot;
                count += 1;
                if sample.add(slot, self.entry(slot), situation, &mut rank)
                    || sample.is_enough_of(count)
                {
                    return self.left_for::<L>(hash, sample.slot()?, candidates);
                }
            }
        }
        if count < SAMPLE_COUNT {
            let others = (0..OTHER_GROUP_COUNT)
                .map(|step| (situation.turn + step) as usize % self.control.len())
                .filter(|group| !candidates.groups.contains(group));
            for (_, slot) in self.occupied_of::<L>(hash, others).take(SAMPLE_COUNT - count) {
                if sample.add(slot, self.entry(slot), situation, &mut rank) {
                    break;
                }
            }
        }
        self.left_for::<L>(hash, sample.slot()?, candidates)
    }

    /// The groups of a key: a table of one group has no second one.
    fn groups(self, hash: Hash) -> impl Iterator<Item = usize> + Clone {
        let first = self.first(hash);
        let second = Some(self.second(hash, first)).filter(|&second| second != first);
        std::iter::once(first).chain(second)
    }

    /// The occupied slots of groups, each with the index of its group among `groups`.
    fn occupied_of<L: Lanes>(
        self,
        hash: Hash,
        groups: impl Iterator<Item = usize>,
    ) -> impl Iterator<Item = (usize, usize)> {
        groups.enumerate().flat_map(move |(which, group)| {
            let slots = L::occupied(self.group(group)).iter_from(hash.start());
            slots.map(move |slot| (which, group * GROUP_SLOTS + slot))
        })
    }

    fn candidates(self, hash: Hash) -> Candidates {
        let first = self.first(hash);
        Candidates { groups: [first, self.second(hash, first)], entries: 0, others: 0 }
    }

    /// The place of a flow that leaves or, if that is in another group, one in the key's own
    /// groups.
    #[inline(never)]
    fn left_for<L: Lanes>(
        self,
        hash: Hash,
        leaving: usize,
        mut candidates: Candidates,
    ) -> Option<Place> {
        let groups = candidates.groups;
        let group = leaving / GROUP_SLOTS;
        if !groups.contains(&group) {
            let mut free = groups.into_iter().filter_map(|group| {
                let slot = L::free(self.group(group)).first()?;
                Some(group * GROUP_SLOTS + slot)
            });
            return Some(Place::Left { slot: free.next()?, leaving });
        }
        // If the flow is in its second group, the first one's count is lowered.
        let leaving_entry = self.entry(leaving);
        let first = if leaving_entry.is_in_second() {
            self.first(self.hash(leaving_entry.key()?))
        } else {
            group
        };
        let bit = bit(usize::from(group != groups[0]), leaving % GROUP_SLOTS);
        let may =
            groups.contains(&first) || candidates.touch(self.compared::<L>(hash, groups), bit, 0);
        may.then_some(Place::Left { slot: leaving, leaving })
    }

    fn other_group(self, hash: Hash, group: usize) -> usize {
        let first = self.first(hash);
        if group == first { self.second(hash, first) } else { first }
    }

    /// Prefetches the memory that [`place`](Self::place) will read in a table with room.
    #[inline(always)]
    pub(crate) fn prefetch_place<L: Lanes>(self, hash: Hash) {
        let (first, group) = self.first_group(hash);
        if let Some(slot) = L::free(group).first() {
            self.prefetch_entry(first * GROUP_SLOTS + slot);
        } else {
            self.prefetch_group(self.second(hash, first));
        }
    }
}

impl<K: Key, V> Store<K, V> {
    /// Puts a flow in the place just chosen for it. Returns the flow that had to leave.
    #[inline(always)]
    pub(crate) fn settle(
        &mut self,
        place: Place,
        hash: Hash,
        flow: Flow<K, V>,
    ) -> (Handle, Option<Flow<K, V>>) {
        let slot = match place {
            Place::Free { slot } => slot,
            Place::Moved { slot, to } => {
                self.relocate(slot, to);
                slot
            }
            Place::Swapped { slot } => return self.swap(slot, hash, flow),
            Place::Left { slot, leaving } => {
                let left = self.unlink(leaving);
                return (self.link(slot, hash, flow), left);
            }
        };
        (self.link(slot, hash, flow), None)
    }

    /// Moves a flow to a free slot of its other group.
    #[inline(never)]
    fn relocate(&mut self, slot: usize, to: usize) {
        if let Some(flow) = self.unlink(slot) {
            let hash = self.view().hash(&flow.key);
            self.link(to, hash, flow);
        }
    }
}
