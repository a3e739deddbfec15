//! A node: its worker, and control's exchanges with the peers.

use super::Mutant;
use super::model::{Configuration, client};
use super::worker::{Known, Worker};
use hotloop_balancer::connection::State;
use hotloop_balancer::exception_mover::Pulled;
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_cluster::sync::{Local, PeerState, PeerStatus, Peers, Walk, Watermark};

/// Maximum number of control's turns in a step with much to do.
const TURNS_MAX: usize = 6;

/// How long an absent peer is assumed to use the previous configuration.
const OLDER_MS: u64 = 60_000;

pub struct Node {
    pub name: String,
    pub peers: Peers,
    pub worker: Worker,
    pub configuration: Configuration,
    /// The configuration being prepared, or the previous one, while peers may use it.
    other: Option<Configuration>,
    is_preparing: bool,
    /// The mark after the change being prepared was marked on the worker.
    watermark: Option<Watermark>,
    adopted_ms: u64,
    mutant: Mutant,
    /// The snapshot being collected.
    walk: Option<Walk>,
    imports: Vec<Change>,
}

pub fn name(node: usize) -> String {
    format!("n{node}")
}

impl Node {
    pub fn new(
        (node, count): (usize, usize),
        incarnation: u64,
        (configuration, now_ms): (Configuration, u64),
        mutant: Mutant,
    ) -> Self {
        let local = Local { node: name(node), incarnation, digest: [0; 16] };
        let others = (0..count).filter(|other| *other != node);
        let mut peers = Peers::new(local, others.map(|other| (name(other), String::new())));
        peers.set_epoch(configuration.revision);
        peers.enter_epoch(configuration.revision);
        Self {
            name: name(node),
            peers,
            worker: Worker::new(configuration, now_ms),
            configuration,
            other: None,
            is_preparing: false,
            watermark: None,
            adopted_ms: now_ms,
            mutant,
            walk: None,
            imports: Vec::new(),
        }
    }

    /// Whether it compares connections with another configuration.
    pub const fn compares(&self) -> bool {
        self.other.is_some()
    }

    /// Its entry for a client's connection, as text.
    pub fn shown(&self, client: u32) -> String {
        let Self { name, configuration, .. } = self;
        let known = self.worker.knows(client).map_or_else(|| "nothing".into(), |it| it.to_string());
        format!(
            "{name} by {}{}: {known}",
            configuration.revision,
            if self.compares() { "+" } else { "" }
        )
    }

    /// Prepares a configuration.
    pub fn prepare(&mut self, next: Configuration) {
        (self.other, self.is_preparing) = (Some(next), true);
        self.worker.go_by(self.configuration, self.other);
    }

    /// Whether each peer, except for those that are down, has entered everything that this node has
    /// prepared.
    pub fn has_prepared(&self, is_up: impl Fn(&str) -> bool) -> bool {
        self.watermark.as_ref().is_some_and(|watermark| {
            let entered = self.peers.entered(watermark);
            entered.waiting.is_empty() && !entered.away.iter().any(|name| is_up(name))
        })
    }

    /// Discards the prepared configuration.
    pub fn discard(&mut self) {
        (self.other, self.is_preparing, self.watermark) = (None, false, None);
        self.worker.go_by(self.configuration, None);
    }

    /// Adopts a configuration. Peers may still use the previous one.
    pub fn adopt(&mut self, configuration: Configuration, now_ms: u64) {
        let before = std::mem::replace(&mut self.configuration, configuration);
        self.other = (self.mutant != Mutant::OlderForgotten).then_some(before);
        (self.is_preparing, self.watermark, self.adopted_ms) = (false, None, now_ms);
        self.peers.set_epoch(configuration.revision);
        self.worker.go_by(configuration, self.other);
        self.peers.enter_epoch(configuration.revision);
    }

    /// Continues a change that is being prepared, and ends the time in which peers may use the
    /// previous configuration.
    fn follow_preparing(&mut self, now_ms: u64) {
        if self.is_preparing {
            if self.watermark.is_none() && self.worker.is_marked() {
                self.watermark = Some(self.peers.watermark());
            }
            return;
        }
        let waits_for_away = now_ms - self.adopted_ms < OLDER_MS;
        let has_adopted = |peer: &PeerStatus| {
            peer.epoch >= self.configuration.revision
                || !waits_for_away && peer.state == PeerState::Away
        };
        if self.other.is_some() && self.peers.status(now_ms).iter().all(has_adopted) {
            self.other = None;
            self.worker.go_by(self.configuration, None);
        }
    }

