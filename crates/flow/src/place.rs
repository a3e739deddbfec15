//! Where a new flow goes.
//!
//! A place is chosen first, which changes nothing, and taken then. Choosing never touches more than
//! [`LINES_MAX`] cache lines, together with the search that came before it: two groups and their
//! entries are as many, and whatever lies elsewhere is touched only where some of those were not.

use std::cmp::Reverse;

use crate::Key;
use crate::clock::IdleTimeouts;
use crate::config::{Class, Full};
use crate::entry::{Entry, Flow};
use crate::group::{GROUP_SLOTS, Lanes};
use crate::store::Store;
use crate::table::Handle;
use crate::view::{Hash, View};

/// The most cache lines of a table that one operation touches, with entries of one line: two of
/// control groups and 30 of entries.
pub const LINES_MAX: usize = 2 + 2 * GROUP_SLOTS;

/// How many flows are sampled for one to leave.
pub(crate) const SAMPLE_COUNT: usize = 4;

/// How many of the lowest rank, where they have ranks: to lose the wrong one costs more there, and
/// neighbours are often alike, as slots fill from the lowest.
pub(crate) const RANKED_SAMPLE_COUNT: usize = 8;

/// How many groups besides a key's own are searched for a flow to leave.
const OTHER_GROUP_COUNT: u64 = 4;

/// Where a flow can be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Into a slot that is free.
    Free { slot: usize },
    /// Into the slot of a flow that moves to its other group first.
    Moved { slot: usize, to: usize },
    /// Into a slot for which the flow in another one leaves; as a rule they are the same.
    Left { slot: usize, leaving: usize },
}

/// What a choice depends on besides the store.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub(crate) now: u32,
    pub(crate) idle_timeouts: &'a IdleTimeouts,
    pub(crate) full: Full,
    /// Whether there are as many flows as there may be.
    pub(crate) is_full: bool,
    /// Another number for each flow.
    pub(crate) turn: u64,
    /// After how many flows of the lowest rank, or twice as many of any, one that may leave will do.
    pub(crate) sample_count: usize,
}

/// The two groups of a key, and which lines have been touched on its behalf besides theirs.
struct Candidates {
    groups: [usize; 2],
    /// Entries, a bit for each slot of the first group, then of the second.
    entries: u32,
    /// Control groups of flows in these slots that are neither of the two.
    others: u32,
}

impl Candidates {
    fn bit(&self, slot: usize) -> u32 {
        let is_second = usize::from(slot / GROUP_SLOTS != self.groups[0]);
        1 << (is_second * GROUP_SLOTS + slot % GROUP_SLOTS)
    }

    /// Notes that the entry of a slot is touched, if it may be, and says so.
    fn touch(&mut self, slot: usize) -> bool {
        self.note(self.entries | self.bit(slot), self.others, 0)
    }

    /// Notes that the other group of the flow in a slot is touched, if it may be and leaves
    /// `spare_count` lines, and says so.
    fn touch_other(&mut self, slot: usize, spare_count: u32) -> bool {
        self.note(self.entries, self.others | self.bit(slot), spare_count)
    }

    fn note(&mut self, entries: u32, others: u32, spare_count: u32) -> bool {
        let line_count = 2 + entries.count_ones() + others.count_ones() + spare_count;
        let may = line_count <= LINES_MAX as u32;
        if may {
            (self.entries, self.others) = (entries, others);
        }
        may
    }
}

