//! A client's packets, and the current tables that choose backends for them.

use super::{Detail, Steps};
use crate::mutant::Mutant;
use crate::state::{Client, Kind, NODES, small};
use hotloop_agreement::{Birth, Known, Outcome};

impl<const K: usize> Steps<'_, K> {
    /// A SYN, the first or one that is sent again, by any way.
    pub(super) fn syn(&mut self, node: usize, key: usize) {
        let (from, scope) = (self.from, self.scope);
        let it = &from.keys[key];
        let is_first =
            matches!(it.state, Client::None | Client::Over) && it.connection < scope.connections;
        let is_again = (it.state == Client::Opening
            || it.state == Client::Open && scope.has_late_syns)
            && it.syns < scope.syns * it.connection;
        if !is_first && !is_again {
            return;
        }
        self.syn_born(node, key, it.births + 1, is_first);
        // It may come in the same step of time as one by another node, if this node has not heard of that.
        if is_again && it.slot[node].birth < small(Birth::new(u64::from(it.births))) {
            self.syn_born(node, key, it.births, is_first);
        }
    }

    /// A SYN that begins a connection with the birth of this number.
    fn syn_born(&mut self, node: usize, key: usize, number: u8, is_first: bool) {
        let (from, scope) = (self.from, self.scope);
        let mut next = *from;
        let it = &mut next.keys[key];
        it.syns += 1;
        if is_first {
            it.end();
            it.state = Client::Opening;
            it.connection += 1;
            it.is_excused = it.connection > 1 && !from.is_quiet(key);
        }
        let birth = Birth::new(u64::from(number));
        let slot = &mut it.slot[node];
        let is_dead =
            from.notices[node] && slot.kind == Kind::Entry && slot.backend + 1 == from.dead;
        let known = if is_dead { slot.known().after_end() } else { slot.known() };
        let outcome = known.after_syn(&from.choice(scope, node, key), birth);
        slot.connection = it.connection;
        slot.idle = 0;
        let owed = &mut it.owed[node];
        if matches!(known, Known::Nothing | Known::Ended(_)) {
            *owed = 0;
        }
        if outcome.known != known {
            it.births = number;
        }
        next.enter(scope, node, key, outcome);
        let it = &mut next.keys[key];
        let backend = it.slot[node].backend;
        let is_second = it.syn != 0 && it.syn >> backend & 1 == 0;
        it.is_excused |= is_second && (it.state == Client::Opening || !from.keys[key].is_settled);
        it.syn |= 1 << backend;
        it.silent = 0;
        self.add("syn", node, key, Detail::Backend(backend), next);
    }

    /// A packet of an open connection, or an answer to one.
    pub(super) fn packet(&mut self, node: usize, key: usize) {
        let (from, scope) = (self.from, self.scope);
        let it = &from.keys[key];
        if it.state != Client::Open {
            return;
        }
        let choice = from.choice(scope, node, key);
        let known = it.slot[node].known();
        if from.backend(scope, node, key) != it.backend {
            let mut next = *from;
            next.keys[key].end();
            self.add("packet", node, key, Detail::Nothing, next);
        } else {
            self.pass("packet", node, key, known.after_packet(&choice));
        }
        if scope.has_replies {
            self.pass("reply", node, key, known.after_reply(it.backend, &choice));
        }
    }

    fn pass(&mut self, name: &'static str, node: usize, key: usize, outcome: Outcome<u8>) {
        let mut next = *self.from;
        let it = &mut next.keys[key];
        it.silent = 0;
        let slot = &mut it.slot[node];
        let before = slot.connection;
        if slot.kind != Kind::Entry {
            it.owed[node] = 0;
            slot.connection = it.connection;
        } else if self.scope.mutant != Mutant::ClosesInUse {
            slot.connection = it.connection;
        }
        slot.idle = 0;
        let was_closing = slot.kind == Kind::Entry && slot.is_shared && slot.connection > before;
        next.enter(self.scope, node, key, outcome);
        if was_closing {
            next.claim(node, key, self.scope);
        }
        self.add(name, node, key, Detail::Nothing, next);
    }

    /// A node's current table changes. It may differ from the reference once all nodes have the slot as
    /// loose, and all have acknowledged what is in it.
    pub(super) fn current(&mut self, node: usize, key: usize) {
        let (from, scope) = (self.from, self.scope);
        let it = &from.keys[key];
        let reference = from.choice(scope, node, key).reference;
        let running = from.running();
        let is_ready = |of: usize| !from.runs(of) || it.is_loose[of] && it.owed[of] & running == 0;
        let may_differ = scope.is_hasty || (0..NODES).all(is_ready);
        for backend in 0..scope.backends {
            let is_new = backend != it.current[node] && it.changes < scope.changes;
            if is_new && (may_differ || backend == reference) {
                let mut next = *from;
                next.keys[key].current[node] = backend;
                next.keys[key].changes += 1;
                self.add("current", node, key, Detail::Backend(backend), next);
            }
        }
    }

    /// A node learns that a slot is loose, and claims what is in it.
    pub(super) fn loosen(&mut self, node: usize, key: usize) {
        let (from, scope) = (self.from, self.scope);
        let it = &from.keys[key];
        if scope.is_hasty || it.is_loose[node] || it.changes >= scope.changes {
            return;
        }
        let mut next = *from;
        next.keys[key].is_loose[node] = true;
        let slot = &it.slot[node];
        let is_left_out = scope.mutant == Mutant::LooseIfOpening && slot.is_established
            || scope.mutant == Mutant::SilentLoose;
        if slot.kind == Kind::Entry && !slot.is_shared && !is_left_out {
            next.claim(node, key, scope);
        }
        self.add("loose", node, key, Detail::Nothing, next);
    }

    /// The client gets an answer, or ends its connection.
    pub(super) fn client(&mut self, key: usize) {
        let (from, scope) = (self.from, self.scope);
        let it = &from.keys[key];
        let may_answer = |&backend: &u8| it.syn >> backend & 1 == 1 && backend + 1 != from.dead;
        for backend in (0..3).filter(|backend| it.state == Client::Opening && may_answer(backend)) {
            let mut next = *from;
            (next.keys[key].state, next.keys[key].backend) = (Client::Open, backend);
            self.add("accept", NODES, key, Detail::Backend(backend), next);
        }
        if it.state == Client::Open && it.connection < scope.connections {
            let mut next = *from;
            next.keys[key].end();
            self.add("close", NODES, key, Detail::Nothing, next);
        }
    }
}