    /// A turn of the node.
    pub fn turn(&mut self, now_ms: u64) {
        self.worker.advance(now_ms);
        for _ in 0..TURNS_MAX {
            self.control(now_ms);
            self.worker.tick();
            if self.is_quiet() {
                break;
            }
        }
        self.follow_preparing(now_ms);
    }

    /// Moves everything available in both directions, in control's order.
    fn control(&mut self, now_ms: u64) {
        let room = self.walk.and_then(|walk| self.peers.has_room_for(walk));
        if room.is_none() {
            self.walk = self.peers.snapshot_wanted(now_ms);
            if self.walk.is_some() {
                self.worker.exceptions.begin_whole_walk();
            }
        }
        self.worker.exceptions.hold_walk(room == Some(false));
        self.enter();
        let Self { peers, worker, walk, mutant, .. } = self;
        worker.exceptions.turn(|pulled| {
            match (pulled, *walk) {
                (Pulled::Changes(changes), _) => {
                    let said: Vec<_> = mutant.said(changes).collect();
                    peers.offer(&said, now_ms);
                }
                (Pulled::Exceptions { own, entered }, Some(walk)) => {
                    let [own, entered] = [own, entered].map(|it| mutant.named(it));
                    peers.give_page(walk, &own, &entered, false, now_ms);
                }
                (Pulled::Exceptions { .. }, None) => {}
            }
            true
        });
        assert!(!worker.exceptions.take_has_lost(), "the journal has room for all");
        if !worker.exceptions.is_walking()
            && let Some(walk) = walk.take()
        {
            peers.give_page(walk, &[], &[], true, now_ms);
        }
    }

    /// Enters the peers' changes.
    fn enter(&mut self) {
        if self.imports.is_empty() && self.worker.exceptions.has_entered_all() {
            self.peers.take_imports(&mut self.imports, 4096);
            let Self { imports, mutant, worker, .. } = self;
            imports.retain_mut(|change| mutant.hears(change, worker));
        }
        let taken = self.worker.import(&self.imports);
        self.imports.drain(..taken);
    }

    /// Whether nothing is under way between its worker and its peers.
    fn is_quiet(&self) -> bool {
        self.worker.is_heard() && self.imports.is_empty()
    }

    /// Whether it is in contact with all peers except those that are down.
    pub fn is_joined(&self, is_up: impl Fn(&str) -> bool, now_ms: u64) -> bool {
        let mut peers = self.peers.status(now_ms).into_iter();
        peers.all(|peer| !is_up(&peer.name) || peer.state == PeerState::InSync)
    }

    /// Whether all peers except those that are down have entered everything that it knows.
    pub fn is_in_sync(&self, is_up: impl Fn(&str) -> bool, now_ms: u64) -> bool {
        self.is_quiet()
            && self.peers.status(now_ms).iter().all(|peer| {
                !is_up(&peer.name)
                    || peer.is_caught_up && peer.has_its_snapshot && peer.import_count == 0
            })
    }
}

impl Mutant {
    /// The changes that a node with this mutant reports.
    fn said(self, changes: &[Change]) -> impl Iterator<Item = Change> {
        changes.iter().copied().filter(move |change| match (self, change) {
            (Self::NoSync, _) | (Self::EndsNotSent, Change::End(_)) => false,
            (Self::ClosingNotSent, Change::Claim(record)) => record.state != State::Closing,
            _ => true,
        })
    }

    /// The records that a node with this mutant lists in a snapshot.
    fn named(self, records: &[Record]) -> Vec<Record> {
        let is_named = |record: &&Record| match self {
            Self::NoSync | Self::SnapshotSkipped => false,
            Self::ClosingNotNamed => record.state != State::Closing,
            _ => true,
        };
        records.iter().filter(is_named).copied().collect()
    }

    /// Whether a node with this mutant enters a peer's change.
    fn hears(self, change: &mut Change, worker: &Worker) -> bool {
        match (self, change) {
            (Self::EndsIgnored, Change::End(_)) => false,
            (Self::LaterClaimWins, Change::Claim(record)) => {
                let other = worker
                    .knows(client(&record.key))
                    .filter(|it| it.backend != Some(record.backend));
                let Some(Known { age_ms, .. }) = other else { return true };
                let is_later = record.age_ms < age_ms;
                // The worker treats it as the earlier one.
                record.age_ms = u32::MAX;
                is_later
            }
            _ => true,
        }
    }
}
