//! The connections of one IP version. Uses one table and the burst's hints. A protected connection
//! leaves only if the table is full of protected ones.

use super::journal::Journal;
use crate::connection::Connection;
use crate::services::TargetId;
use hotloop::arena::Arena;
use hotloop::flow::{self, Class, Config, Eviction, FlowError, Handle, Hints, Key, Table};
use hotloop::packet::flow_key::FlowKey;
use hotloop::stage::{Error, Instant};

/// The connections of an IP version, and the value stored with each.
#[derive(Debug)]
pub(super) struct Family<K: Key, H> {
    pub(super) table: Table<K, (Connection, H)>,
    /// Positions of a burst's connections, by index in the burst: see
    /// [`Connections::hint_burst`](super::Connections::hint_burst).
    pub(super) hints: Hints,
    /// Number of protected eviction candidates in a row. At the capacity, the sample suggests that
    /// the table is full of protected connections, and one of them is evicted.
    protected_count: usize,
}

impl<K: Key + Into<FlowKey>, H: Copy> Family<K, H> {
    pub(super) fn new(
        arena: Arena,
        config: Config,
        table_seed: Option<u64>,
    ) -> Result<Self, Error> {
        let table = new_table(arena, config, table_seed)?;
        Ok(Self { table, hints: Hints::new(), protected_count: 0 })
    }

    /// The connection of a key. A connection that an earlier packet of the burst began may be left
    /// to [`Connections::find`](super::Connections::find).
    #[inline(always)]
    pub(super) fn found(&mut self, key: &K, index: usize, now: Instant) -> Option<&Connection> {
        let found = self.table.find(key, self.hints.at(index), now.as_ns());
        found.map(|(_, (connection, _))| connection)
    }

    #[inline(always)]
    pub(super) fn likely_target(&self, index: usize) -> Option<TargetId> {
        let (connection, _) = self.table.likely_value(self.hints.at(index))?;
        Some(connection.target)
    }

    pub(super) fn peek(&self, key: &K, now: Instant) -> Option<Connection> {
        self.table.peek(key, now.as_ns()).map(|handle| self.table[handle].0)
    }

    /// Replaces a connection. If its target changes, calls `on_moved` on the value stored with it.
    pub(super) fn set(
        &mut self,
        handle: Handle,
        connection: Connection,
        on_moved: impl FnOnce(&mut H),
    ) {
        self.table.set_class(handle, class(&connection));
        let (before, kept) = &mut self.table[handle];
        if before.target != connection.target {
            on_moved(kept);
        }
        *before = connection;
    }

    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        vacancy: flow::Vacancy<K>,
        value: (Connection, H),
        (now, opening_ns): (Instant, u64),
        journal: &mut Journal,
        on_removed: impl FnMut(TargetId),
    ) -> Option<Handle> {
        let class = class(&value.0);
        let leaving = &mut Leaving { now, opening_ns, journal, on_removed, protected_count: 0 };
        let placed = self.table.insert_ranked(vacancy, value, class, now.as_ns(), leaving);
        if placed.is_ok() {
            self.protected_count = 0;
            return placed.ok();
        }
        self.protected_count += leaving.protected_count;
        self.insert_among_protected(vacancy.key(), value, class, leaving)
    }

    /// Inserts a connection in the place of a protected one, if enough candidates were protected.
    #[cold]
    #[inline(never)]
    fn insert_among_protected(
        &mut self,
        key: K,
        value: (Connection, H),
        class: Class,
        leaving: &mut Leaving<'_, impl FnMut(TargetId)>,
    ) -> Option<Handle> {
        if self.protected_count < self.table.capacity() {
            return None;
        }
        self.protected_count = 0;
        let now_ns = leaving.now.as_ns();
        let rank = |_: &(Connection, H), _: Class, _| Some(0);
        let leaves = |key: &K, value: &(Connection, H)| leaving.leaves(key, value);
        self.table.insert_ranked(key, value, class, now_ns, &mut (rank, leaves)).ok()
    }
}

/// Ranks connections, and chooses one to evict for another.
struct Leaving<'a, F> {
    now: Instant,
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
    fn rank(&mut self, (it, _): &(Connection, H), _: Class, silent_ns: u64) -> Option<u8> {
        let rank = it.rank(silent_ns, self.now, self.opening_ns);
        if rank.is_none() {
            self.protected_count += 1;
        }
        rank
    }

    #[inline(always)]
    fn leaves(&mut self, key: &K, (connection, _): &(Connection, H)) {
        if connection.is_own_exception() && self.journal.is_kept() {
            self.journal.note((*key).into());
        }
        (self.on_removed)(connection.target);
    }
}

/// Makes a table that hashes with `seed`, or with its own random seed.
pub fn new_table<K: Key, V>(
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
