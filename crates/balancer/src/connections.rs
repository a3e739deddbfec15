//! The connections that a worker remembers. Uses memory allocated at the start and prefetch hints
//! of the current burst; shared with no other thread. Every change that other nodes need goes
//! through the journal.

mod burst;
mod journal;
mod kept;

use crate::clock::Clock;
use crate::connection::{ABANDONED_NS, Connection, State};
use crate::services::TargetId;
use hotloop::arena::{Arena, Obtained, Request};
use hotloop::flow::{
    self, BURST_KEYS_MAX, CLASS_COUNT, Class, Classes, Config, Cursor, Eviction, FlowError, Full,
    Handle, Hint, Hints, Key, Table,
};
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};
use hotloop::stage::{Error, Instant};
pub use journal::Journal;
pub(crate) use journal::{NO_KEY, room_for};
pub use kept::Kept;

/// Number of slots of each table that one [`Connections::expire`] examines.
const EXPIRE_BUDGET: usize = 15;

/// A worker's connection tables, one for each IP version: keys are directed from client to VIP.
#[derive(Debug)]
pub struct Connections {
    /// Each IPv4 connection keeps the outer header of its packets.
    v4: Family<FlowKeyV4, Kept>,
    /// IPv6 connections keep no header, since an entry would take two cache lines.
    v6: Family<FlowKeyV6, ()>,
    /// The keys of the burst's fast-path IPv4 packets, by index in the burst that hints were made
    /// for.
    keys: [FlowKeyV4; BURST_KEYS_MAX],
    /// Time in nanoseconds until a silent connection is removed, for each state.
    idle_ns: [u64; CLASS_COUNT],
    clock: Clock,
    journal: Journal,
    /// Hints for connections in the journal, which are looked up outside bursts.
    journal_hints: Hints,
    /// Number of packets in the burst that hints were made for.
    burst_len: usize,
    /// The index after the last packet that a slot was prefetched for.
    prefetched_end: usize,
    obtained: Obtained,
}

/// A connection's position in the tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Position {
    /// In the IPv4 table.
    V4(Handle),
    /// In the IPv6 table.
    V6(Handle),
}

/// A free position for a key, as found by a search.
#[derive(Clone, Copy, Debug)]
pub enum Vacancy {
    /// In the IPv4 table.
    V4(flow::Vacancy<FlowKeyV4>),
    /// In the IPv6 table.
    V6(flow::Vacancy<FlowKeyV6>),
}

/// The position of a walk through all connections.
#[derive(Clone, Copy, Debug)]
pub enum Walk {
    /// In the IPv4 table.
    V4(Cursor),
    /// In the IPv6 table.
    V6(Cursor),
}

impl Default for Walk {
    fn default() -> Self {
        Self::V4(Cursor::default())
    }
}

impl Connections {
    /// Makes tables for `capacity` connections of each IP version, in memory of `node` if that is
    /// known. They hash with `table_seed`, or each with its own random seed.
    ///
    /// # Errors
    /// If there isn't enough memory.
    pub fn new(
        capacity: usize,
        idle_ns: [u64; CLASS_COUNT],
        node: Option<u32>,
        table_seed: Option<u64>,
    ) -> Result<Self, Error> {
        let bytes = Self::bytes(capacity)
            .ok_or_else(|| Error::message(format!("{capacity} connections: too many")))?;
        let (arena, obtained) = Arena::new(Request { node, ..Request::new(bytes) })?;
        let full = Full::Evict(Classes::ALL);
        let config = Config { capacity, idle_ns, recent_ns: ABANDONED_NS, full };
        Ok(Self {
            v4: Family::new(arena.clone(), config, table_seed)?,
            v6: Family::new(arena, config, table_seed)?,
            keys: [FlowKeyV4::from_words([0; 2]); BURST_KEYS_MAX],
            idle_ns,
            clock: Clock::default(),
            journal: Journal::default(),
            journal_hints: Hints::new(),
            burst_len: 0,
            prefetched_end: 0,
            obtained,
        })
    }

