//! The table of flows.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::{Index, IndexMut};

use hotloop_arena::Arena;
use hotloop_packet::Instant;

use crate::Key;
use crate::clock::{Clock, IdleTimeouts};
use crate::config::{CLASS_COUNT, Class, Config, FlowError, Full};
use crate::group::Backend;
use crate::stats::Stats;
use crate::store::{Handle, Store};

/// The flows of one core: keys of type `K`, each with a value of type `V`, in memory that is
/// allocated once.
///
/// All times are of one clock; a time earlier than the latest counts as the latest. A flow is
/// silent since its last packet. If it is silent for longer than its class's [`Config::idle_ns`],
/// it has expired, and is not found any more, even before [`expire`](Self::expire) clears its
/// place; so results depend only on the clock. Times are recorded in steps of
/// [`STEP_NS`](crate::STEP_NS): a flow never expires early, and is no longer found two steps (34
/// ms) after its timeout. A silence that the table reports is rounded down by less than two steps,
/// so it never exceeds the time since the flow came. Steps have 32 bits, so a flow that was silent
/// for 2.28 years must have been cleared by then, or counts as just seen.
pub struct Table<K, V> {
    pub(crate) store: Store<K, V>,
    pub(crate) clock: Clock,
    pub(crate) idle_timeouts: IdleTimeouts,
    /// The timeouts of [`find_hinted`](Self::find_hinted), which are never longer.
    pub(crate) recent_timeouts: IdleTimeouts,
    recent_ns: u64,
    pub(crate) full: Full,
    pub(crate) capacity: usize,
    /// A back-end that this processor has.
    pub(crate) backend: Backend,
    /// Whether the entries fit into the second-level cache. Always false with a back-end slower
    /// than the processor's best.
    pub(crate) is_cached: bool,
    /// The next slot for `expire`, the number of slots left in this round, and the step in which
    /// the round began.
    pub(crate) expire_slot: usize,
    pub(crate) expire_left_count: usize,
    pub(crate) expire_step: u32,
    pub(crate) stats: Stats,
}

