//! A node: its table of connections, kept by the rules that workers keep, and what it says to its peers.

use crate::Mutant;
use crate::model::{Configuration, IDLE_MS, client, key};
use ipip_lb::connection::State;
use ipip_lb::sync::{
    Change, Existing, Local, MOVES, Peers, Record, Verdict, Walk, Watermark, is_ahead, merge,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound::{Excluded, Unbounded};

/// How many connections a page of a walk looks at.
const PAGE: usize = 40;

/// What a packet does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Packet {
    Syn,
    Data,
    Fin,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    backend: IpAddr,
    state: State,
    since_ms: u64,
    until_ms: u64,
    is_own: bool,
    has_seen_syn: bool,
    is_exception: bool,
    claimed_ms: u64,
    moves: u8,
}

pub struct Node {
    pub peers: Peers,
    pub configuration: Configuration,
    /// The one that is being prepared, or the one before, as long as peers may go by it.
    other: Option<Configuration>,
    /// What was offered once the change was marked that is being prepared.
    watermark: Option<Watermark>,
    table: BTreeMap<u32, Entry>,
    mutant: Mutant,
    /// The number of the walk under way, and the last connection that it looked at.
    walk: (u64, Option<u32>),
    imports: Vec<Change>,
}

pub fn name(node: usize) -> String {
    format!("n{node}")
}

impl Entry {
    fn record(&self, client: u32, now_ms: u64) -> Record {
        Record {
            key: key(client),
            backend: self.backend,
            state: self.state,
            age_ms: (now_ms - self.since_ms) as u32,
            left_ms: self.until_ms.saturating_sub(now_ms) as u32,
            moves: self.moves,
            wins_ties: false,
        }
    }
}

impl Node {
    pub fn new(
        (node, count): (usize, usize),
        incarnation: u64,
        configuration: Configuration,
        mutant: Mutant,
    ) -> Self {
        let local = Local { node: name(node), incarnation, digest: [0; 16] };
        let others = (0..count).filter(|other| *other != node);
        let mut peers = Peers::new(local, others.map(|other| (name(other), String::new())));
        peers.set_epoch(configuration.revision);
        peers.enter_epoch(configuration.revision);
        Self {
            peers,
            configuration,
            other: None,
            watermark: None,
            table: BTreeMap::new(),
            mutant,
            walk: (0, None),
            imports: Vec::new(),
        }
    }

    /// Whether a node that does not know a connection might place it elsewhere.
    fn is_exception(&self, client: u32, backend: IpAddr) -> bool {
        backend != self.configuration.choice(client)
            || self.other.is_some_and(|other| backend != other.choice(client))
    }

    fn offer(&mut self, change: Change, now_ms: u64) {
        let is_unsent = match self.mutant {
            Mutant::NoSync => true,
            Mutant::EndsNotSent => matches!(change, Change::End(_)),
            _ => false,
        };
        if is_unsent {
            return;
        }
        self.peers.offer(&[change], now_ms);
    }

    /// What becomes of a packet: its backend, and whether the connection was a peer's until now.
    pub fn packet(&mut self, client: u32, packet: Packet, now_ms: u64) -> (IpAddr, bool) {
        let (choice, other) = (self.configuration.choice(client), self.other);
        if self.table.get(&client).is_some_and(|entry| entry.until_ms < now_ms) {
            self.table.remove(&client);
        }
        let is_syn = packet == Packet::Syn;
        let entry = self.table.entry(client).or_insert(Entry {
            backend: choice,
            state: State::Opening,
            since_ms: now_ms,
            until_ms: now_ms,
            is_own: true,
            has_seen_syn: is_syn,
            is_exception: false,
            claimed_ms: now_ms,
            moves: 0,
        });
        entry.until_ms = now_ms + IDLE_MS;
        let before = entry.state;
        if !is_syn {
            entry.state = State::Established;
        }
        let was_remote = !std::mem::replace(&mut entry.is_own, true);
        entry.moves = (entry.moves + u8::from(was_remote)) % MOVES;
        let is_elsewhere = |other: Configuration| entry.backend != other.choice(client);
        let is_exception = entry.backend != choice || other.is_some_and(is_elsewhere);
        let has_begun = !std::mem::replace(&mut entry.is_exception, is_exception);
        let is_due = has_begun
            || was_remote
            || before != entry.state
            || now_ms - entry.claimed_ms > IDLE_MS / 3;
        if entry.is_exception && is_due {
            entry.claimed_ms = now_ms;
            let record = entry.record(client, now_ms);
            self.offer(Change::Claim(record), now_ms);
        } else if was_remote && !entry.is_exception {
            // Nodes that know it of one that is gone hear of it once more.
            self.offer(Change::End(key(client)), now_ms);
        }
        let entry = self.table[&client];
        if packet == Packet::Fin {
            self.table.remove(&client);
            if entry.is_exception {
                self.offer(Change::End(key(client)), now_ms);
            }
        }
        (entry.backend, was_remote)
    }

