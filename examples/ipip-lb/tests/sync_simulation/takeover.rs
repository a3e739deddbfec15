//! Another program takes a node's place, while packets continue.

use super::Mutant;
use super::node::{Node, name};
use super::world::World;
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_cluster::replace::{Bequest, Legacy};

/// How long a node receives nothing at most before it goes on in its place, in milliseconds.
const CLOSED_MS_MAX: u64 = 500;

/// Number of times that workers are asked after the last packet.
const ROUNDS: u64 = 3;

/// A program that is about to take the place of a node.
#[derive(Default)]
pub struct Takeover {
    node: usize,
    legacy: Legacy,
}

impl World {
    /// Has some node hand over, unless one does already.
    pub fn begin_takeover(&mut self) {
        let node = self.rng.index(self.nodes.len());
        if self.takeover.is_none()
            && let Some(it) = &mut self.nodes[node]
        {
            it.bequest = Some(Bequest::default());
            self.takeover = Some(Takeover { node, ..Takeover::default() });
            self.note(None, format!("a program asks {} to hand over", name(node)));
        }
    }

    /// Carries bytes between the two programs. Either may be gone.
    pub fn carry_to_successor(&mut self) {
        let Some(Takeover { node, legacy }) = &mut self.takeover else { return };
        let before = self.nodes[*node].as_mut();
        let Some((bequest, clock)) = before.and_then(|it| Some((it.bequest.as_mut()?, it.clock)))
        else {
            self.takeover = None;
            return;
        };
        for end in [&mut bequest.end, &mut legacy.end] {
            end.set_now(clock.now_ms());
        }
        let there = bequest.end.output();
        let (first, rest) = there.split_at(self.rng.index(there.len() + 1));
        for part in [first, rest] {
            legacy.end.input(part).expect("the predecessor keeps the protocol");
            legacy.learn();
        }
        bequest.end.input(&legacy.end.output()).expect("the successor keeps the protocol");
    }

    /// Has the successor, if it knows enough, take over, or go away.
    pub fn end_takeover(&mut self) {
        let Some(takeover) = &self.takeover else { return };
        if !takeover.legacy.end.status().has_its_snapshot || !self.rng.permille(50) {
            return;
        }
        let node = takeover.node;
        let has_all = !self.rng.permille(200) && self.close(node);
        let (left, takeover) = (self.nodes[node].take(), self.takeover.take());
        let (Some(mut before), Some(Takeover { mut legacy, .. })) = (left, takeover) else {
            return;
        };
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
        legacy.end.set_now(before.clock.now_ms());
        let mut connections = legacy.connections();
        // Their order is of no importance, but must be the same each time.
        connections.sort_unstable_by_key(|change| match change {
            Change::Claim(Record { key, .. }) | Change::Inherit(key) => *key,
        });
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