/// Evaluates an expression with a back-end's instructions. AVX2 isn't used here: single keys need
/// only what every processor of the architecture has.
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
    /// A table in `arena`, with a random seed of its own. Allocates all the memory that it will
    /// ever need, and touches it.
    ///
    /// # Errors
    /// [`FlowError`]: the capacity is 0 or too large, or the arena has no room for the table.
    pub fn new(arena: Arena, config: Config) -> Result<Self, FlowError> {
        Self::with_seed(arena, config, RandomState::new().hash_one("flows"))
    }

    /// [`new`](Self::new) with a given seed, for tests and simulations that must be repeatable. An
    /// attacker who knows the seed can fill the places of any flow, which is then refused.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_seed(arena: Arena, config: Config, seed: u64) -> Result<Self, FlowError> {
        Self::with_backend(arena, config, seed, Backend::best())
    }

    /// [`with_seed`](Self::with_seed) with a given back-end: to test it, or to count the scalar
    /// one's instructions.
    ///
    /// # Errors
    /// As for [`new`](Self::new), and [`FlowError::NoBackend`] if the processor doesn't have the
    /// instructions.
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
            expire_slot: 0,
            expire_left_count: 0,
            expire_step: 0,
            stats: Stats::default(),
        })
    }

    /// The number of bytes of an arena that a table for `capacity` flows takes, or `None` if that
    /// exceeds the address space.
    pub fn bytes(capacity: usize) -> Option<usize> {
        Store::<K, V>::bytes(capacity)
    }

    /// Marks a flow as seen at `now`, without a search: reads and writes one cache line, which the
    /// function that returned the handle has read. For packets that mark their flow only after a
    /// decision about its value: [`peek`](Self::peek) first. Returns whether the flow is there; if
    /// the handle is stale or the flow has expired, nothing happens.
    #[inline]
    pub fn touch(&mut self, handle: Handle, now: Instant) -> bool {
        let now = self.clock.advance(now);
        let entry = self.store.entry_if_any(handle.slot);
        let entry = entry.filter(|entry| entry.is_of(handle.generation));
        entry.and_then(|entry| entry.see(now, &self.idle_timeouts)).is_some()
    }

    /// Sets the time since a flow's last packet to `silent_ns` nanoseconds before the table's
    /// latest time, rounded down to steps of [`STEP_NS`](crate::STEP_NS): for flows with packets
    /// that were seen elsewhere. Returns whether the handle was valid; if not, nothing happens.
    pub fn set_silent_ns(&mut self, handle: Handle, silent_ns: u64) -> bool {
        let seen = self.clock.earlier(silent_ns);
        let entry = self.store.entry_if_any_mut(handle.slot);
        let Some(entry) = entry.filter(|entry| entry.is_of(handle.generation)) else {
            return false;
        };
        entry.touch(seen);
        true
    }

    /// Changes the idle timeouts: see [`Config::idle_ns`]. They apply to existing flows, too. If a
    /// timeout becomes longer, an expired flow may be found again as long as its place was not
    /// cleared.
    pub fn set_idle_ns(&mut self, idle_ns: [u64; CLASS_COUNT]) {
        self.idle_timeouts = IdleTimeouts::new(idle_ns);
        self.recent_timeouts = self.idle_timeouts.recent(self.recent_ns);
        // Flows that `expire` has kept may expire in this step.
        self.expire_left_count = self.slot_count();
    }

    /// The value of a flow, or `None` if the handle is stale.
    #[inline]
    pub fn value(&self, handle: Handle) -> Option<&V> {
        self.store.entry_if_any(handle.slot)?.value_of(handle.generation)
    }

    /// The class of a flow, or `None` if the handle is stale.
    #[inline]
    pub fn class(&self, handle: Handle) -> Option<Class> {
        let entry = self.store.entry_if_any(handle.slot)?;
        entry.is_of(handle.generation).then(|| entry.class())
    }

    /// Puts a flow into a class, whose timeout then counts from the flow's last packet; this call
    /// doesn't count as one. Returns whether the handle was valid; if not, nothing happens.
    #[inline]
    pub fn set_class(&mut self, handle: Handle, class: Class) -> bool {
        let entry = self.store.entry_if_any_mut(handle.slot);
        let Some(entry) = entry.filter(|entry| entry.is_of(handle.generation)) else {
            return false;
        };
        if entry.class() != class {
            entry.set_class(class);
            // The flow may be worth less now.
            self.store.renew(handle.slot as usize);
        }
        true
    }

    /// Removes a flow, expired or not.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let hash = self.store.view().hash(key);
        let (slot, _) = by_backend!(self.backend, L => self.store.view().find::<L>(key, hash))?;
        let flow = self.store.unlink(slot)?;
        self.stats.len -= 1;
        self.stats.removed_count += 1;
        Some(flow.value)
    }

    /// Number of flows in the table, including expired flows that were not cleared yet.
    pub fn len(&self) -> usize {
        self.stats.len
    }

    /// Whether the table holds no flow.
    pub fn is_empty(&self) -> bool {
        self.stats.len == 0
    }

    /// Maximum number of flows. A table may refuse a flow shortly before that, [by
    /// chance](crate#limits): one in 12 tables for 1,000,000 flows did.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of places for flows, used or not, which [`expire`](Self::expire) and
    /// [`visit_places`](Self::visit_places) go through: 20 or more for 17 flows of
    /// [`capacity`](Self::capacity).
    pub fn slot_count(&self) -> usize {
        self.store.slot_count()
    }

    /// Counts of events so far.
    pub fn stats(&self) -> Stats {
        Stats { overflow_len: self.store.overflow_len(), ..self.stats }
    }

    /// The back-end of this table.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The handle of the flow in a slot, which must be occupied.
    #[inline(always)]
    pub(crate) fn handle(&self, slot: usize) -> Handle {
        let generation = self.store.view().entry(slot).generation();
        Handle { slot: slot as u32, generation: generation.expect("the slot has a flow") }
    }
}

impl<K: Key, V> Index<Handle> for Table<K, V> {
    type Output = V;

    /// # Panics
    /// If the handle is stale. [`value`](Table::value) returns `None` instead.
    #[inline]
    fn index(&self, handle: Handle) -> &V {
        self.value(handle).expect("the flow of this handle has left the table")
    }
}

impl<K: Key, V> IndexMut<Handle> for Table<K, V> {
    /// # Panics
    /// If the handle is stale.
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