    /// Whether there is another configuration that it compares connections with.
    pub const fn compares(&self) -> bool {
        self.other.is_some()
    }

    /// Prepares a configuration.
    pub fn prepare(&mut self, next: Configuration, now_ms: u64) {
        self.other = Some(next);
        self.mark(now_ms);
        self.watermark = Some(self.peers.watermark());
    }

    /// Whether each peer has entered what this node has prepared, but for those that are down.
    pub fn has_prepared(&self, is_up: impl Fn(&str) -> bool) -> bool {
        self.watermark.as_ref().is_some_and(|watermark| {
            let entered = self.peers.entered(watermark);
            entered.waiting.is_empty() && !entered.away.iter().any(|name| is_up(name))
        })
    }

    /// Forgets what it has prepared.
    pub fn discard(&mut self, now_ms: u64) {
        (self.other, self.watermark) = (None, None);
        self.mark(now_ms);
    }

    /// Adopts a configuration. Peers may go by the one before it still.
    pub fn adopt(&mut self, configuration: Configuration, now_ms: u64) {
        let before = std::mem::replace(&mut self.configuration, configuration);
        self.other = (self.mutant != Mutant::OlderForgotten).then_some(before);
        self.watermark = None;
        self.peers.set_epoch(configuration.revision);
        self.mark(now_ms);
        self.peers.enter_epoch(configuration.revision);
    }

    /// Ends the time in which peers may go by the configuration before.
    fn forget_older(&mut self, now_ms: u64) {
        let has_adopted = |epoch| epoch >= self.configuration.revision;
        if self.watermark.is_none()
            && self.other.is_some()
            && self.peers.status(now_ms).iter().all(|peer| has_adopted(peer.epoch))
        {
            self.other = None;
            self.mark(now_ms);
        }
    }

    /// Looks at all connections: which are exceptions.
    fn mark(&mut self, now_ms: u64) {
        let (configuration, other) = (self.configuration, self.other);
        let mut changes = Vec::new();
        self.table.retain(|&client, entry| {
            if entry.until_ms < now_ms {
                return false;
            }
            if !entry.is_own {
                return true;
            }
            let is_elsewhere = |it: Configuration| entry.backend != it.choice(client);
            let is_exception = is_elsewhere(configuration) || other.is_some_and(is_elsewhere);
            match (std::mem::replace(&mut entry.is_exception, is_exception), is_exception) {
                (false, true) => {
                    entry.claimed_ms = now_ms;
                    changes.push(Change::Claim(entry.record(client, now_ms)));
                }
                (true, false) => changes.push(Change::End(key(client))),
                _ => {}
            }
            true
        });
        changes.into_iter().for_each(|change| self.offer(change, now_ms));
    }

    /// What a control thread does in a turn.
    pub fn turn(&mut self, now_ms: u64) {
        let mut imports = std::mem::take(&mut self.imports);
        imports.clear();
        self.peers.take_imports(&mut imports, 100);
        for change in &imports {
            match change {
                Change::Claim(record) => self.enter(record, now_ms),
                Change::End(key) => {
                    let client = client(key);
                    if self.table.get(&client).is_some_and(|entry| !entry.is_own) {
                        self.table.remove(&client);
                    }
                }
            }
        }
        self.imports = imports;
        self.forget_older(now_ms);
        if let Some(walk) = self.peers.snapshot_wanted(now_ms) {
            self.page(walk, now_ms);
        }
    }

