//! Moves the exceptions of all workers to the other nodes of a cluster, and those of other nodes to
//! the workers.

use crate::balance::{Changes, Entry, Exchange, Import, Page};
use crate::classify::worker_of;
use crate::clock::STEPS_MAX;
use crate::connections::Journal;
use crate::exceptions::{Change, Record};
use crate::services::ServiceTable;
use hotloop::engine::Asker;

/// Number of exceptions that travel to or from a worker at once. This also bounds the exceptions
/// that wait for control, for each worker and direction.
const BATCH_MAX: usize = 4096;

/// Claims for the other nodes.
#[derive(Clone, Copy, Debug)]
pub enum Pulled<'a> {
    /// Claims to connections that have begun or changed.
    Changes(&'a [Record]),
    /// Claims to some of the connections that peers know or have to know, found in a
    /// [walk](ExceptionMover::begin_walk).
    Exceptions(&'a [Record]),
}

/// Moves exceptions between the workers and control. It never waits for a worker, and allocates all
/// of its memory at the start.
#[derive(Debug)]
pub struct ExceptionMover {
    asker: Asker<Exchange, Exchange>,
    /// A lane for each worker.
    lanes: Vec<Lane>,
    has_lost: bool,
    is_walk_held: bool,
    /// The number of the current round.
    round: u64,
    stale_count: u64,
    refused_count: u64,
    clock: u64,
}

/// The exchanges with one worker. There is one at a time.
#[derive(Debug)]
struct Lane {
    /// The memory for each kind of exchange, except the one in progress.
    changes: Option<Box<Changes>>,
    page: Option<Box<Page>>,
    import: Option<Box<Import>>,
    /// A journal for the worker, until it is sent, and whether it is on its way.
    journal: Option<Box<Journal>>,
    is_journal_out: bool,
    /// Entries for the next import.
    entries: Vec<Entry>,
    /// A returned exchange, until it is taken.
    pulled: Option<Exchange>,
    /// The kind of the previous exchange.
    last: Kind,
    is_walking: bool,
    /// Whether the page must begin again.
    restarts: bool,
    /// The worker's last reported mark.
    marked: Option<u64>,
    waiting_count: usize,
    evicted_count: u64,
    /// The round in which the worker was last asked for changes, and the first one in which it has not answered.
    asked_round: u64,
    unanswered_round: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Changes,
    Exceptions,
    Import,
}

impl ExceptionMover {
    /// Makes this for `worker_count` workers, which share their exceptions through `asker`.
    #[must_use]
    pub fn new(asker: Asker<Exchange, Exchange>, worker_count: usize) -> Self {
        let lanes = (0..worker_count).map(|_| Lane::new()).collect();
        Self {
            asker,
            lanes,
            has_lost: false,
            is_walk_held: false,
            round: 0,
            stale_count: 0,
            refused_count: 0,
            clock: 0,
        }
    }

    /// The time by the cluster's [clock](crate::clock), in steps, as workers have reported it.
    #[must_use]
    pub const fn clock(&self) -> u64 {
        self.clock
    }

    /// Notes that it is this late at another node.
    pub fn hear_clock(&mut self, steps: u64) {
        self.clock = self.clock.max(steps.min(STEPS_MAX));
    }

    /// Passes the workers' findings to `take`, and asks the workers for more: call this every few
    /// milliseconds. If `take` returns false, it gets the same findings again in the next call, and
    /// their worker is not asked until then.
    pub fn turn(&mut self, mut take: impl FnMut(Pulled<'_>) -> bool) {
        for worker in 0..self.lanes.len() {
            let lane = &mut self.lanes[worker];
            if let Some(answer) = self.asker.answer(worker) {
                lane.pulled = Some(answer);
            }
            match lane.pulled.take() {
                Some(pulled) => match lane.take(pulled, &mut take) {
                    Ok(taken) => {
                        self.has_lost |= taken.has_lost;
                        self.clock = self.clock.max(taken.clock);
                        self.stale_count += taken.stale_count;
                        self.refused_count += taken.refused_count;
                    }
                    Err(pulled) => lane.pulled = Some(pulled),
                },
                None if lane.is_out() => continue,
                None => {}
            }
            let is_page_out = self.lanes.iter().any(|lane| lane.page.is_none());
            let may_walk = !self.is_walk_held && !is_page_out;
            let has_answered = |lane: &Lane| lane.unanswered_round > self.round;
            self.round += u64::from(self.lanes.iter().all(has_answered));
            let (lane, round) = (&mut self.lanes[worker], self.round);
            if lane.pulled.is_none()
                && let Some(exchange) = lane.next(may_walk, self.clock, round)
                && let Err(exchange) = self.asker.ask(worker, exchange)
            {
                lane.put_back(exchange);
            }
        }
    }

    /// Pauses or continues a walk, so that findings do not come faster than they can be sent. One
    /// page in progress may still come: workers walk one after the other.
    pub const fn hold_walk(&mut self, is_held: bool) {
        self.is_walk_held = is_held;
    }

    /// Makes the workers walk all connections that peers know or have to know, from the beginning.
    pub fn begin_walk(&mut self) {
        for lane in &mut self.lanes {
            (lane.is_walking, lane.restarts) = (true, true);
        }
    }

    /// Whether a walk is in progress, or its findings were not all taken.
    #[must_use]
    pub fn is_walking(&self) -> bool {
        self.lanes.iter().any(|lane| lane.is_walking)
    }

    /// Whether changes were lost since the last call, because workers had no room for them: then
    /// the other nodes need all exceptions, by a [walk](Self::begin_walk).
    #[must_use]
    pub const fn take_has_lost(&mut self) -> bool {
        std::mem::replace(&mut self.has_lost, false)
    }

    /// Whether all exceptions with this service table were found and taken.
    #[must_use]
    pub fn is_marked(&self, table: &ServiceTable) -> bool {
        self.unmarked(table).next().is_none()
    }

    /// The workers with exceptions that were not all found and taken with this service table.
    pub fn unmarked(&self, table: &ServiceTable) -> impl Iterator<Item = usize> {
        let serial = table.serial();
        let lanes = self.lanes.iter().enumerate();
        let unmarked =
            lanes.filter(move |(_, lane)| lane.marked != Some(serial) || lane.waiting_count > 0);
        unmarked.map(|(worker, _)| worker)
    }

    /// Number of workers.
    #[must_use]
    pub const fn worker_count(&self) -> usize {
        self.lanes.len()
    }

    /// Makes each worker keep a journal of this many changes from now on, until control takes them;
    /// 0 for workers that share with no other nodes. Takes effect before the next walk.
    pub fn keep_journals(&mut self, keys_max: usize) {
        for lane in &mut self.lanes {
            lane.journal = Some(Box::new(Journal::new(keys_max)));
        }
    }

    /// Whether such a change is still on its way to a worker.
    #[must_use]
    pub fn has_journals(&self) -> bool {
        self.lanes.iter().any(|lane| lane.journal.is_some() || lane.is_journal_out)
    }

    /// Number of rounds that are over: in each, every worker was asked for changes and has answered. Once it is
    /// greater by two, all actions of workers before are taken.
    #[must_use]
    pub const fn round_count(&self) -> u64 {
        self.round
    }

    /// Number of changes that waited on the workers at their last answers.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.lanes.iter().map(|lane| lane.waiting_count).sum()
    }

    /// Number of connections that workers had evicted at their last answers, although they may be alive.
    #[must_use]
    pub fn evicted_count(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.evicted_count).sum()
    }

    /// Whether the workers have entered everything that [`import`](Self::import) took.
    #[must_use]
    pub fn has_entered_all(&self) -> bool {
        self.lanes.iter().all(|lane| lane.entries.is_empty() && lane.import.is_some())
    }

    /// Number of claims of other nodes that were older than this node's knowledge.
    #[must_use]
    pub const fn stale_count(&self) -> u64 {
        self.stale_count
    }

    /// Number of claims of other nodes that were refused: their backends are unknown here, or there
    /// is no room for them.
    #[must_use]
    pub const fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// Takes changes of other nodes, in order, as far as there is room. Returns the number taken:
    /// the rest is for the next turn. `table` is the service table in use.
    #[must_use]
    pub fn import(&mut self, table: &ServiceTable, changes: &[Change]) -> usize {
        let (hashes, worker_count) = (table.settings.hashes, self.lanes.len());
        for (index, change) in changes.iter().enumerate() {
            let key = match change {
                Change::Claim(record) => &record.key,
                Change::Inherit(key) => key,
            };
            let entries = &mut self.lanes[worker_of(key, &hashes, worker_count)].entries;
            if entries.len() >= BATCH_MAX {
                return index;
            }
            let entry = match change {
                Change::Inherit(key) => Some(Entry::Inherit(*key)),
                Change::Claim(record) => {
                    let target = table.target_at(key, record.backend);
                    target.map(|target| Entry::Claim(*record, target))
                }
            };
            match entry {
                Some(entry) => entries.push(entry),
                None => self.refused_count += 1,
            }
        }
        changes.len()
    }
}

