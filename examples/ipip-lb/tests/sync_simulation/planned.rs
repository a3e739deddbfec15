//! Changes in two phases: all nodes prepare a configuration before the first of them adopts it.
//! Nodes adopt it at different times, one of them much later if it can't reach the store, and any
//! of them may be killed in between.

use super::Mutant;
use super::model::Configuration;
use super::world::World;

/// Maximum number of packets until a change is prepared.
const PREPARED_PACKETS: usize = 4_000;

impl World {
    /// A planned change, while packets continue.
    pub fn planned_change(&mut self) -> Result<(), String> {
        let next = self.next_configuration();
        self.forget_unseen();
        if self.mutant != Mutant::Unprepared {
            for node in 0..self.nodes.len() {
                self.go_on(10)?;
                if let Some(node) = &mut self.nodes[node] {
                    node.prepare(next);
                }
            }
            // A node that is killed meanwhile does not answer: the change is taken back.
            if self.announced.len() > 1 && self.rng.permille(200) {
                self.met.discarded += 1;
                self.go_on(20)?;
                self.kill();
                self.move_clients();
                for node in 0..self.nodes.len() {
                    self.go_on(10)?;
                    if let Some(node) = &mut self.nodes[node] {
                        node.discard();
                    }
                }
                return Ok(());
            }
            self.await_prepared()?;
        }
        self.met.planned += 1;
        let before = std::mem::replace(&mut self.configuration, next);
        self.adopt_by_turns(before)
    }

    /// Continues with at most this many packets.
    fn go_on(&mut self, packets_max: usize) -> Result<(), String> {
        (0..self.rng.index(packets_max + 1)).try_for_each(|_| self.traffic())
    }

    fn await_prepared(&mut self) -> Result<(), String> {
        for _ in 0..PREPARED_PACKETS {
            let is_up = |peer: &str| self.is_up(peer);
            if self.nodes.iter().flatten().all(|it| it.has_prepared(is_up)) {
                return Ok(());
            }
            self.traffic()?;
        }
        Err(format!("at {} ms: never prepared", self.now_ms))
    }

    /// Lets nodes adopt the configuration in force, one after the other. Once, one of them may be
    /// killed, or the last one with the configuration `before` comes back with that.
    fn adopt_by_turns(&mut self, before: Configuration) -> Result<(), String> {
        let mut left: Vec<_> = (0..self.nodes.len()).collect();
        // The last one can't reach the store for a while, and others end meanwhile.
        let returns_permille = if self.mutant == Mutant::AnnouncedBehind { 1000 } else { 500 };
        let is_cut_off = self.rng.permille(returns_permille);
        let killed_before = match self.rng.permille(600) {
            true if is_cut_off => Some(1),
            true => Some(1 + self.rng.index(left.len())),
            false => None,
        };
        while !left.is_empty() {
            let left_count = left.len();
            let node = left.swap_remove(self.rng.index(left_count));
            self.go_on(if left_count == 1 && is_cut_off { 400 } else { 40 })?;
            if killed_before == Some(left_count) && self.announced.len() > 1 {
                self.met.killed_between += u64::from(left_count < self.nodes.len());
                self.kill();
                self.move_clients();
                self.go_on(if is_cut_off { 300 } else { 40 })?;
            } else if self.rng.permille(200) {
                let link = self.rng.index(self.links.len());
                self.links[link].cut(&mut self.nodes, self.now_ms);
            }
            let is_last = left_count == 1 && self.announced.contains(&node);
            let may_return = is_last && is_cut_off && self.announced.len() > 1;
            if may_return && self.rng.permille(returns_permille) {
                self.come_back(node, before)?;
            }
            self.adopt(node);
        }
        Ok(())
    }

    /// Kills a node that can't reach the store. It comes back with its copy of the previous
    /// configuration, and takes no packets while peers use a newer one.
    fn come_back(&mut self, node: usize, before: Configuration) -> Result<(), String> {
        self.met.returned += 1;
        self.settle()?;
        self.kill_node(node);
        self.move_clients();
        self.go_on(100)?;
        self.restart(node, before);
        self.settle()?;
        self.announce_unless_behind(node);
        self.go_on(400)?;
        // Routes change once more, and the node reads the store again.
        self.settle()?;
        self.salt = self.rng.next_u64();
        self.move_clients();
        self.go_on(100)?;
        self.settle()?;
        self.adopt(node);
        self.settle()?;
        self.announce_unless_behind(node);
        self.go_on(100)
    }

    fn announce_unless_behind(&mut self, number: usize) {
        let is_behind = self.nodes[number].as_ref().is_none_or(|node| node.peers.is_behind());
        if (!is_behind || self.mutant == Mutant::AnnouncedBehind)
            && !self.announced.contains(&number)
        {
            self.announced.push(number);
            self.move_clients();
        }
    }
}