    /// The time by the cluster's clock.
    #[inline(always)]
    #[must_use]
    pub const fn clock(&self, now: Instant) -> Instant {
        self.clock.at(now)
    }

    /// Notes that it is this late at another node: see [`Clock::hear`]. Returns the time in steps.
    pub const fn hear_clock(&mut self, steps: u64, now: Instant) -> u64 {
        self.clock.hear(steps, now);
        self.clock.steps(now)
    }

    /// The kind of memory that both tables got.
    #[must_use]
    pub const fn obtained(&self) -> Obtained {
        self.obtained
    }

    /// The memory that tables for `capacity` connections take; `None` if that can't be addressed.
    #[must_use]
    pub fn bytes(capacity: usize) -> Option<usize> {
        let v4 = Table::<FlowKeyV4, (Connection, Kept)>::bytes(capacity)?;
        v4.checked_add(Table::<FlowKeyV6, (Connection, ())>::bytes(capacity)?)
    }

    /// Sets how long connections are remembered from now on, for each state.
    pub fn set_idle_ns(&mut self, idle_ns: [u64; CLASS_COUNT]) {
        self.v4.table.set_idle_ns(idle_ns);
        self.v6.table.set_idle_ns(idle_ns);
        self.idle_ns = idle_ns;
    }

    /// The connection of a key, which counts as seen now, and its silence before, in nanoseconds, as
    /// the table rounds it.
    ///
    /// # Errors
    /// If there is no connection of this key: [`insert`](Self::insert) takes the [`Vacancy`].
    #[inline]
    pub fn find(&mut self, key: &FlowKey, now: Instant) -> Result<(Position, u64), Vacancy> {
        match key {
            FlowKey::V4(key) => {
                let found = self.v4.find_silent(*key, Hint::NONE, now).map_err(Vacancy::V4)?;
                Ok((Position::V4(found.0), found.1))
            }
            FlowKey::V6(key) => {
                let found = self.v6.find_silent(*key, Hint::NONE, now).map_err(Vacancy::V6)?;
                Ok((Position::V6(found.0), found.1))
            }
        }
    }

    /// [`find`](Self::find) for IPv4, with the key of the packet at `index` of the burst that hints
    /// were made for.
    ///
    /// # Errors
    /// Like [`find`](Self::find).
    #[inline(always)]
    pub fn find_v4(
        &mut self,
        key: FlowKeyV4,
        index: usize,
        now: Instant,
    ) -> Result<(Handle, u64), flow::Vacancy<FlowKeyV4>> {
        self.v4.find_silent(key, self.v4.hints.at(index), now)
    }

    /// The connection of a key. It does not count as seen.
    #[must_use]
    pub fn peek(&self, key: &FlowKey, now: Instant) -> Option<Connection> {
        match key {
            FlowKey::V4(key) => self.v4.peek(key, now),
            FlowKey::V6(key) => self.v6.peek(key, now),
        }
    }

    /// The connection at a position; `None` if it has left the position.
    #[inline(always)]
    #[must_use]
    pub fn connection(&self, position: Position) -> Option<Connection> {
        match position {
            Position::V4(handle) => self.v4.table.value(handle).map(|value| value.0),
            Position::V6(handle) => self.v6.table.value(handle).map(|value| value.0),
        }
    }

    /// Inserts a new connection, which counts as seen now, with a kept header for IPv4. If another
    /// connection is evicted, `on_removed` gets its target. `None` if there is no room.
    #[inline(always)]
    pub fn insert(
        &mut self,
        vacancy: Vacancy,
        kept: Kept,
        connection: Connection,
        now: Instant,
        on_removed: impl FnMut(TargetId),
    ) -> Option<Position> {
        let opening_ns = self.idle_ns[State::Opening as usize];
        let clock = self.clock.at(now);
        let Self { v4, v6, journal, .. } = self;
        let leaving = Leaving { now, clock, opening_ns, journal, on_removed, protected_count: 0 };
        match vacancy {
            Vacancy::V4(key) => v4.insert(key, (connection, kept), leaving).map(Position::V4),
            Vacancy::V6(key) => v6.insert(key, (connection, ()), leaving).map(Position::V6),
        }
    }

