//! The table of flows.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::{Index, IndexMut};

use hotloop_arena::Arena;

use crate::Key;
use crate::clock::{Clock, IdleTimeouts};
use crate::config::{CLASS_COUNT, Class, Config, FlowError, Full};
use crate::entry::Generation;
use crate::group::{Backend, Lanes};
use crate::lookup::{Hint, Hints, Vacancy, see};
use crate::stats::Stats;
use crate::store::Store;
use crate::view::Hash;

/// The most keys of one burst.
pub const BURST_KEYS_MAX: usize = 64;

/// A flow's place in its table.
///
/// It stays the same for as long as the flow is there and isn't moved to make place for a new one.
/// When the flow has left or moved, its handle is stale and stays so, whatever takes the place: for
/// certain until 2^27 others came to the table, then with one chance in 2^27 that the place is taken
/// for that of the flow. Handles of another table mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(crate) slot: u32,
    pub(crate) generation: Generation,
}

/// The flows of one core: keys of type `K`, each with a value of type `V`, in memory that is taken
/// once.
///
/// Times are nanoseconds of one clock; an earlier time than one given before counts as that one. A
/// flow whose last packet is older than its class's [`Config::idle_ns`] is not found any more,
/// whenever [`age`](Self::age) comes by to clear its place; so what is found depends on the clock
/// alone. Times are kept in steps of [`STEP_NS`](crate::STEP_NS): a flow is never let go before its
/// time is up, and not found any more two steps (34 ms) after. Steps are numbered with 32 bits, so
/// what was silent for 2.28 years must have been cleared by then, or counts as seen anew.
pub struct Table<K, V> {
    pub(crate) store: Store<K, V>,
    pub(crate) clock: Clock,
    pub(crate) idle_timeouts: IdleTimeouts,
    /// Those of [`find`](Self::find): no longer.
    pub(crate) recent_timeouts: IdleTimeouts,
    recent_ns: u64,
    pub(crate) full: Full,
    pub(crate) capacity: usize,
    /// One that this processor has.
    pub(crate) backend: Backend,
    /// Whether the entries fit into the second-level cache. Never with a back-end slower than this processor's own.
    pub(crate) is_cached: bool,
    /// The slot that `age` looks at next, how many are left of this round, and the step in which that began.
    pub(crate) age_slot: usize,
    pub(crate) age_left_count: usize,
    pub(crate) age_step: u32,
    pub(crate) stats: Stats,
}

/// Evaluates an expression for the instructions of a back-end, single keys being no case for more
/// than every processor has.
macro_rules! by_backend {
    ($backend:expr, $lanes:ident => $value:expr) => {
        match $backend {
            $crate::group::Backend::Scalar => {
                type $lanes = $crate::group::Scalar;
                $value
            }
            _ => {
                type $lanes = $crate::group::Native;
                $value
            }
        }
    };
}
pub(crate) use by_backend;

impl<K: Key, V> Table<K, V> {
    /// A table in `arena`, with a random seed of its own. Takes all the memory that it will ever
    /// need, and touches it.
    ///
    /// # Errors
    /// [`FlowError`]: the capacity is 0 or too large, or the arena has no room for it.
    pub fn new(arena: Arena, config: Config) -> Result<Self, FlowError> {
        Self::with_seed(arena, config, RandomState::new().hash_one("flows"))
    }

