//! The exchange of exceptions between control and a worker, between bursts. Uses the memory that
//! control sends with each [`Exchange`], and allocates no memory. Every step is bounded, so that packets
//! never wait for a walk through the table.

use super::import::Imported;
use super::{Tables, Worker};
use crate::connection::{Connection, State};
use crate::connections::{Journal, NO_KEY, Walk, room_for};
use crate::exceptions::{Record, left_ms};
use crate::services::{ServiceTable, TargetId};
use hotloop::engine::Mailbox;
use hotloop::packet::flow_key::FlowKey;
use hotloop::stage::Instant;
use hotloop_agreement::Birth;
use std::net::{IpAddr, Ipv4Addr};

/// Maximum number of connections that a worker looks up in a turn for an [`Exchange`]: each lookup
/// may wait for memory.
const LOOKUPS_A_TURN: usize = 4;

/// Time for one of these lookups, in nanoseconds. A short turn makes fewer lookups, so that no turn
/// takes much longer than the others.
const NS_A_LOOKUP: u64 = 1_000;

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

/// Changes of a worker's connections that peers know or have to know.
#[derive(Debug, Default)]
pub struct Changes {
    /// Claims, up to the capacity.
    pub found: Vec<Record>,
    /// The time by the cluster's [clock](crate::clock), in steps: control's in the request, and the
    /// worker's in the answer.
    pub clock: u64,
    /// Number of connections that still wait.
    pub waiting_count: usize,
    /// Whether changes were lost since control last got this flag: then it must go through all
    /// exceptions again.
    pub has_lost: bool,
    /// Number of connections that were evicted up to now, although they may be alive.
    pub evicted_count: u64,
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
    /// The connections that peers know or have to know, found in a range of the tables' slots, up to
    /// the capacity.
    pub found: Vec<Record>,
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

/// A message of another node, or about one.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// The connection is on this target.
    Claim(Record, TargetId),
    /// The connection has to be claimed again.
    Inherit(FlowKey),
}

const NO_RECORD: Record = Record {
    key: NO_KEY,
    backend: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    state: State::Opening,
    birth: Birth::UNKNOWN,
    left_ms: 0,
};

impl Changes {
    /// An empty value with room for this many changes.
    #[must_use]
    pub fn with_capacity(found_max: usize) -> Self {
        Self { found: room_for(found_max, NO_RECORD), ..Self::default() }
    }
}

impl Page {
    /// Minimum number of exceptions that a page must have room for.
    pub const FOUND_MIN: usize = CONNECTIONS_A_TURN;

    /// An empty page with room for this many exceptions, and at least
    /// [`FOUND_MIN`](Self::FOUND_MIN).
    #[must_use]
    pub fn with_capacity(found_max: usize) -> Self {
        let found = room_for(found_max.max(Self::FOUND_MIN), NO_RECORD);
        Self { walk: Some(Walk::default()), found, begin: None }
    }

    /// Empties the page. The worker continues from its last position.
    pub fn clear(&mut self) {
        self.found.clear();
        self.begin = None;
    }

    /// Whether the page is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Makes the worker begin again.
    pub fn restart(&mut self) {
        self.clear();
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
        let services = tables.services;
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
                        Entry::Inherit(key) => self.inherit(key, now),
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
        changes.clock = self.connections.hear_clock(changes.clock, now);
        let room = changes.found.capacity() - changes.found.len();
        for _ in 0..lookups_max.min(room) {
            let Some(key) = self.connections.journal().pop() else { break };
            let found = self.connections.peek_silent(&key, now);
            changes.found.extend(found.and_then(|(_, connection, silent_ns)| {
                self.claim(services, &key, &connection, silent_ns, now)
            }));
        }
        let journal = self.connections.journal();
        let is_full = changes.found.capacity() == changes.found.len();
        if !is_full && !journal.is_empty() {
            self.connections.prefetch_journalled(lookups_max);
            return false;
        }
        changes.waiting_count = journal.len();
        changes.has_lost = journal.take_has_lost();
        changes.evicted_count = journal.evicted_count();
        changes.marked = self.marking.is_complete().then(|| services.serial());
        true
    }

    fn find_exceptions(&self, page: &mut Page, services: &ServiceTable, now: Instant) -> bool {
        let Page { walk, found, begin } = page;
        let begin = *begin.get_or_insert(now);
        let Some(from) = *walk else { return true };
        *walk = self.connections.scan(from, CONNECTIONS_A_TURN, |key, connection| {
            if connection.is_claimed()
                && let Some((_, _, silent_ns)) = self.connections.peek_silent(&key, now)
            {
                found.extend(self.claim(services, &key, &connection, silent_ns, now));
            }
        });
        let is_full = found.capacity() - found.len() < CONNECTIONS_A_TURN;
        walk.is_none() || is_full || now.ns_since(begin) >= PAGE_NS_MAX
    }

    /// This node's claim to a connection; `None` if its backend is gone.
    fn claim(
        &self,
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
            birth: connection.birth(self.connections.clock(now)),
            left_ms: left_ms(idle_ns, silent_ns),
        })
    }
}