    /// Removes connections that fell silent, in a bounded step: a few slots of each table.
    /// `on_removed` gets their targets.
    #[inline]
    pub fn expire(&mut self, now: Instant, mut on_removed: impl FnMut(TargetId)) {
        self.v4.table.expire(now, EXPIRE_BUDGET, |_, (left, _)| on_removed(left.target));
        self.v6.table.expire(now, EXPIRE_BUDGET, |_, (left, _)| on_removed(left.target));
    }

    /// Number of connections, including silent ones that were not removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lens().iter().sum()
    }

    /// Numbers of connections of IPv4 and of IPv6, which have tables of their own.
    #[inline]
    #[must_use]
    pub fn lens(&self) -> [usize; 2] {
        [self.v4.table.len(), self.v6.table.len()]
    }

    /// Whether there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the next connections, at most `budget`, in one of the steps of a listing. Returns
    /// where to continue, or `None` at the end. Connections that come, go or move meanwhile may be
    /// missed or visited twice.
    pub fn scan(
        &self,
        walk: Walk,
        budget: usize,
        mut visit: impl FnMut(FlowKey, Connection),
    ) -> Option<Walk> {
        match walk {
            Walk::V4(cursor) if !self.v4.table.is_empty() => {
                let next = self.v4.table.scan(cursor, budget, |key, (connection, _)| {
                    visit(FlowKey::V4(*key), *connection);
                });
                Some(next.map_or(Walk::V6(Cursor::default()), Walk::V4))
            }
            Walk::V4(_) => Some(Walk::V6(Cursor::default())),
            Walk::V6(_) if self.v6.table.is_empty() => None,
            Walk::V6(cursor) => {
                let next = self.v6.table.scan(cursor, budget, |key, (connection, ())| {
                    visit(FlowKey::V6(*key), *connection);
                });
                next.map(Walk::V6)
            }
        }
    }

    /// All connections, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (FlowKey, Connection)> {
        let v4 = self.v4.table.iter().map(|(key, value)| (FlowKey::V4(*key), value.0));
        v4.chain(self.v6.table.iter().map(|(key, value)| (FlowKey::V6(*key), value.0)))
    }
}

/// The connections of an IP version, and the value stored with each.
#[derive(Debug)]
struct Family<K: Key, H> {
    table: Table<K, (Connection, H)>,
    /// Positions of a burst's connections, by index in the burst: see
    /// [`Connections::hint_burst`].
    hints: Hints,
    /// Number of protected eviction candidates in a row. At the capacity, the sample suggests that
    /// the table is full of protected connections, and one of them is evicted.
    protected_count: usize,
}

impl<K: Key + Into<FlowKey>, H: Copy> Family<K, H> {
    fn new(arena: Arena, config: Config, table_seed: Option<u64>) -> Result<Self, Error> {
        let table = new_table(arena, config, table_seed)?;
        Ok(Self { table, hints: Hints::new(), protected_count: 0 })
    }

    /// The connection of a key. A connection that an earlier packet of the burst began may be left
    /// to [`Connections::find`].
    #[inline(always)]
    fn found(&mut self, key: &K, index: usize, now: Instant) -> Option<&Connection> {
        let seen_at = self.table.seen_at(now);
        let found = self.table.find_hinted(key, self.hints.at(index), seen_at);
        found.map(|(_, (connection, _))| connection)
    }

    /// [`Connections::find`], with a hint for the key.
    #[inline(always)]
    fn find_silent(
        &mut self,
        key: K,
        hint: Hint,
        now: Instant,
    ) -> Result<(Handle, u64), flow::Vacancy<K>> {
        let (handle, silent_ns) = self.table.peek(&key, hint, now)?;
        self.table.touch(handle, now);
        Ok((handle, silent_ns))
    }

    #[inline(always)]
    fn likely_target(&self, index: usize) -> Option<TargetId> {
        let (connection, _) = self.table.likely_value(self.hints.at(index))?;
        Some(connection.target)
    }

