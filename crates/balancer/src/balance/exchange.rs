//! What control and a worker hand each other of exceptions, between bursts and in bounded steps.

use super::Worker;
use super::import::{Imported, claim};
use crate::connection::{Connection, State};
use crate::connections::{Journal, NO_KEY, Walk, room_for};
use crate::counts::WorkerCounts;
use crate::exceptions::{Change, Record};
use crate::services::{ServiceTable, TargetId};
use hotloop::engine::Mailbox;
use hotloop::packet::flow_key::FlowKey;
use hotloop::stage::Instant;
use std::net::Ipv4Addr;

/// How many connections a worker looks up in a turn for an [`Exchange`], at most: each may wait for memory.
const LOOKUPS_A_TURN: usize = 4;

/// In how many nanoseconds it looks up one of them: a turn that is short takes fewer, so that none takes much longer than the
/// others.
const NS_A_LOOKUP: u64 = 1_000;

/// How many changes a worker says of a connection at most: a claim and an end.
const CHANGES_EACH: usize = 2;

/// How many places of its tables it looks at in a turn, one after the other. Where all are exceptions, it
/// looks up as many.
const SLOTS_A_TURN: usize = 32;

/// For how long it looks for a page at most, in nanoseconds, so that changes don't wait for a walk through a large table.
const PAGE_NS_MAX: u64 = 5_000_000;

/// By which a worker shares its exceptions with other nodes.
#[derive(Debug)]
pub struct Sharing {
    /// By which control asks for them, and hands over those of other nodes.
    pub mailbox: Mailbox<Exchange, Exchange>,
    /// How many connections may wait for control to take note of them.
    pub journal_max: usize,
}

/// Something that control and a worker do together. Control sends it with all the memory that it needs, and
/// gets it back when it is done.
#[derive(Debug)]
pub enum Exchange {
    /// The worker hands over what has changed since it was last asked.
    Changes(Box<Changes>),
    /// It hands over some of its exceptions.
    Exceptions(Box<Page>),
    /// It takes those of other nodes.
    Import(Box<Import>),
    /// It keeps this journal from now on, and hands over the one that it kept.
    Journal(Box<Journal>),
}

/// What has changed of a worker's own exceptions.
#[derive(Debug, Default)]
pub struct Changes {
    /// Claims and ends, as many as there is room for.
    pub found: Vec<Change>,
    /// How many connections still wait.
    pub waiting_count: usize,
    /// Whether changes were lost since control last heard so: then it has to go through all exceptions again.
    pub has_lost: bool,
    /// The [serial](ServiceTable::serial) of the service table in use, where its exceptions are marked.
    pub marked: Option<u64>,
}

/// Some of a worker's exceptions.
#[derive(Debug)]
pub struct Page {
    /// Where the worker is to go on; none once it has looked through all of its connections.
    pub walk: Option<Walk>,
    /// Those that were found, as many as there is room for, in some of the tables' places.
    pub found: Vec<Record>,
    /// Connections of other nodes that were found, exceptions or not.
    pub entered: Vec<Record>,
    /// Whether those are to be found, too.
    has_remote: bool,
    /// When the worker began to look, for this page.
    begin: Option<Instant>,
}

/// Exceptions of other nodes, for a worker.
#[derive(Debug, Default)]
pub struct Import {
    /// In the order in which they came.
    pub entries: Vec<Entry>,
    /// How many are done.
    done_count: usize,
    /// How many say less than what the worker knows.
    pub stale_count: u64,
    /// How many were refused, for lack of room or because the backend is gone.
    pub refused_count: u64,
}

/// An exception of another node.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// It is on this target.
    Claim(Record, TargetId),
    /// It has ended.
    End(FlowKey),
}

impl Changes {
    /// None yet, with room for this many.
    #[must_use]
    pub fn with_capacity(found_max: usize) -> Self {
        Self { found: room_for(found_max, Change::End(NO_KEY)), ..Self::default() }
    }
}

impl Page {
    /// The fewest exceptions that a page must have room for.
    pub const FOUND_MIN: usize = SLOTS_A_TURN;

    /// An empty one, with room for this many, and [`FOUND_MIN`](Self::FOUND_MIN) at least.
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

    /// Makes room for others. The worker goes on where it was.
    pub fn clear(&mut self) {
        self.found.clear();
        self.entered.clear();
        self.begin = None;
    }

