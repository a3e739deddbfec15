//! The exchange of exceptions between control and a worker, between bursts. Uses the memory that
//! control sends with each [`Exchange`], and allocates no memory. Every step is bounded, so that packets
//! never wait for a walk through the table.

use super::import::Imported;
use super::{Tables, Worker};
use crate::connection::{Connection, State};
use crate::connections::{Journal, NO_KEY, Walk, room_for};
use crate::exceptions::{Change, Record, left_ms};
use crate::services::{ServiceTable, TargetId};
use hotloop::engine::Mailbox;
use hotloop::packet::flow_key::FlowKey;
use hotloop::stage::Instant;
use std::net::Ipv4Addr;

/// Maximum number of connections that a worker looks up in a turn for an [`Exchange`]: each lookup
/// may wait for memory.
const LOOKUPS_A_TURN: usize = 4;

/// Time for one of these lookups, in nanoseconds. A short turn makes fewer lookups, so that no turn
/// takes much longer than the others.
const NS_A_LOOKUP: u64 = 1_000;

/// Maximum number of changes that a worker reports for one connection: a claim and an end.
const CHANGES_EACH: usize = 2;

/// Maximum number of connections that a worker examines in a turn, in sequence. Each one that is an
/// exception costs a lookup.
const CONNECTIONS_A_TURN: usize = 32;

/// Maximum time for one page, in nanoseconds, so that changes don't wait for a walk through a large
/// table.
const PAGE_NS_MAX: u64 = 5_000_000;

/// The worker's side of sharing exceptions with other nodes.
#[derive(Debug)]
pub struct Sharing {
    /// Control's requests for exceptions, and the exceptions of other nodes.
    pub mailbox: Mailbox<Exchange, Exchange>,
    /// Maximum number of connections that wait in the journal until control fetches them.
    pub journal_max: usize,
}

/// A request from control to a worker. Control sends it with all the memory that the answer needs,
/// and gets it back when it is done.
#[derive(Debug)]
pub enum Exchange {
    /// The worker reports the changes since the last request.
    Changes(Box<Changes>),
    /// The worker reports some of its exceptions.
    Exceptions(Box<Page>),
    /// The worker enters the exceptions of other nodes.
    Import(Box<Import>),
    /// The worker keeps this journal from now on, and returns the previous one.
    Journal(Box<Journal>),
}

/// Changes of a worker's own exceptions.
#[derive(Debug, Default)]
pub struct Changes {
    /// Claims and ends, up to the capacity.
    pub found: Vec<Change>,
    /// Number of connections that still wait.
    pub waiting_count: usize,
    /// Whether changes were lost since control last got this flag: then it must go through all
    /// exceptions again.
    pub has_lost: bool,
    /// The [serial](ServiceTable::serial) of the service table in use, if its exceptions are
    /// marked.
    pub marked: Option<u64>,
}

/// Some of a worker's exceptions.
#[derive(Debug)]
pub struct Page {
    /// Position at which the worker must continue; `None` once it has examined all of its
    /// connections.
    pub walk: Option<Walk>,
    /// The exceptions found in a range of the tables' slots, up to the capacity.
    pub found: Vec<Record>,
    /// The connections of other nodes found in the same slots, exceptions or not.
    pub entered: Vec<Record>,
    /// Whether to report connections of other nodes, too.
    has_remote: bool,
    /// The time at which the worker began this page.
    begin: Option<Instant>,
}

/// Exceptions of other nodes, for a worker.
#[derive(Debug, Default)]
pub struct Import {
    /// The entries, in order of arrival.
    pub entries: Vec<Entry>,
    /// Number of entries that are done.
    done_count: usize,
    /// Number of entries older than the worker's own knowledge.
    pub stale_count: u64,
    /// Number of entries refused, for lack of room or because the backend is gone.
    pub refused_count: u64,
}

/// An exception of another node.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// The connection is on this target.
    Claim(Record, TargetId),
    /// The connection has ended.
    End(FlowKey),
}