    fn peek(&self, key: &K, now: Instant) -> Option<Connection> {
        let (handle, _) = self.table.peek(key, Hint::NONE, now).ok()?;
        Some(self.table[handle].0)
    }

    /// Replaces a connection. If its target changes, calls `on_moved` on the value stored with it.
    fn set(&mut self, handle: Handle, connection: Connection, on_moved: impl FnOnce(&mut H)) {
        self.table.set_class(handle, class(&connection));
        let (before, kept) = &mut self.table[handle];
        if before.target != connection.target {
            on_moved(kept);
        }
        *before = connection;
    }

    #[inline(always)]
    fn insert(
        &mut self,
        vacancy: flow::Vacancy<K>,
        value: (Connection, H),
        mut leaving: Leaving<'_, impl FnMut(TargetId)>,
    ) -> Option<Handle> {
        let placed = self.table.insert(vacancy, value, leaving.now, &mut leaving);
        if placed.is_ok() {
            self.protected_count = 0;
            return placed.ok();
        }
        self.protected_count += leaving.protected_count;
        self.insert_among_protected(vacancy.key(), value, &mut leaving)
    }

    /// Inserts a connection in the place of a protected one, if enough candidates were protected.
    #[cold]
    #[inline(never)]
    fn insert_among_protected(
        &mut self,
        key: K,
        value: (Connection, H),
        leaving: &mut Leaving<'_, impl FnMut(TargetId)>,
    ) -> Option<Handle> {
        if self.protected_count < self.table.capacity() {
            return None;
        }
        self.protected_count = 0;
        let now = leaving.now;
        self.table.insert(key, value, now, &mut Anyone(leaving)).ok()
    }
}

/// Ranks connections, and chooses one to evict for another.
struct Leaving<'a, F> {
    now: Instant,
    /// The time by the cluster's clock.
    clock: Instant,
    opening_ns: u64,
    journal: &'a mut Journal,
    on_removed: F,
    /// Number of candidates that must stay.
    protected_count: usize,
}

// Always inlined. The compiler would make these functions calls for each new connection in a full
// table, because rare cases call them, too.
impl<K: Copy + Into<FlowKey>, H, F: FnMut(TargetId)> Eviction<K, (Connection, H)>
    for Leaving<'_, F>
{
    #[inline(always)]
    fn class(&self, (connection, _): &(Connection, H)) -> Class {
        class(connection)
    }

    #[inline(always)]
    fn rank(&mut self, (connection, _): &(Connection, H), _: Class, silent_ns: u64) -> Option<u8> {
        let rank = connection.rank(silent_ns, self.clock, self.opening_ns);
        if rank.is_none() {
            self.protected_count += 1;
        }
        rank
    }

    #[inline(always)]
    fn leaves(&mut self, _: K, (connection, _): (Connection, H)) {
        if self.journal.is_kept() && !matches!(connection.state(), State::Opening | State::Closing)
        {
            self.journal.note_evicted();
        }
        (self.on_removed)(connection.target);
    }
}

/// Evicts any connection, even a protected one.
struct Anyone<'a, E>(&'a mut E);

impl<K, H, E: Eviction<K, (Connection, H)>> Eviction<K, (Connection, H)> for Anyone<'_, E> {
    fn class(&self, new: &(Connection, H)) -> Class {
        self.0.class(new)
    }

    fn rank(&mut self, _: &(Connection, H), _: Class, _: u64) -> Option<u8> {
        Some(0)
    }

    fn leaves(&mut self, key: K, value: (Connection, H)) {
        self.0.leaves(key, value);
    }
}

/// Makes a table that hashes with `seed`, or with its own random seed.
pub(crate) fn new_table<K: Key, V>(
    arena: Arena,
    config: Config,
    seed: Option<u64>,
) -> Result<Table<K, V>, FlowError> {
    match seed {
        Some(seed) => Table::with_seed(arena, config, seed),
        None => Table::new(arena, config),
    }
}

/// The class of a connection's entry.
const fn class(connection: &Connection) -> Class {
    Class::new(connection.state() as usize)
}
