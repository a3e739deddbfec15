//! A cluster's access to a worker's connections: the journal of changes that other nodes must learn
//! of, walks, and remote entries. Uses the packet path's tables, and memory allocated at the
//! start. A key that finds no room in the journal is lost, and the loss is remembered. Nothing here
//! counts as a packet of a connection.

use super::{Connections, Kept, Position, Walk};
use crate::connection::Connection;
use hotloop::flow::{Cursor, Hint};
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4};
use hotloop::stage::Instant;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// A key that no connection has.
pub(crate) const NO_KEY: FlowKey =
    FlowKey::V4(FlowKeyV4::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, 0, 0, 0));

/// An empty vector with room for this many values. Its memory is touched here, so that no worker
/// takes a page fault later.
pub(crate) fn room_for<T: Clone>(count_max: usize, value: T) -> Vec<T> {
    let mut room = vec![value; count_max];
    room.clear();
    room
}

/// The keys of connections to claim, until control takes them. Their state is looked up then, so a
/// key only means that something must be reported.
///
/// All memory is allocated at the start. A key that finds no room is lost, and the journal
/// remembers the loss: then all exceptions must be walked.
#[derive(Debug, Default)]
pub struct Journal {
    keys: VecDeque<FlowKey>,
    keys_max: usize,
    has_lost: bool,
    has_new: bool,
    evicted_count: u64,
}

