//! Another program takes a node's place, while packets continue.

use super::Mutant;
use super::model::key;
use super::node::{Node, name};
use super::world::World;
use hotloop::testing::Rng;
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_cluster::replace::{Bequest, Legacy};

/// How long a node receives nothing at most before it goes on in its place, in milliseconds.
const CLOSED_MS_MAX: u64 = 500;

/// Number of times that workers are asked after the last packet.
const ROUNDS: u64 = 3;

/// A program that is about to take the place of a node.
pub struct Takeover {
    node: usize,
    legacy: Legacy,
}

impl Takeover {
    /// Has a node, of this number, hand over.
    pub fn begin(number: usize, node: &mut Node) -> Self {
        node.bequest = Some(Bequest::default());
        Self { node: number, legacy: Legacy::default() }
    }

    /// Whether the program has the snapshot.
    pub fn has_snapshot(&self) -> bool {
        self.legacy.end.status().has_its_snapshot
    }

    /// Whether a client's connection is handed over, even if its node has forgotten it since.
    pub fn knows(&self, client: u32) -> bool {
        self.legacy.keys().any(|it| *it == key(client))
    }

    /// Carries bytes between the two programs. Those to the successor come in two parts. Returns whether the
    /// predecessor is still there.
    pub fn carry(&mut self, before: Option<&mut Node>, rng: &mut Rng) -> bool {
        let parts = before.and_then(|it| Some((it.bequest.as_mut()?, it.clock)));
        let Some((bequest, clock)) = parts else { return false };
        for end in [&mut bequest.end, &mut self.legacy.end] {
            end.set_now(clock.now_ms());
        }
        let there = bequest.end.output();
        let (first, rest) = there.split_at(rng.index(there.len() + 1));
        for part in [first, rest] {
            self.legacy.end.input(part).expect("the predecessor keeps the protocol");
            self.legacy.learn();
        }
        bequest.end.input(&self.legacy.end.output()).expect("the successor keeps the protocol");
        true
    }

    /// The connections that are handed over, at this time.
    pub fn connections(mut self, now_ms: u64) -> Vec<Change> {
        self.legacy.end.set_now(now_ms);
        let mut connections = self.legacy.connections();
        // Their order is of no importance, but must be the same each time.
        connections.sort_unstable_by_key(|change| match change {
            Change::Claim(Record { key, .. }) | Change::Inherit(key) => *key,
        });
        connections
    }
}

impl World {
    /// Has some node hand over, unless one does already.
    pub fn begin_takeover(&mut self) {
        let node = self.rng.index(self.nodes.len());
        if self.takeover.is_none()
            && let Some(it) = &mut self.nodes[node]
        {
            self.takeover = Some(Takeover::begin(node, it));
            self.note(None, format!("a program asks {} to hand over", name(node)));
        }
    }

    /// Carries bytes between the two programs. Either may be gone.
    pub fn carry_to_successor(&mut self) {
        let Some(takeover) = &mut self.takeover else { return };
        let before = self.nodes[takeover.node].as_mut();
        if !takeover.carry(before, &mut self.rng) {
            self.takeover = None;
        }
    }

    /// Has the successor, if it knows enough, take over, or go away.
    pub fn end_takeover(&mut self) {
        let Some(takeover) = &self.takeover else { return };
        if !takeover.has_snapshot() || !self.rng.permille(50) {
            return;
        }
        let node = takeover.node;
        let has_all = !self.rng.permille(200) && self.close(node);
        let (left, takeover) = (self.nodes[node].take(), self.takeover.take());
        let (Some(mut before), Some(takeover)) = (left, takeover) else { return };
        if !has_all {
            before.bequest = None;
            self.nodes[node] = Some(before);
            return;
        }
        self.met.takeovers += 1;
        self.met.takeovers_in_moves += u64::from(before.compares());
        self.note(None, format!("another program takes the place of {}", name(node)));
        self.now_ms += self.rng.below(300);
        before.clock.advance(self.now_ms);
        let connections = takeover.connections(before.clock.now_ms());
        self.met.handed_over += connections.len() as u64;
        let mut after = self.started(node, (before.configuration, before.clock));
        if self.setup.mutant != Mutant::NothingHandedOver {
            after.take_over(&before.agreement, connections);
        }
        for link in &mut self.links {
            if link.nodes.contains(&node) {
                link.cut(&mut self.nodes, self.now_ms);
            }
        }
        self.nodes[node] = Some(after);
    }

    /// Lets nodes communicate without packets until a node's successor knows everything. Returns whether it
    /// does in time.
    fn close(&mut self, node: usize) -> bool {
        let rounds = |world: &Self| world.nodes[node].as_ref().map_or(0, Node::rounds);
        let last_round = rounds(self) + ROUNDS;
        let end_ms = self.now_ms + CLOSED_MS_MAX;
        while self.now_ms < end_ms {
            self.now_ms += 1;
            self.turn();
            let has_all = |it: &Node| {
                let bequest = it.bequest.as_ref();
                bequest.is_some_and(|it| it.end.status().is_caught_up) && it.workers.is_marked()
            };
            if rounds(self) >= last_round && self.nodes[node].as_ref().is_some_and(has_all) {
                return true;
            }
        }
        false
    }
}