impl<K: Key, V> View<'_, K, V> {
    /// A place for a flow whose key was searched and is nowhere, if there is one.
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
        let mut candidates = self.candidates::<L>(hash);
        let moved = if situation.is_full { None } else { self.movable::<L>(hash, &mut candidates) };
        moved.or_else(|| match situation.full {
            Full::Refuse => None,
            Full::Evict(classes) => {
                let rank = |entry: &Entry<K, V>| {
                    let class = entry.class();
                    let value = entry.value().filter(|_| classes.contains(class))?;
                    rank(value, class, entry.silent_ns(situation.now))
                };
                self.expendable::<L>(hash, situation, rank, candidates)
            }
        })
    }

    /// The groups of a key. Its search compared all that have its tag.
    fn candidates<L: Lanes>(self, hash: Hash) -> Candidates {
        let first = self.first(hash);
        let second = self.second(hash, first);
        let mut entries = L::matches(self.group(first), hash.tag()).bits();
        if self.group(first).overflow() > 0 {
            entries |= L::matches(self.group(second), hash.tag()).bits() << GROUP_SLOTS;
        }
        Candidates { groups: [first, second], entries, others: 0 }
    }

    /// A flow of the two groups whose other group has room.
    fn movable<L: Lanes>(self, hash: Hash, candidates: &mut Candidates) -> Option<Place> {
        for group in candidates.groups {
            for slot in L::occupied(self.group(group)).iter_from(hash.start()) {
                let slot = group * GROUP_SLOTS + slot;
                // The spare line is the entry where it would go.
                if !candidates.touch(slot) || !candidates.touch_other(slot, 1) {
                    return None;
                }
                let key = self.entry(slot).key()?;
                let other = self.other_group(self.hash(key), group);
                if let Some(free) = L::free(self.group(other)).first() {
                    return Some(Place::Moved { slot, to: other * GROUP_SLOTS + free });
                }
            }
        }
        None
    }

    /// A flow whose time is up, or else the one of the lowest rank that was silent for longest: of the
    /// key's groups, or, when these are nearly empty in a table that has all the flows it may have, of
    /// any others. Flows without a rank stay.
    fn expendable<L: Lanes>(
        self,
        hash: Hash,
        situation: Situation<'_>,
        mut rank: impl FnMut(&Entry<K, V>) -> Option<u8>,
        mut candidates: Candidates,
    ) -> Option<Place> {
        let Situation { now, idle_timeouts, sample_count, .. } = situation;
        let (mut least, mut alike_count) = (None, 0);
        for (sampled_count, slot) in
            self.occupied_from::<L>(hash, candidates.groups, situation.turn).enumerate()
        {
            let is_candidate = candidates.groups.contains(&(slot / GROUP_SLOTS));
            let is_enough =
                alike_count >= sample_count || sampled_count >= 2 * sample_count && least.is_some();
            // Where entries of other groups are looked at, there are few of these.
            if is_enough || is_candidate && !candidates.touch(slot) {
                break;
            }
            let entry = self.entry(slot);
            if entry.is_expired(now, idle_timeouts) {
                least = Some(((0, Reverse(u32::MAX)), slot));
                break;
            }
            let Some(rank) = rank(entry) else { continue };
            let order = (rank, Reverse(entry.silent_steps(now)));
            let lowest = least.map(|((lowest, _), _)| lowest);
            alike_count = match lowest {
                Some(lowest) if lowest == rank => alike_count + 1,
                Some(lowest) if lowest < rank => alike_count,
                _ => 1,
            };
            if least.is_none_or(|(other, _)| order < other) {
                least = Some((order, slot));
            }
        }
        let (_, leaving) = least?;
        if !candidates.groups.contains(&(leaving / GROUP_SLOTS)) {
            let mut free = candidates.groups.into_iter().filter_map(|group| {
                let slot = L::free(self.group(group)).first()?;
                Some(group * GROUP_SLOTS + slot)
            });
            return Some(Place::Left { slot: free.next()?, leaving });
        }
        // Where it is in its second group, the first one's count is lowered.
        let first = self.first(self.hash(self.entry(leaving).key()?));
        let may = candidates.groups.contains(&first) || candidates.touch_other(leaving, 0);
        may.then_some(Place::Left { slot: leaving, leaving })
    }

    /// The occupied slots of both groups, in the order in which they are looked at. Where these are
    /// too few for a sample, some of other groups follow, of others in each turn.
    #[inline(always)]
    fn occupied_from<L: Lanes>(
        self,
        hash: Hash,
        groups: [usize; 2],
        turn: u64,
    ) -> impl Iterator<Item = usize> {
        let [first, second] = groups;
        // A table of one group has no second one.
        let second = Some(second).filter(|&second| second != first);
        let occupied = move |group: usize| L::occupied(self.group(group));
        let occupied_count = || {
            let of_both = std::iter::once(first).chain(second).map(|group| occupied(group).bits());
            of_both.map(u32::count_ones).sum::<u32>()
        };
        let is_sample = occupied(first).bits().count_ones() >= SAMPLE_COUNT as u32
            || occupied_count() >= SAMPLE_COUNT as u32;
        let others = (0..if is_sample { 0 } else { OTHER_GROUP_COUNT })
            .map(move |step| (turn + step) as usize % self.control.len())
            .filter(move |group| !groups.contains(group));
        let slots = std::iter::once(first).chain(second).chain(others).flat_map(move |group| {
            let slots = occupied(group).iter_from(hash.start());
            slots.map(move |slot| group * GROUP_SLOTS + slot)
        });
        slots.take(if is_sample { 2 * GROUP_SLOTS } else { SAMPLE_COUNT })
    }

    fn other_group(self, hash: Hash, group: usize) -> usize {
        let first = self.first(hash);
        if group == first { self.second(hash, first) } else { first }
    }

    /// Asks for the memory that [`place`](Self::place) will look at.
    #[inline(always)]
    pub(crate) fn prefetch_place<L: Lanes>(self, hash: Hash, is_full: bool) {
        let first = self.first(hash);
        let group = self.group(first);
        if is_full {
            let slots = L::occupied(group).iter_from(hash.start());
            slots
                .take(SAMPLE_COUNT)
                .for_each(|slot| self.prefetch_entry(first * GROUP_SLOTS + slot));
        } else if let Some(slot) = L::free(group).first() {
            self.prefetch_entry(first * GROUP_SLOTS + slot);
        } else {
            self.prefetch_group(self.second(hash, first));
        }
    }
}

impl<K: Key, V> Store<K, V> {
    /// Puts a flow in its place, which was chosen just before. Returns the one that had to leave.
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
