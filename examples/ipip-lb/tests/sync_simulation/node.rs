//! A node: its workers, and control's exchanges with the peers.

use super::clock::Clock;
use super::model::{Configuration, ESTABLISHED_MS, client};
use super::worker::{Known, Workers};
use super::{Mutant, Setup};
use hotloop_agreement::Birth;
use hotloop_agreement::barrier::Step;
use hotloop_balancer::connection::State;
use hotloop_balancer::exception_mover::Pulled;
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_cluster::replace::Bequest;
use hotloop_cluster::sync::wire::NodeState;
use hotloop_cluster::sync::{Agreement, Local, PeerState, Peers, Reference, Turn, Walk, Watermark};
use ipip_lb::replace::SavedReferences;

/// A node without anything to do has a turn after this time, as control looks at the reference tables.
const TURN_MS: u64 = 50;

/// Maximum number of control's turns in a step with much to do.
const TURNS_MAX: usize = 6;

/// How long all nodes must want the same table before that becomes the reference table.
pub const SETTLE_MS: u64 = 2_000;

/// How long connections that a node loses may be alive.
const LOST_MS: u64 = 2 * ESTABLISHED_MS;

/// How long a node waits for peers that may have a reference table.
const WAIT_MS: u64 = 10_000;

pub struct Node {
    pub name: String,
    pub clock: Clock,
    pub peers: Peers,
    pub workers: Workers,
    pub configuration: Configuration,
    pub agreement: Agreement,
    began_ms: u64,
    turned_ms: u64,
    /// Whether a frame has come since its last turn.
    pub has_input: bool,
    mutant: Mutant,
    /// The snapshot being collected.
    walk: Option<Walk>,
    imports: Vec<Change>,
    /// The connections for a program that is about to take the node's place.
    pub bequest: Option<Bequest>,
    /// Number of times that its workers had no room for changes.
    pub loss_count: u64,
    /// Number of connections that were not entered, or were evicted.
    pub lost_count: u64,
}

pub fn name(node: usize) -> String {
    format!("n{node}")
}

impl Node {
    pub fn new(
        (node, count): (usize, usize),
        incarnation: u64,
        (configuration, clock): (Configuration, Clock),
        setup: Setup,
    ) -> Self {
        let (mutant, now_ms) = (setup.mutant, clock.now_ms());
        let local = Local { node: name(node), digest: [0; 16] };
        let others = (0..count).filter(|other| *other != node);
        let mut peers = Peers::new(local, others.map(|other| (name(other), String::new())));
        peers.limit_queues(setup.queue_max);
        let is_lost = incarnation > count as u64 && mutant != Mutant::MovesWithoutWaiting;
        let lost_until_ms = if is_lost { now_ms + LOST_MS } else { 0 };
        let mut agreement = Agreement::new(&name(node), incarnation << 32, lost_until_ms);
        agreement.want(configuration.text());
        Self {
            name: name(node),
            clock,
            peers,
            workers: Workers::new(setup, configuration, now_ms),
            configuration,
            agreement,
            began_ms: now_ms,
            turned_ms: 0,
            has_input: true,
            mutant,
            walk: None,
            imports: Vec::new(),
            bequest: None,
            loss_count: 0,
            lost_count: 0,
        }
    }

    /// Continues in the place of this node, whose connections are those of `changes`, as control does. Nothing
    /// is received meanwhile.
    pub fn take_over(&mut self, before: &Agreement, mut changes: Vec<Change>) {
        if let Some((phase, tables)) = SavedReferences::of(before).tables() {
            self.agreement.inherit(phase, tables.clone());
            self.refer_to(&tables);
        }
        while !(changes.is_empty() && self.workers.is_heard()) {
            let taken = self.workers.import(&changes);
            changes.drain(..taken);
            self.workers.exceptions.turn(|_| true);
            self.workers.tick();
        }
    }

    /// Whether it compares connections with two reference tables.
    pub fn compares(&self) -> bool {
        self.agreement.tables().len() > 1
    }

    /// The number of the reference table in use.
    pub fn reference(&self) -> Option<u32> {
        self.agreement.tables().first().map(|table| table.number)
    }

