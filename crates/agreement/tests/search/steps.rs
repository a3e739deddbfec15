//! The steps that may follow a state.

mod claims;
mod client;
mod members;

use crate::scope::Scope;
use crate::state::{Client, Key, Kind, NODES, State, Up};

/// A step, for a trace: its name, the node if it is one's, the other node or the backend, and the key.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    pub name: &'static str,
    pub node: Option<u8>,
    pub detail: Detail,
    pub key: u8,
}

#[derive(Clone, Copy, Debug)]
pub enum Detail {
    Nothing,
    Peer(u8),
    Backend(u8),
}

/// The steps that may follow a state.
pub struct Steps<'a, const K: usize> {
    scope: &'a Scope,
    from: &'a State<K>,
    pub found: Vec<(Label, State<K>)>,
}

impl<'a, const K: usize> Steps<'a, K> {
    pub fn after(from: &'a State<K>, scope: &'a Scope, found: Vec<(Label, State<K>)>) -> Self {
        let mut steps = Self { scope, from, found };
        steps.found.clear();
        let is_done = |key: &Key| key.state == Client::Over && key.connection >= scope.connections;
        // Nothing is left to go wrong.
        if from.keys.iter().all(is_done) {
            return steps;
        }
        for node in 0..NODES {
            for key in 0..K {
                if from.up[node] == Up::Receiving {
                    steps.syn(node, key);
                    steps.packet(node, key);
                    steps.current(node, key);
                    steps.loosen(node, key);
                }
                if from.runs(node) {
                    steps.claims(node, key);
                    steps.ends(node, key);
                }
            }
            match from.up[node] {
                Up::Receiving => {
                    steps.kill(node);
                    steps.moves(node);
                    steps.notice(node);
                }
                Up::Down => steps.start(node),
                Up::Joining => steps.join(node),
                _ => steps.comes_back(node),
            }
            steps.hears(node);
        }
        (0..K).for_each(|key| steps.client(key));
        steps.death();
        steps.time();
        steps
    }

    fn add(&mut self, name: &'static str, node: usize, key: usize, detail: Detail, next: State<K>) {
        if next != *self.from {
            let node = (node < NODES).then_some(node as u8);
            self.found.push((Label { name, node, detail, key: key as u8 }, next));
        }
    }

    /// A backend dies, and its connections with it.
    fn death(&mut self) {
        let (from, scope) = (self.from, self.scope);
        if !scope.has_death || from.dead != 0 {
            return;
        }
        for backend in 0..scope.backends {
            let mut next = *from;
            next.dead = backend + 1;
            for it in &mut next.keys {
                if it.state == Client::Open && it.backend == backend {
                    it.end();
                }
            }
            self.add("death", NODES, 0, Detail::Backend(backend), next);
        }
    }

    /// A node notices that a backend is dead, and chooses others at once.
    fn notice(&mut self, node: usize) {
        let from = self.from;
        if from.dead == 0 || from.notices[node] {
            return;
        }
        let mut next = *from;
        next.notices[node] = true;
        let dead = from.dead - 1;
        for it in next.keys.iter_mut().filter(|it| it.current[node] == dead) {
            it.current[node] = u8::from(dead == 0);
        }
        self.add("notice", node, 0, Detail::Backend(dead), next);
    }

    /// An idle timeout's length passes: a connection without packets meanwhile lapses at the second
    /// mark. Waits of nodes last for two.
    fn time(&mut self) {
        let mut next = *self.from;
        for it in &mut next.keys {
            if matches!(it.state, Client::Opening | Client::Open) {
                it.silent += 1;
                it.is_excused |= self.scope.allows_moments;
                if it.silent == 2 {
                    it.end();
                }
            }
            for slot in
                it.slot.iter_mut().filter(|slot| slot.kind == Kind::Entry && !slot.is_shared)
            {
                slot.idle = (slot.idle + 1).min(2);
            }
        }
        next.wait.iter_mut().for_each(|wait| *wait = wait.saturating_sub(1));
        self.add("time", NODES, 0, Detail::Nothing, next);
    }
}