impl Journal {
    /// A journal with room for this many keys; with 0, nothing is kept.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        Self { keys: room_for(keys_max, NO_KEY).into(), keys_max, ..Self::default() }
    }

    /// Whether the journal keeps keys.
    #[inline]
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.keys_max > 0
    }

    /// Adds a connection. Returns whether there was room.
    #[cold]
    #[inline(never)]
    pub fn note(&mut self, key: FlowKey) -> bool {
        self.has_new = true;
        if self.keys.len() >= self.keys_max {
            self.has_lost = true;
            return false;
        }
        self.keys.push_back(key);
        true
    }

    /// Adds a connection to claim, which is then [shared](Connection::is_shared). It is kept for `idle_ns`
    /// after its last packet, which came at `seen`.
    pub fn claim(
        &mut self,
        key: &FlowKey,
        connection: &mut Connection,
        idle_ns: u64,
        seen: Instant,
    ) {
        connection.share();
        if self.note(*key) {
            connection.set_journalled(idle_ns, seen);
        }
    }

    /// Notes that a connection may have to be claimed again.
    pub const fn expect_due(&mut self) {
        self.has_new = true;
    }

    /// Counts a connection that was evicted, although it may be alive.
    pub const fn note_evicted(&mut self) {
        self.evicted_count += 1;
    }

    /// Number of such connections up to now.
    #[must_use]
    pub const fn evicted_count(&self) -> u64 {
        self.evicted_count
    }

    /// Removes and returns the oldest key.
    pub fn pop(&mut self) -> Option<FlowKey> {
        self.keys.pop_front()
    }

    /// The waiting keys, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &FlowKey> {
        self.keys.iter()
    }

    /// Number of waiting keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a key was lost since the last call.
    pub const fn take_has_lost(&mut self) -> bool {
        std::mem::replace(&mut self.has_lost, false)
    }

    /// Whether a connection that may become due was noted since the last call.
    pub const fn take_has_new(&mut self) -> bool {
        std::mem::replace(&mut self.has_new, false)
    }
}

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

    /// Time in nanoseconds until a silent connection in this state is removed.
    #[must_use]
    pub const fn idle_ns(&self, connection: &Connection) -> u64 {
        self.idle_ns[connection.state() as usize]
    }

    /// Changes the connection of a key at its position. Its last packet came at `seen`. Changes that
    /// other nodes need are journalled.
    ///
    /// # Panics
    /// If the connection has left the position.
    pub fn set(
        &mut self,
        position: Position,
        key: &FlowKey,
        mut connection: Connection,
        seen: Instant,
    ) {
        if self.journal.is_kept() {
            self.journal_change(position, key, &mut connection, seen);
        }
        self.put(position, connection);
    }

    /// Changes the connection at a position, without a journal.
    ///
    /// # Panics
    /// If the connection has left the position.
    #[inline]
    pub fn put(&mut self, position: Position, connection: Connection) {
        match position {
            Position::V4(handle) => self.v4.set(handle, connection, Kept::forget_header),
            Position::V6(handle) => self.v6.set(handle, connection, |()| ()),
        }
    }

    /// Journals changes of connections that peers know or have to know.
    #[inline(never)]
    fn journal_change(
        &mut self,
        position: Position,
        key: &FlowKey,
        after: &mut Connection,
        seen: Instant,
    ) {
        let Some(before) = self.connection(position) else { return };
        if !after.is_claimed() {
            return;
        }
        if before.is_remote() && !after.is_remote() {
            self.journal.expect_due();
        }
        let clock = self.clock(seen);
        let claim = |it: &Connection| (it.is_claimed(), it.target, it.state(), it.birth(clock));
        if claim(&before) != claim(after) {
            self.claim(key, after, seen);
        }
    }

    /// Journals a connection for a claim. Its last packet came at `seen`.
    pub fn claim(&mut self, key: &FlowKey, connection: &mut Connection, seen: Instant) {
        let idle_ns = self.idle_ns(connection);
        self.journal.claim(key, connection, idle_ns, seen);
    }

    /// The position of a key's connection, the connection, and its silence in nanoseconds. It does not
    /// count as seen.
    #[must_use]
    pub fn peek_silent(&self, key: &FlowKey, now: Instant) -> Option<(Position, Connection, u64)> {
        let (position, silent_ns) = match key {
            FlowKey::V4(key) => {
                let (handle, silent_ns) = self.v4.table.peek(key, Hint::NONE, now).ok()?;
                (Position::V4(handle), silent_ns)
            }
            FlowKey::V6(key) => {
                let (handle, silent_ns) = self.v6.table.peek(key, Hint::NONE, now).ok()?;
                (Position::V6(handle), silent_ns)
            }
        };
        Some((position, self.connection(position)?, silent_ns))
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

    /// Changes the connection at a position by a peer's claim, so that it is removed after `left_ns`
    /// nanoseconds without a packet.
    ///
    /// # Panics
    /// If the connection has left the position.
    pub fn set_claimed(
        &mut self,
        position: Position,
        mut connection: Connection,
        left_ns: u64,
        now: Instant,
    ) {
        let idle_ns = self.idle_ns(&connection);
        let silent_ns = idle_ns.saturating_sub(left_ns);
        // Peers know of this last packet.
        connection.set_journalled(idle_ns, now.earlier_by(silent_ns));
        match position {
            Position::V4(handle) => {
                self.v4.set(handle, connection, Kept::forget_header);
                self.v4.table.set_silent_ns(handle, silent_ns);
            }
            Position::V6(handle) => {
                self.v6.set(handle, connection, |()| ());
                self.v6.table.set_silent_ns(handle, silent_ns);
            }
        }
    }

    /// Visits the connections in the next `budget` slots, with the hashes of their flows if these
    /// are kept, and the nanoseconds since their last packets. `visit` may change them, except for their states and targets. Returns where to
    /// continue, or `None` at the end. Connections that come, go or move meanwhile may be missed or
    /// visited twice.
    pub fn walk(
        &mut self,
        walk: Walk,
        budget: usize,
        now: Instant,
        mut visit: impl FnMut(&FlowKey, Option<u32>, &mut Connection, u64, &mut Journal),
    ) -> Option<Walk> {
        let Self { v4, v6, journal, .. } = self;
        match walk {
            Walk::V4(cursor) if !v4.table.is_empty() => {
                let next = v4.table.visit_places(
                    now,
                    cursor,
                    budget,
                    |key, (connection, kept), silent_ns| {
                        let hash = Some(kept.flow_hash());
                        visit(&FlowKey::V4(*key), hash, connection, silent_ns, journal);
                    },
                );
                Some(next.map_or(Walk::V6(Cursor::default()), Walk::V4))
            }
            Walk::V4(_) => Some(Walk::V6(Cursor::default())),
            Walk::V6(_) if v6.table.is_empty() => None,
            Walk::V6(cursor) => {
                let next = v6.table.visit_places(
                    now,
                    cursor,
                    budget,
                    |key, (connection, ()), silent_ns| {
                        visit(&FlowKey::V6(*key), None, connection, silent_ns, journal);
                    },
                );
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exceptions::Record;
    use crate::services::TargetId;
    use crate::state::State;
    use hotloop::flow::{CLASS_COUNT, STEP_NS};
    use hotloop::packet::tcp::flags::{ACK, PSH, RST, SYN};
    use hotloop_agreement::{Birth, Choice, Known};
    use std::net::IpAddr;

    fn key(port: u16) -> FlowKey {
        let client = format!("198.51.100.7:{port}").parse().unwrap();
        FlowKey::new(client, "203.0.113.10:80".parse().unwrap(), 6).unwrap()
    }

    #[test]
    fn what_finds_no_room_is_known_to_be_lost() {
        let mut journal = Journal::new(2);
        assert!(journal.note(key(1)) && journal.note(key(2)));
        assert!(!journal.take_has_lost());
        assert!(!journal.note(key(3)));
        assert!(journal.take_has_lost() && !journal.take_has_lost());
        assert_eq!((journal.len(), journal.pop()), (2, Some(key(1))));
        assert!(journal.note(key(4)) && !journal.take_has_lost());
        assert_eq!(
            [journal.pop(), journal.pop(), journal.pop()],
            [Some(key(2)), Some(key(4)), None]
        );
        assert!(journal.take_has_new() && !journal.take_has_new());
    }

    #[test]
    fn one_with_no_room_takes_no_memory() {
        let mut journal = Journal::default();
        assert!(!journal.is_kept() && !journal.note(key(1)) && journal.is_empty());
        assert_eq!(journal.keys.capacity(), 0);
    }

    const TARGET: TargetId = TargetId { slot: 3, generation: 1 };
    const BACKEND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const IDLE_NS: u64 = 900_000_000_000;
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn seconds(count: u64) -> Instant {
        Instant::from_ns(count * 1_000_000_000)
    }

    /// TCP connections, known in each way; with whether each is an exception.
    fn connections() -> Vec<(Connection, bool)> {
        let begun = |flags| Connection::new(TARGET, 6, flags, seconds(1));
        let mut established = begun(SYN);
        established.follow_client(ACK, seconds(2));
        let its = |state, birth| {
            let record = Record { key: key(1), backend: BACKEND, state, birth, left_ms: 1000 };
            Connection::remote(TARGET, &record, seconds(1))
        };
        let birth = Birth::new(50);
        let states = [State::Opening, State::Established, State::Closing];
        let remote = states.into_iter().flat_map(|state| {
            [birth, birth.adopted(), Birth::UNKNOWN].map(|birth| its(state, birth))
        });
        let own = [begun(SYN), begun(ACK), begun(RST), established];
        let shared = own.iter().copied().map(|mut it| {
            it.share();
            it
        });
        let shared: Vec<_> = shared.chain(remote).collect();
        let exceptions = shared.iter().copied().map(|mut it| {
            it.set_exception(true);
            (it, true)
        });
        let as_referred = own.iter().chain(&shared).map(|it| (*it, false));
        as_referred.chain(exceptions).collect()
    }

    /// The worker changes connections by code of its own, for speed. The search of the agreement runs
    /// the rules: both must do the same.
    #[test]
    fn packets_change_connections_as_the_rules_of_the_agreement_do() {
        let now = seconds(60);
        let mut claimed_count = 0;
        for (before, is_exception) in connections() {
            let reference = if is_exception { ELSEWHERE } else { BACKEND };
            let choice = Choice {
                current: BACKEND,
                reference,
                is_reference_gone: false,
                other: None,
                is_loose: false,
            };
            let known = Known::Entry(before.entry(BACKEND, now));
            let is_closing = before.state() == State::Closing;
            for flags in [SYN, ACK, PSH | ACK].into_iter().filter(|it| *it != ACK || !is_closing) {
                let rules = match flags {
                    SYN => known.after_syn(&choice, Birth::new(now.as_ns() / STEP_NS)),
                    _ => known.after_packet(&choice),
                };
                let connections = Connections::new(16, [IDLE_NS; CLASS_COUNT], None, Some(1));
                let mut connections = connections.unwrap().journalling(4);
                let vacancy = connections.find(&key(1), now).unwrap_err();
                let kept = Kept::without_header(0);
                let position = connections.insert(vacancy, kept, before, now, |_| ()).unwrap();
                let mut after = before;
                after.follow_client(flags, now);
                connections.set(position, &key(1), after, now);
                let after = connections.connection(position).unwrap();
                assert_eq!(
                    Known::Entry(after.entry(BACKEND, now)),
                    rules.known,
                    "{before:?} {flags}"
                );
                // Peers learn, too, that a connection is established.
                let is_news = before.is_shared() && before.state() != after.state();
                let is_claimed = connections.journal().pop().is_some();
                assert_eq!(is_claimed, rules.claim.is_some() || is_news, "{before:?} {flags}");
                claimed_count += usize::from(is_claimed);
            }
        }
        assert!(claimed_count > 10, "{claimed_count}");
    }
}