    /// Whether the reference table stays if it loses a connection now.
    pub fn holds_table(&self) -> bool {
        matches!(self.agreement.phase().step, Step::Idle | Step::Ready)
    }

    /// Whether it has a reference table.
    pub fn is_ready(&self) -> bool {
        !self.agreement.tables().is_empty()
    }

    /// Its entry for a client's connection, as text.
    pub fn shown(&self, client: u32) -> String {
        let Self { name, configuration, .. } = self;
        let known =
            self.workers.knows(client).map_or_else(|| "nothing".into(), |it| it.to_string());
        let tables: Vec<_> = self.agreement.tables().iter().map(|it| it.number).collect();
        format!("{name} by {}, {tables:?}: {known}", configuration.revision)
    }

    /// Chooses by another configuration from now on.
    pub fn adopt(&mut self, configuration: Configuration) {
        self.configuration = configuration;
        self.agreement.want(configuration.text());
        self.workers.go_by(configuration);
    }

    /// Takes the next step of the agreement on reference tables.
    fn agree(&mut self, now_ms: u64) {
        let Self { peers, agreement, workers, mutant, .. } = self;
        let lost_count = workers.lost_count();
        if std::mem::replace(&mut self.lost_count, lost_count) != lost_count
            && *mutant != Mutant::MovesWithoutWaiting
        {
            agreement.lose(now_ms, LOST_MS);
        }
        let turn = Turn {
            now_ms,
            has_waited: now_ms >= self.began_ms + WAIT_MS,
            is_marked: workers.is_heard(),
            settle_ms: SETTLE_MS,
            lost_ms: LOST_MS,
        };
        let entered = |mark: &Watermark| peers.entered(mark);
        let (status, watermark) = (peers.status(now_ms), || peers.watermark());
        let Some((_, tables)) = agreement.turn(&status, turn, watermark, entered) else { return };
        self.refer_to(&tables);
    }

    /// Goes by these reference tables from now on.
    fn refer_to(&mut self, tables: &[Reference]) {
        let references: Vec<_> =
            tables.iter().map(|table| Configuration::of_text(&table.text)).collect();
        if self.mutant != Mutant::NoReference {
            self.workers.refer_to(&references, self.configuration);
        }
        self.peers.set_references(self.agreement.use_awaited().to_vec());
    }

    /// A turn of the node, unless it has just had one and nothing has come since.
    pub fn turn(&mut self, now_ms: u64) {
        self.clock.advance(now_ms);
        let now_ms = self.clock.now_ms();
        self.workers.advance(now_ms);
        if now_ms < self.turned_ms + TURN_MS && !self.has_input && self.is_quiet() {
            return;
        }
        (self.turned_ms, self.has_input) = (now_ms, false);
        for _ in 0..TURNS_MAX {
            self.control(now_ms);
            self.workers.tick();
            if self.is_quiet() {
                break;
            }
        }
        self.agree(now_ms);
        let standing = self.agreement.standing(now_ms);
        let clock = self.workers.exceptions.clock();
        self.workers.exceptions.hear_clock(self.peers.clock());
        self.peers.say(NodeState { tables: 0, is_ready: self.is_ready(), clock, standing });
    }

    /// Moves everything available in both directions, in control's order.
    fn control(&mut self, now_ms: u64) {
        self.follow_walk(now_ms);
        self.enter();
        let Self { peers, workers, walk, mutant, bequest, loss_count, .. } = self;
        workers.exceptions.turn(|pulled| {
            match (pulled, *walk) {
                (Pulled::Changes(claims), _) => {
                    let said = mutant.said(claims);
                    peers.offer(&said, now_ms);
                    bequest.iter_mut().for_each(|it| it.offer(&said));
                }
                (Pulled::Exceptions(claims), Some(walk)) => {
                    peers.give_page(walk, &mutant.named(claims), false, now_ms);
                }
                (Pulled::Exceptions(_), None) => {
                    bequest.iter_mut().for_each(|it| it.take(pulled));
                }
            }
            true
        });
        let has_lost = workers.exceptions.take_has_lost() && *mutant != Mutant::LossIgnored;
        if let Some(bequest) = bequest {
            bequest.end_walk(workers.exceptions.is_walking() || walk.is_some(), has_lost);
        }
        if has_lost {
            *loss_count += 1;
            peers.resync();
        } else if !workers.exceptions.is_walking()
            && let Some(walk) = walk.take()
        {
            peers.give_page(walk, &[], true, now_ms);
        }
    }