impl Changes {
    /// An empty value with room for this many changes.
    #[must_use]
    pub fn with_capacity(found_max: usize) -> Self {
        Self { found: room_for(found_max, Change::End(NO_KEY)), ..Self::default() }
    }
}

impl Page {
    /// Minimum number of exceptions that a page must have room for.
    pub const FOUND_MIN: usize = CONNECTIONS_A_TURN;

    /// An empty page with room for this many exceptions, and at least
    /// [`FOUND_MIN`](Self::FOUND_MIN).
    #[must_use]
    pub fn with_capacity(found_max: usize) -> Self {
        let found_max = found_max.max(Self::FOUND_MIN);
        let no_record = Record {
            key: NO_KEY,
            backend: Ipv4Addr::UNSPECIFIED.into(),
            state: State::Opening,
            age_ms: 0,
            left_ms: 0,
            moves: 0,
            wins_ties: false,
        };
        Self {
            walk: Some(Walk::default()),
            found: room_for(found_max, no_record),
            entered: room_for(found_max, no_record),
            has_remote: false,
            begin: None,
        }
    }

    /// Empties the page. The worker continues from its last position.
    pub fn clear(&mut self) {
        self.found.clear();
        self.entered.clear();
        self.begin = None;
    }

    /// Whether the page is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.found.is_empty() && self.entered.is_empty()
    }

    /// Makes the worker begin again. With `has_remote`, it reports connections of other nodes, too.
    pub fn restart(&mut self, has_remote: bool) {
        self.clear();
        self.has_remote = has_remote;
        self.walk = Some(Walk::default());
    }
}

impl Import {
    /// An empty value with room for this many entries.
    #[must_use]
    pub fn with_capacity(entries_max: usize) -> Self {
        Self { entries: Vec::with_capacity(entries_max), ..Self::default() }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
        (self.done_count, self.stale_count, self.refused_count) = (0, 0, 0);
    }

    fn next(&mut self) -> Option<Entry> {
        let next = self.entries.get(self.done_count).copied()?;
        self.done_count += 1;
        Some(next)
    }
}

/// The worker's end of the mailbox, with the exchange in progress.
#[derive(Debug)]
pub(super) struct Exchanges {
    mailbox: Option<Mailbox<Exchange, Exchange>>,
    /// The exchange in progress, and the time of its last turn.
    current: Option<(Exchange, Instant)>,
}

impl Exchanges {
    pub(super) fn new(sharing: Option<Sharing>) -> Self {
        Self { mailbox: sharing.map(|sharing| sharing.mailbox), current: None }
    }

    /// Whether this worker shares exceptions.
    #[inline]
    pub(super) const fn are_made(&self) -> bool {
        self.mailbox.is_some()
    }

    /// Whether an exchange is in progress.
    pub(super) const fn has_work(&self) -> bool {
        self.current.is_some()
    }

    /// Continues with the exchange in progress, or with the next one: a bounded step.
    #[inline]
    pub(super) fn go_on<P>(&mut self, worker: &mut Worker<P>, tables: Tables<'_>, now: Instant) {
        let Some(mailbox) = &mut self.mailbox else { return };
        let next = self.current.take().or_else(|| Some((mailbox.request()?, now)));
        let Some((mut current, turned)) = next else { return };
        let lookups_max = (now.ns_since(turned) / NS_A_LOOKUP).clamp(1, LOOKUPS_A_TURN as u64);
        if worker.exchange(&mut current, tables, lookups_max as usize, now) {
            mailbox.answer(current);
        } else {
            self.current = Some((current, now));
        }
    }
}