    fn page(&mut self, walk: Walk, now_ms: u64) {
        let after = if self.walk.0 == walk.number { self.walk.1 } else { None };
        let range = (after.map_or(Unbounded, Excluded), Unbounded);
        let some: Vec<_> = self.table.range(range).take(PAGE).collect();
        let is_last = some.len() < PAGE;
        self.walk = (walk.number, some.last().map(|(client, _)| **client).or(after));
        let is_skipped = matches!(self.mutant, Mutant::SnapshotSkipped | Mutant::NoSync);
        let page = |is_own: bool| -> Vec<Record> {
            let named = |entry: &Entry| {
                let is_named = entry.is_own == is_own && (entry.is_exception || !is_own);
                is_named && entry.until_ms >= now_ms && !is_skipped
            };
            let some = some.iter().filter(|(_, entry)| named(entry));
            some.map(|(client, entry)| entry.record(**client, now_ms)).collect()
        };
        let (own, entered) = (page(true), page(false));
        self.peers.give_page(walk, (&own, &entered), is_last, now_ms);
    }

    fn enter(&mut self, record: &Record, now_ms: u64) {
        let client = client(&record.key);
        let of_peer = |has_seen_syn| Entry {
            backend: record.backend,
            state: record.state,
            since_ms: now_ms.saturating_sub(record.age_ms.into()),
            until_ms: now_ms + u64::from(record.left_ms),
            is_own: false,
            has_seen_syn,
            is_exception: false,
            claimed_ms: 0,
            moves: record.moves,
        };
        let known = self.table.get_mut(&client).filter(|entry| entry.until_ms >= now_ms);
        let Some(entry) = known else {
            self.table.insert(client, of_peer(false));
            return;
        };
        let its = entry.record(client, now_ms);
        let existing = Existing {
            backend: its.backend,
            state: its.state,
            age_ms: its.age_ms,
            left_ms: its.left_ms,
            moves: its.moves,
            is_own: entry.is_own,
            is_exception: entry.is_exception,
            has_seen_syn: entry.has_seen_syn,
        };
        match decide(self.mutant, &existing, record) {
            Verdict::Replace => drop(self.table.insert(client, of_peer(false))),
            Verdict::Renew => {
                let since_ms = entry.since_ms.min(now_ms.saturating_sub(record.age_ms.into()));
                let is_behind = is_ahead(entry.moves, record.moves);
                let moves = if is_behind { entry.moves } else { record.moves };
                *entry = Entry { since_ms, moves, ..of_peer(entry.has_seen_syn) };
            }
            Verdict::Reclaim => {
                entry.moves = (record.moves + 1) % MOVES;
                let (entry, is_exception) = (*entry, entry.is_exception);
                if is_exception {
                    self.offer(Change::Claim(entry.record(client, now_ms)), now_ms);
                }
            }
            Verdict::Known | Verdict::Stale => {}
        }
    }

    /// Whether the connection here is this node's own, and whether it is established, and on another backend than the
    /// configuration says.
    pub fn knows(&self, client: u32, now_ms: u64) -> Option<(bool, bool)> {
        let entry = self.table.get(&client).filter(|entry| entry.until_ms >= now_ms)?;
        let is_exception = self.is_exception(client, entry.backend);
        Some((entry.is_own, is_exception && entry.state == State::Established))
    }

    /// Whether all peers but those that are down have entered all that it knows.
    pub fn is_in_sync(&self, is_up: impl Fn(&str) -> bool, now_ms: u64) -> bool {
        self.peers.status(now_ms).iter().all(|peer| {
            !is_up(&peer.name)
                || peer.is_caught_up && peer.has_its_snapshot && peer.import_count == 0
        })
    }
}

fn decide(mutant: Mutant, existing: &Existing, record: &Record) -> Verdict {
    if mutant == Mutant::LaterClaimWins && existing.backend != record.backend {
        let is_later = record.age_ms < existing.age_ms;
        return if is_later { Verdict::Replace } else { Verdict::Stale };
    }
    merge(existing, record)
}