    /// As [`new`](Self::new), with a given seed: for what is to go alike each time, such as tests and simulations. An
    /// attacker who knows the seed can fill the places of a flow of their choice, which is then refused.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_seed(arena: Arena, config: Config, seed: u64) -> Result<Self, FlowError> {
        Self::with_backend(arena, config, seed, Backend::best())
    }

    /// As [`with_seed`](Self::with_seed), with given instructions: to test them, or to count those
    /// of the scalar ones.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`FlowError::NoBackend`] where the processor doesn't have them.
    pub fn with_backend(
        arena: Arena,
        config: Config,
        seed: u64,
        backend: Backend,
    ) -> Result<Self, FlowError> {
        if !backend.is_available() {
            return Err(FlowError::NoBackend { backend });
        }
        let Config { capacity, idle_ns, recent_ns, full } = config;
        let idle_timeouts = IdleTimeouts::new(idle_ns);
        let store = Store::new(arena, capacity, seed)?;
        let is_slow = backend == Backend::Scalar && Backend::best() != Backend::Scalar;
        Ok(Self {
            is_cached: Store::<K, V>::is_cached(capacity) && !is_slow,
            store,
            clock: Clock::default(),
            idle_timeouts,
            recent_timeouts: idle_timeouts.recent(recent_ns),
            recent_ns,
            full,
            capacity,
            backend,
            age_slot: 0,
            age_left_count: 0,
            age_step: 0,
            stats: Stats::default(),
        })
    }

    /// The bytes of an arena that a table for `capacity` flows takes, or none where they are more
    /// than can be addressed.
    pub fn bytes(capacity: usize) -> Option<usize> {
        Store::<K, V>::bytes(capacity)
    }

    /// The flow of `key`. It was seen `now`, which is in nanoseconds, here and everywhere.
    #[inline]
    pub fn get(&mut self, key: &K, now: impl Into<u64>) -> Option<Handle> {
        let now = self.clock.advance(now.into());
        let view = self.store.view();
        let hash = view.hash(key);
        let (slot, entry) = by_backend!(self.backend, L => view.find::<L>(key, hash))?;
        see(entry, now, &self.idle_timeouts)?;
        entry.generation().map(|generation| Handle { slot: slot as u32, generation })
    }

    /// As [`get`](Self::get), and for how long there was no packet of the flow, in nanoseconds: rounded
    /// up, by less than two steps of [`STEP_NS`](crate::STEP_NS). `hint` is one for the key, or the default:
    /// it saves time.
    ///
    /// Of a flow that a lookup has just found, that is next to nothing: with [`Config::recent_ns`],
    /// [`find`](Self::find) leaves those alone for which the answer matters.
    ///
    /// # Errors
    /// [`Vacancy`]: there is no flow of the key. It spares [`insert_ranked`](Self::insert_ranked) the search.
    #[inline(always)]
    pub fn get_silent(
        &mut self,
        key: K,
        hint: Hint,
        now: impl Into<u64>,
    ) -> Result<(Handle, u64), Vacancy<K>> {
        let now = self.clock.advance(now.into());
        let view = self.store.view();
        let hash = view.hash_unless(hint.hash(), &key);
        let (_, group) = view.first_group(hash);
        let is_nowhere = group.overflow() == 0
            && by_backend!(self.backend, L => L::tagged(group, hash.byte()).is_empty());
        let until = if is_nowhere {
            Some(self.store.generation())
        } else {
            match self.get_silent_anywhere(key, hash, now) {
                Ok(found) => return Ok(found),
                Err(until) => until,
            }
        };
        Err(Vacancy { key, hash, until })
    }

    /// Apart from [`get_silent`](Self::get_silent), which stays small where it is inlined.
    ///
    /// # Errors
    /// There is no flow of the key: [`Vacancy::until`].
    #[cold]
    #[inline(never)]
    fn get_silent_anywhere(
        &self,
        key: K,
        hash: Hash,
        now: u32,
    ) -> Result<(Handle, u64), Option<Generation>> {
        let view = self.store.view();
        let Some((slot, entry)) = by_backend!(self.backend, L => view.find::<L>(&key, hash)) else {
            return Err(Some(self.store.generation()));
        };
        if entry.is_expired(now, &self.idle_timeouts) {
            // Its flow is in its place all the same.
            return Err(None);
        }
        let silent_ns = entry.silent_ns(now);
        entry.touch(now);
        Ok((self.handle(slot), silent_ns))
    }

    /// The flow of `key`, as [`get`](Self::get) would find it, but it does not count as seen: for callers
    /// that show flows, or find one by a packet that says nothing of whether the flow goes on.
    #[inline]
    pub fn peek(&self, key: &K, now: impl Into<u64>) -> Option<Handle> {
        self.peek_silent(key, now).map(|(handle, _)| handle)
    }

    /// As [`peek`](Self::peek), and for how long there was no packet of the flow, as
    /// [`get_silent`](Self::get_silent) says it.
    #[inline]
    pub fn peek_silent(&self, key: &K, now: impl Into<u64>) -> Option<(Handle, u64)> {
        let view = self.store.view();
        let hash = view.hash(key);
        let (slot, entry) = by_backend!(self.backend, L => view.find::<L>(key, hash))?;
        let now = self.clock.peek(now.into());
        if entry.is_expired(now, &self.idle_timeouts) {
            return None;
        }
        let generation = entry.generation()?;
        Some((Handle { slot: slot as u32, generation }, entry.silent_ns(now)))
    }

    /// Has the last packet of a flow be `silent_ns` nanoseconds ago, rounded down to steps of
    /// [`STEP_NS`](crate::STEP_NS), by the latest time that the table was given: for a flow whose
    /// packets were seen elsewhere. Says whether the handle was valid; if not, nothing happens.
    pub fn set_silent_ns(&mut self, handle: Handle, silent_ns: u64) -> bool {
        let seen = self.clock.earlier(silent_ns);
        let entry = self.store.entry_if_any_mut(handle.slot);
        let Some(entry) = entry.filter(|entry| entry.is_of(handle.generation)) else {
            return false;
        };
        entry.touch(seen);
        true
    }

    /// Keeps flows of each class for other times after their last packets than it did so far: see
    /// [`Config::idle_ns`]. It holds for the flows that are there, too. One whose old time is up is not
    /// found any more when the new one is longer, but where its place was not cleared yet.
    pub fn set_idle_ns(&mut self, idle_ns: [u64; CLASS_COUNT]) {
        self.idle_timeouts = IdleTimeouts::new(idle_ns);
        self.recent_timeouts = self.idle_timeouts.recent(self.recent_ns);
        // Flows that `age` has left may have to go in this step.
        self.age_left_count = self.slot_count();
    }

    /// The value of a flow, or none when the handle is stale.
    #[inline]
    pub fn value(&self, handle: Handle) -> Option<&V> {
        self.store.entry_if_any(handle.slot)?.value_of(handle.generation)
    }

    /// The class of a flow, or none when the handle is stale.
    #[inline]
    pub fn class(&self, handle: Handle) -> Option<Class> {
        let entry = self.store.entry_if_any(handle.slot)?;
        entry.is_of(handle.generation).then(|| entry.class())
    }

    /// Puts a flow into a class: from now on it is kept for that one's time after its last packet,
    /// which this is not. Says whether the handle was valid; if not, nothing happens.
    #[inline]
    pub fn set_class(&mut self, handle: Handle, class: Class) -> bool {
        let entry = self.store.entry_if_any_mut(handle.slot);
        let Some(entry) = entry.filter(|entry| entry.is_of(handle.generation)) else {
            return false;
        };
        if entry.class() != class {
            entry.set_class(class);
            // It may be worth less now.
            self.store.renew(handle.slot as usize);
        }
        true
    }

    /// Asks for the memory that a new flow of `key` will be written to, for the keys of a burst ahead of their
    /// insertion. The key has to be the one of this index in the burst that `hints` were made for. Does nothing if the
    /// table has a flow of it.
    ///
    /// Some hints lead to the flow of another key: in full groups, one of some twenty for keys that are new. This
    /// notices by reading that flow, and makes the hint one of an [absent](Hint::is_absent) key.
    #[inline]
    pub fn prefetch_insert(&self, key: &K, hints: &mut Hints, index: usize) {
        let hint = hints.at(index);
        let hash = if hint.is_absent() {
            hint.hash()
        } else if let Some(hash) = self.hash_if_absent(key, hint) {
            hints.set_absent(index, hash);
            hash
        } else {
            return;
        };
        let view = self.store.view();
        if self.stats.len < self.capacity {
            by_backend!(self.backend, L => view.prefetch_place::<L>(hash, false));
        } else {
            by_backend!(self.backend, L => view.prefetch_next_in_turn::<L>(hash));
        }
    }

    /// Takes a flow out, its time being up or not.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let hash = self.store.view().hash(key);
        let (slot, _) = by_backend!(self.backend, L => self.store.view().find::<L>(key, hash))?;
        let flow = self.store.unlink(slot)?;
        self.stats.len -= 1;
        self.stats.removed_count += 1;
        Some(flow.value)
    }

    /// Flows in the table, including those that have expired but were not cleared yet.
    pub fn len(&self) -> usize {
        self.stats.len
    }

    /// True when the table holds no flow.
    pub fn is_empty(&self) -> bool {
        self.stats.len == 0
    }

    /// The most flows at once. There are never more, and as many as a rule: in tens of millions of
    /// insertions into tables of this load none was refused before.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The places for flows, used or not, which [`age`](Self::age) and [`scan`](Self::scan) go
    /// through: 20 or more for 17 flows of [`capacity`](Self::capacity).
    pub fn slot_count(&self) -> usize {
        self.store.slot_count()
    }

    /// What happened to flows so far.
    pub fn stats(&self) -> Stats {
        Stats { overflow_len: self.store.overflow_len(), ..self.stats }
    }

    /// The instructions that this table uses.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The handle of the flow in a slot where there is one.
    #[inline(always)]
    pub(crate) fn handle(&self, slot: usize) -> Handle {
        let generation = self.store.view().entry(slot).generation();
        Handle { slot: slot as u32, generation: generation.expect("the slot has a flow") }
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
        let entry = self.store.entry_if_any_mut(handle.slot);
        let value = entry.and_then(|entry| entry.value_of_mut(handle.generation));
        value.expect("the flow of this handle has left the table")
    }
}

impl<K: Key, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("capacity", &self.capacity())
            .field("backend", &self.backend)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