    /// Whether nothing was found.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.found.is_empty() && self.entered.is_empty()
    }

    /// Has the worker begin again, and find connections of other nodes, too, where that is wanted.
    pub fn restart(&mut self, has_remote: bool) {
        self.clear();
        self.has_remote = has_remote;
        self.walk = Some(Walk::default());
    }
}

impl Import {
    /// With room for this many.
    #[must_use]
    pub fn with_capacity(entries_max: usize) -> Self {
        Self { entries: Vec::with_capacity(entries_max), ..Self::default() }
    }

    /// Makes room for others.
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

/// The worker's end, with what is in progress.
#[derive(Debug)]
pub(super) struct Exchanges {
    mailbox: Option<Mailbox<Exchange, Exchange>>,
    /// The one in progress, and when it had its last turn.
    current: Option<(Exchange, Instant)>,
}

impl Exchanges {
    pub(super) fn new(sharing: Option<Sharing>) -> Self {
        Self { mailbox: sharing.map(|it| it.mailbox), current: None }
    }

    /// Whether there are any.
    #[inline]
    pub(super) const fn are_made(&self) -> bool {
        self.mailbox.is_some()
    }

    /// Whether one is in progress.
    pub(super) const fn has_work(&self) -> bool {
        self.current.is_some()
    }

    /// Goes on with the one in progress, or the next one: a bounded step.
    #[inline]
    pub(super) fn go_on<P>(
        &mut self,
        worker: &mut Worker<P>,
        context: (&ServiceTable, &WorkerCounts),
        now: Instant,
    ) {
        let Some(mailbox) = &mut self.mailbox else { return };
        let next = self.current.take().or_else(|| Some((mailbox.request()?, now)));
        let Some((mut current, turned)) = next else { return };
        let lookups_max = (now.ns_since(turned) / NS_A_LOOKUP).clamp(1, LOOKUPS_A_TURN as u64);
        if worker.exchange(&mut current, context, (lookups_max as usize, now)) {
            mailbox.answer(current);
        } else {
            self.current = Some((current, now));
        }
    }
}

impl<P> Worker<P> {
    /// A step of an exchange, with so many connections to look up at most. Returns whether it was the last one.
    #[cold]
    #[inline(never)]
    fn exchange(
        &mut self,
        exchange: &mut Exchange,
        (services, counts): (&ServiceTable, &WorkerCounts),
        (lookups_max, now): (usize, Instant),
    ) -> bool {
        match exchange {
            Exchange::Changes(changes) => self.find_changes(changes, services, (lookups_max, now)),
            Exchange::Exceptions(page) => self.find_exceptions(page, services, now),
            Exchange::Journal(journal) => {
                std::mem::swap(self.connections.journal(), journal);
                true
            }
            Exchange::Import(import) => {
                for _ in 0..lookups_max {
                    let Some(entry) = import.next() else { break };
                    let context = (services, counts);
                    let imported = match &entry {
                        Entry::Claim(record, target) => self.import(context, record, *target, now),
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
        (lookups_max, now): (usize, Instant),
    ) -> bool {
        let room = changes.found.capacity() - changes.found.len();
        for _ in 0..lookups_max.min(room / CHANGES_EACH) {
            let Some(key) = self.connections.journal().pop() else { break };
            let found = self.connections.peek_silent(&key, now);
            let found = found.map(|(_, connection, silent_ns)| (connection, silent_ns));
            // Of a peer's, its owner says what becomes of it.
            if found.is_some_and(|(connection, _)| connection.is_remote()) {
                continue;
            }
            let is_exception = found.is_some_and(|(connection, _)| connection.is_own_exception());
            // What began here in the place of a peer's is not what other nodes have: the claim takes the place there, too,
            // and then there is something that can end.
            let is_another = |it: &Connection| it.has_seen_syn() && it.moves() != 0;
            let claimed = found.filter(|(it, _)| is_exception || is_another(it));
            let claim =
                claimed.and_then(|(it, silent_ns)| claim(services, &key, (&it, silent_ns), now));
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
        *walk = self.connections.scan(from, SLOTS_A_TURN, |key, connection, _| {
            let records = match connection.is_own_exception() {
                true => &mut *found,
                false if *has_remote && connection.is_remote() => &mut *entered,
                false => return,
            };
            if let Some((_, _, silent_ns)) = self.connections.peek_silent(&key, now) {
                records.extend(claim(services, &key, (&connection, silent_ns), now));
            }
        });
        let is_full = [found, entered].iter().any(|it| it.capacity() - it.len() < SLOTS_A_TURN);
        walk.is_none() || is_full || now.ns_since(begin) >= PAGE_NS_MAX
    }
}