impl<P> Worker<P> {
    /// Takes one step of an exchange, with at most this many lookups of connections. Returns
    /// whether it was the last step.
    #[cold]
    #[inline(never)]
    fn exchange(
        &mut self,
        exchange: &mut Exchange,
        tables: Tables<'_>,
        lookups_max: usize,
        now: Instant,
    ) -> bool {
        let Tables { services, counts } = tables;
        match exchange {
            Exchange::Changes(changes) => self.find_changes(changes, services, lookups_max, now),
            Exchange::Exceptions(page) => self.find_exceptions(page, services, now),
            Exchange::Journal(journal) => {
                std::mem::swap(self.connections.journal(), journal);
                true
            }
            Exchange::Import(import) => {
                for _ in 0..lookups_max {
                    let Some(entry) = import.next() else { break };
                    let imported = match &entry {
                        Entry::Claim(record, target) => self.import(tables, record, *target, now),
                        Entry::End(key) => self.end_remote(counts, key, now),
                    };
                    import.stale_count += u64::from(imported == Imported::Stale);
                    import.refused_count += u64::from(imported == Imported::Refused);
                }
                import.done_count == import.entries.len()
            }
        }
    }

    fn find_changes(
        &mut self,
        changes: &mut Changes,
        services: &ServiceTable,
        lookups_max: usize,
        now: Instant,
    ) -> bool {
        let room = changes.found.capacity() - changes.found.len();
        for _ in 0..lookups_max.min(room / CHANGES_EACH) {
            let Some(key) = self.connections.journal().pop() else { break };
            let found = self.connections.peek_silent(&key, now);
            let found = found.map(|(_, connection, silent_ns)| (connection, silent_ns));
            // A peer's connection is left to its owner, which decides and claims again.
            if found.is_some_and(|(connection, _)| connection.is_remote()) {
                continue;
            }
            let is_exception = found.is_some_and(|(connection, _)| connection.is_own_exception());
            // Other nodes don't know the connection that began here in the place of a peer's. Its
            // claim replaces the peer's there, too, and only then can an end follow.
            let is_another =
                |connection: &Connection| connection.has_seen_syn() && connection.moves() != 0;
            let claimed = found.filter(|(connection, _)| is_exception || is_another(connection));
            let claim = claimed.and_then(|(connection, silent_ns)| {
                claim(services, &key, &connection, silent_ns, now)
            });
            changes.found.extend(claim.map(Change::Claim));
            if !is_exception || claim.is_none() {
                changes.found.push(Change::End(key));
            }
        }
        let journal = self.connections.journal();
        let is_full = changes.found.capacity() - changes.found.len() < CHANGES_EACH;
        if !is_full && !journal.is_empty() {
            self.connections.prefetch_journalled(lookups_max);
            return false;
        }
        changes.waiting_count = journal.len();
        changes.has_lost = journal.take_has_lost();
        changes.marked = self.marking.is_complete().then(|| services.serial());
        true
    }

    fn find_exceptions(&self, page: &mut Page, services: &ServiceTable, now: Instant) -> bool {
        let Page { walk, found, entered, has_remote, begin } = page;
        let begin = *begin.get_or_insert(now);
        let Some(from) = *walk else { return true };
        *walk = self.connections.scan(from, CONNECTIONS_A_TURN, |key, connection| {
            let records = match connection.is_own_exception() {
                true => &mut *found,
                false if *has_remote && connection.is_remote() => &mut *entered,
                false => return,
            };
            if let Some((_, _, silent_ns)) = self.connections.peek_silent(&key, now) {
                records.extend(claim(services, &key, &connection, silent_ns, now));
            }
        });
        let is_full = [found, entered]
            .iter()
            .any(|records| records.capacity() - records.len() < CONNECTIONS_A_TURN);
        walk.is_none() || is_full || now.ns_since(begin) >= PAGE_NS_MAX
    }
}

/// This node's claim to a connection; `None` if its backend is gone.
fn claim(
    services: &ServiceTable,
    key: &FlowKey,
    connection: &Connection,
    silent_ns: u64,
    now: Instant,
) -> Option<Record> {
    let target = services.active(connection.target)?;
    let idle_ns = services.settings.idle_ns[connection.state() as usize];
    Some(Record {
        key: *key,
        backend: target.address(),
        state: connection.state(),
        age_ms: connection.age_ms(now),
        left_ms: left_ms(idle_ns, silent_ns),
        moves: connection.moves(),
        wins_ties: false,
    })
}
