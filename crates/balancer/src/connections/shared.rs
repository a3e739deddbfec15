//! The cluster's access to a worker's connections: the journal, walks and remote entries. Uses the
//! same tables as the packet path. Nothing here counts as a packet of a connection.

use super::{Connections, Journal, Kept, Place, Walk};
use crate::connection::Connection;
use hotloop::flow::Cursor;
use hotloop::packet::flow_key::FlowKey;
use hotloop::stage::Instant;

impl Connections {
    /// Keeps a journal of this many keys for the other nodes.
    #[must_use]
    pub fn journalling(self, keys_max: usize) -> Self {
        Self { journal: Journal::new(keys_max), ..self }
    }

    /// The journal for the other nodes.
    pub const fn journal(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// How long a connection in this state is remembered after its last packet, in nanoseconds.
    #[must_use]
    pub const fn idle_ns(&self, connection: &Connection) -> u64 {
        self.idle_ns[connection.state() as usize]
    }

    /// Journals changes of this node's exceptions, and connections that move here from another
    /// node.
    #[inline(never)]
    pub(super) fn journal_change(
        &mut self,
        (place, key): (Place, &FlowKey),
        after: &mut Connection,
        seen: Instant,
    ) {
        let Some(before) = self.connection(place) else { return };
        let said =
            |it: &Connection| it.is_own_exception().then(|| (it.target, it.state(), it.moves()));
        let is_news = said(&before) != said(after) || before.is_remote() && !after.is_remote();
        if is_news && self.journal.note(*key) {
            after.set_journalled(self.idle_ns(after), seen);
        }
    }

    /// The place of a key's connection, the connection, and its silence in nanoseconds. It does not
    /// count as seen.
    #[must_use]
    pub fn peek_silent(&self, key: &FlowKey, now: Instant) -> Option<(Place, Connection, u64)> {
        let (place, silent_ns) = match key {
            FlowKey::V4(key) => {
                let (handle, silent_ns) = self.v4.table.peek_silent(key, now.as_ns())?;
                (Place::V4(handle), silent_ns)
            }
            FlowKey::V6(key) => {
                let (handle, silent_ns) = self.v6.table.peek_silent(key, now.as_ns())?;
                (Place::V6(handle), silent_ns)
            }
        };
        Some((place, self.connection(place)?, silent_ns))
    }

    /// Prefetches the memory of the next `count` connections in the journal, before they are looked
    /// up.
    pub fn prefetch_journalled(&mut self, count: usize) {
        let Self { v4, v6, journal, journal_hints, .. } = self;
        let v4_keys = journal.iter().take(count).map(|key| match key {
            FlowKey::V4(key) => Some(*key),
            FlowKey::V6(_) => None,
        });
        v4.table.hint_burst(v4_keys, journal_hints);
        let v6_keys = journal.iter().take(count).map(|key| match key {
            FlowKey::V4(_) => None,
            FlowKey::V6(key) => Some(*key),
        });
        v6.table.hint_burst(v6_keys, journal_hints);
    }

    /// Changes the connection in a place to another node's view of it. It is removed after
    /// `left_ns` nanoseconds without a packet.
    ///
    /// # Panics
    /// If the connection has left the place.
    pub fn set_remote(&mut self, place: Place, connection: Connection, left_ns: u64) {
        let silent_ns = self.idle_ns(&connection).saturating_sub(left_ns);
        match place {
            Place::V4(handle) => {
                self.v4.set(handle, connection, Kept::forget_header);
                self.v4.table.set_silent_ns(handle, silent_ns);
            }
            Place::V6(handle) => {
                self.v6.set(handle, connection, |()| ());
                self.v6.table.set_silent_ns(handle, silent_ns);
            }
        }
    }

    /// Removes and returns the connection of a key.
    pub fn remove(&mut self, key: &FlowKey) -> Option<Connection> {
        match key {
            FlowKey::V4(key) => self.v4.table.remove(key).map(|(it, _)| it),
            FlowKey::V6(key) => self.v6.table.remove(key).map(|(it, ())| it),
        }
    }

    /// Visits the connections in the next `budget` slots, with the nanoseconds since their last
    /// packets. `visit` may change them, except for their states and targets. Returns where to
    /// continue, or `None` at the end. Connections that come, go or move meanwhile may be missed or
    /// visited twice.
    pub fn walk(
        &mut self,
        (walk, budget): (Walk, usize),
        now: Instant,
        mut visit: impl FnMut(&FlowKey, (&mut Connection, u64), &mut Journal),
    ) -> Option<Walk> {
        let Self { v4, v6, journal, .. } = self;
        match walk {
            Walk::V4(cursor) if !v4.table.is_empty() => {
                let next =
                    v4.table.scan_mut(now.as_ns(), cursor, budget, |key, (it, _), silent_ns| {
                        visit(&FlowKey::V4(*key), (it, silent_ns), journal);
                    });
                Some(next.map_or(Walk::V6(Cursor::default()), Walk::V4))
            }
            Walk::V4(_) => Some(Walk::V6(Cursor::default())),
            Walk::V6(_) if v6.table.is_empty() => None,
            Walk::V6(cursor) => {
                let next =
                    v6.table.scan_mut(now.as_ns(), cursor, budget, |key, (it, ()), silent_ns| {
                        visit(&FlowKey::V6(*key), (it, silent_ns), journal);
                    });
                next.map(Walk::V6)
            }
        }
    }

    /// Number of slots that a [`walk`](Self::walk) visits; tables without connections are skipped.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        let v4 = if self.v4.table.is_empty() { 0 } else { self.v4.table.slot_count() };
        let v6 = if self.v6.table.is_empty() { 0 } else { self.v6.table.slot_count() };
        v4 + v6
    }

    /// Number of times that connections have moved to other slots to make room for new ones.
    #[must_use]
    pub fn moved_count(&self) -> u64 {
        self.v4.table.stats().moved_count + self.v6.table.stats().moved_count
    }
}