    /// Begins the next walk once the previous one is over.
    fn follow_walk(&mut self, now_ms: u64) {
        let Self { peers, workers, walk, bequest, .. } = self;
        if let Some(bequest) = bequest
            && (bequest.is_walking() || walk.is_none())
        {
            bequest.follow_walk(&mut workers.exceptions);
            if bequest.is_walking() {
                return;
            }
        }
        let room = walk.and_then(|walk| peers.has_room_for(walk));
        if room.is_none() {
            *walk = peers.snapshot_wanted(now_ms);
            if walk.is_some() {
                workers.exceptions.begin_walk();
            }
        }
        workers.exceptions.hold_walk(room == Some(false));
    }

    /// Enters the peers' changes.
    fn enter(&mut self) {
        if self.imports.is_empty() && self.workers.exceptions.has_entered_all() {
            self.peers.take_imports(&mut self.imports, 4096);
            let Self { imports, mutant, workers, .. } = self;
            imports.retain_mut(|change| mutant.hears(change, workers));
        }
        let taken = self.workers.import(&self.imports);
        for change in self.imports.drain(..taken) {
            if let (Change::Claim(record), Some(bequest)) = (change, &mut self.bequest) {
                bequest.offer(&[record]);
            }
        }
    }

    /// Number of times that its workers were asked for changes.
    pub fn rounds(&self) -> u64 {
        self.workers.exceptions.round_count()
    }

    /// Whether nothing is under way between its workers and its peers.
    fn is_quiet(&self) -> bool {
        self.workers.is_heard() && self.imports.is_empty()
    }

    /// Whether it is in contact with all peers except those that are down.
    pub fn is_joined(&self, is_up: impl Fn(&str) -> bool) -> bool {
        let mut peers = self.peers.status(self.clock.now_ms()).into_iter();
        peers.all(|peer| !is_up(&peer.name) || peer.state == PeerState::InSync)
    }

    /// Whether all peers except those that are down have entered everything that it knows.
    pub fn is_in_sync(&self, is_up: impl Fn(&str) -> bool) -> bool {
        self.is_quiet()
            && self.is_ready()
            && self.peers.status(self.clock.now_ms()).iter().all(|peer| {
                !is_up(&peer.name)
                    || peer.is_caught_up && peer.has_its_snapshot && peer.import_count == 0
            })
    }
}

impl Mutant {
    /// The claims that a node with this mutant sends.
    fn said(self, claims: &[Record]) -> Vec<Record> {
        let is_said = |record: &&Record| match self {
            Self::NoSync => false,
            Self::ClosingNotSent => record.state != State::Closing,
            _ => true,
        };
        claims.iter().filter(is_said).copied().collect()
    }

    /// The claims that a node with this mutant lists in a snapshot.
    fn named(self, claims: &[Record]) -> Vec<Record> {
        let is_named = |record: &&Record| match self {
            Self::NoSync | Self::SnapshotSkipped => false,
            Self::ClosingNotNamed => record.state != State::Closing,
            _ => true,
        };
        claims.iter().filter(is_named).copied().collect()
    }

    /// Whether a node with this mutant enters a peer's claim.
    fn hears(self, change: &mut Change, workers: &Workers) -> bool {
        match (self, change) {
            (Self::NotInherited, Change::Inherit(_)) => false,
            (Self::EarlierClaimWins, Change::Claim(record)) => {
                let other = workers
                    .knows(client(&record.key))
                    .filter(|it| it.backend != Some(record.backend));
                let Some(Known { birth, .. }) = other else { return true };
                let is_earlier = record.birth < birth;
                // The workers treat it as the later one.
                record.birth = Birth::new(birth.number() + 1);
                is_earlier
            }
            _ => true,
        }
    }
}