/// The non-exception results of a worker.
#[derive(Default)]
struct Taken {
    has_lost: bool,
    clock: u64,
    stale_count: u64,
    refused_count: u64,
}

impl Lane {
    fn new() -> Self {
        Self {
            changes: Some(Box::new(Changes::with_capacity(BATCH_MAX))),
            page: Some(Box::new(Page::with_capacity(BATCH_MAX))),
            import: Some(Box::new(Import::with_capacity(BATCH_MAX))),
            journal: None,
            is_journal_out: false,
            entries: Vec::with_capacity(BATCH_MAX),
            pulled: None,
            last: Kind::Import,
            is_walking: false,
            restarts: false,
            marked: None,
            waiting_count: 0,
            evicted_count: 0,
            asked_round: 0,
            unanswered_round: 0,
        }
    }

    /// Whether an exchange is in progress.
    const fn is_out(&self) -> bool {
        let is_out = self.changes.is_none() || self.page.is_none() || self.import.is_none();
        is_out || self.is_journal_out
    }

    /// Passes on the returned exchange. Returns it if it is not taken.
    fn take(
        &mut self,
        pulled: Exchange,
        take: &mut impl FnMut(Pulled<'_>) -> bool,
    ) -> Result<Taken, Exchange> {
        let mut taken = Taken::default();
        match pulled {
            Exchange::Changes(mut changes) => {
                if !changes.found.is_empty() && !take(Pulled::Changes(&changes.found)) {
                    return Err(Exchange::Changes(changes));
                }
                (self.marked, self.waiting_count) = (changes.marked, changes.waiting_count);
                (self.evicted_count, taken.clock) = (changes.evicted_count, changes.clock);
                taken.has_lost = changes.has_lost;
                changes.found.clear();
                self.unanswered_round = self.asked_round + 1;
                self.changes = Some(changes);
            }
            Exchange::Exceptions(mut page) => {
                // Findings from before the restart of the walk will come again.
                if !self.restarts && !page.is_empty() && !take(Pulled::Exceptions(&page.found)) {
                    return Err(Exchange::Exceptions(page));
                }
                self.is_walking = self.restarts || page.walk.is_some();
                page.clear();
                self.page = Some(page);
            }
            Exchange::Import(mut import) => {
                taken.stale_count = import.stale_count;
                taken.refused_count = import.refused_count;
                import.clear();
                self.import = Some(import);
            }
            // The worker's previous journal: all later changes are in the new one.
            Exchange::Journal(_) => self.is_journal_out = false,
        }
        Ok(taken)
    }

    /// The next exchange. The kinds take turns.
    fn next(&mut self, may_walk: bool, clock: u64, round: u64) -> Option<Exchange> {
        if let Some(journal) = self.journal.take() {
            self.is_journal_out = true;
            return Some(Exchange::Journal(journal));
        }
        let order = match self.last {
            Kind::Import => [Kind::Changes, Kind::Exceptions, Kind::Import],
            Kind::Changes => [Kind::Exceptions, Kind::Import, Kind::Changes],
            Kind::Exceptions => [Kind::Import, Kind::Changes, Kind::Exceptions],
        };
        let kind = order.into_iter().find(|kind| match kind {
            Kind::Changes => true,
            Kind::Exceptions => self.is_walking && may_walk,
            Kind::Import => !self.entries.is_empty(),
        })?;
        self.last = kind;
        match kind {
            Kind::Changes => {
                let mut changes = self.changes.take()?;
                (changes.clock, self.asked_round) = (clock, round);
                Some(Exchange::Changes(changes))
            }
            Kind::Exceptions => {
                let mut page = self.page.take()?;
                if std::mem::take(&mut self.restarts) {
                    page.restart();
                }
                Some(Exchange::Exceptions(page))
            }
            Kind::Import => {
                let mut import = self.import.take()?;
                std::mem::swap(&mut import.entries, &mut self.entries);
                Some(Exchange::Import(import))
            }
        }
    }

    /// Keeps the memory of an exchange that the worker does not take, for example at the end of a
    /// run.
    fn put_back(&mut self, exchange: Exchange) {
        match exchange {
            Exchange::Changes(changes) => self.changes = Some(changes),
            Exchange::Exceptions(page) => self.page = Some(page),
            Exchange::Import(mut import) => {
                std::mem::swap(&mut import.entries, &mut self.entries);
                self.import = Some(import);
            }
            Exchange::Journal(journal) => {
                (self.journal, self.is_journal_out) = (Some(journal), false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::engine::{Mailbox, mailbox};
    use hotloop::stage::Core;

    /// Has control take what has come, and ask again; then, these workers answer.
    fn turn(mover: &mut ExceptionMover, workers: &mut [Mailbox<Exchange, Exchange>]) {
        mover.turn(|_| true);
        for worker in workers {
            while let Some(request) = worker.request() {
                worker.answer(request);
            }
        }
    }

    #[test]
    fn a_round_is_over_once_each_worker_has_answered_a_request_of_it() {
        let (asker, mailboxes) = mailbox(1);
        let mut workers = [0, 1].map(|it| mailboxes.open(&Core::new(it, 2)).unwrap());
        let mut mover = ExceptionMover::new(asker, 2);
        (0..9).for_each(|_| turn(&mut mover, &mut workers[1..]));
        assert_eq!(mover.round_count(), 0);
        // The first one catches up, while the second one answers nothing.
        (0..9).for_each(|_| turn(&mut mover, &mut workers[..1]));
        assert!(mover.round_count() <= 1, "{}", mover.round_count());
        let before = mover.round_count();
        (0..6).for_each(|_| turn(&mut mover, &mut workers));
        assert!(mover.round_count() >= before + 2, "{}", mover.round_count());
    }
}
