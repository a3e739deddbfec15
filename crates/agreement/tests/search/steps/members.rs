//! Nodes that end, start, and move the reference table.

use super::{Detail, Steps};
use crate::mutant::Mutant;
use crate::scope::Scope;
use crate::state::{InFlight, Kind, NODES, Up, View, number_of, phase_of};
use hotloop_agreement::{Action, Birth, Claim, Joining, Member, Phase, Stage};

impl<const K: usize> Steps<'_, K> {
    /// A node dies, and all is lost but its phase. Peers that have its unacknowledged claims claim them again.
    pub(super) fn kill(&mut self, node: usize) {
        let (from, scope) = (self.from, self.scope);
        let is_last = !(0..NODES).any(|of| of != node && from.up[of] == Up::Receiving);
        if from.kills >= scope.kills || is_last {
            return;
        }
        let mut next = *from;
        next.kills += 1;
        next.up[node] = Up::Down;
        for (key, it) in from.keys.iter().enumerate() {
            let slot = &it.slot[node];
            if it.owed[node] & from.running() != 0 && slot.kind != Kind::Nothing {
                let has_it = |&of: &usize| {
                    let its = &it.slot[of];
                    of != node
                        && from.runs(of)
                        && its.kind == Kind::Entry
                        && its.birth == slot.birth
                };
                let heirs: Vec<_> = (0..NODES).filter(has_it).collect();
                next.keys[key].is_lost |= heirs.is_empty();
                for heir in heirs.into_iter().filter(|_| scope.mutant != Mutant::NotInherited) {
                    next.claim(heir, key, scope);
                }
            }
            let it = &mut next.keys[key];
            it.slot[node] = Default::default();
            (it.net[node], it.owed[node]) = (0, 0);
        }
        for of in (0..NODES).filter(|&of| from.up[of] == Up::Joining) {
            if scope.mutant != Mutant::GoesOnJoining && from.taken[of] >> node & 1 == 0 {
                next.taken[of] = 0;
            }
        }
        (next.taken[node], next.wait[node], next.walked_for[node]) = (0, 0, 0);
        next.phase[node] = number_of(phase_of(from.phase[node]).restarted());
        next.view[node] = Default::default();
        next.notices[node] = false;
        if !scope.has_stale_views {
            for of in 0..NODES {
                next.view[of][node] =
                    View { walked_for: from.walked_for[node], ..from.own_view(node) };
            }
        }
        self.add("kill", node, 0, Detail::Nothing, next);
    }

    /// A dead node starts, or its operator removes it, which is a loss of memory of all others.
    pub(super) fn start(&mut self, node: usize) {
        let (from, scope) = (self.from, self.scope);
        let mut next = *from;
        next.view[node] = Default::default();
        next.up[node] = Up::Joining;
        next.generation[node] += 1;
        next.wait[node] = Self::wait(scope);
        if scope.forgets_phase {
            next.phase[node] = 0;
        }
        for it in &mut next.keys {
            it.is_loose[node] = it.is_loose.contains(&true);
        }
        self.add("start", node, 0, Detail::Nothing, next);
        if from.removals >= scope.removals {
            return;
        }
        let mut next = *from;
        next.removals += 1;
        next.up[node] = Up::Removed;
        next.phase[node] = 0;
        for of in 0..NODES {
            next.keys.iter_mut().for_each(|it| it.owed[of] &= !(1 << node));
            next.view[of][node] = View::default();
            next.taken[of] &= !(1 << node);
            next.walked_for[of] = 0;
            next.phase[of] = number_of(phase_of(next.phase[of]).restarted());
            if of != node && next.up[of] != Up::Removed {
                next.generation[of] += 1;
                next.wait[of] = Self::wait(scope);
            }
        }
        self.add("remove", node, 0, Detail::Nothing, next);
    }

    const fn wait(scope: &Scope) -> u8 {
        if matches!(scope.mutant, Mutant::NoWait) { 0 } else { 2 }
    }

    /// A removed node is a member again, without its disk.
    pub(super) fn comes_back(&mut self, node: usize) {
        let (from, scope) = (self.from, self.scope);
        if !scope.returns {
            return;
        }
        let mut next = *from;
        next.up[node] = Up::Joining;
        let peers = (0..NODES).filter(|&of| from.up[of] == Up::Receiving);
        next.phase[node] = number_of(Phase::joining(peers.map(|of| phase_of(from.phase[of]))));
        next.generation[node] += 1;
        next.wait[node] = Self::wait(scope);
        for it in &mut next.keys {
            it.is_loose[node] = it.is_loose.contains(&true);
        }
        self.add("add", node, 0, Detail::Nothing, next);
    }

    /// A node that starts takes the snapshots of all that receive packets, and then receives, too.
    pub(super) fn join(&mut self, node: usize) {
        let from = self.from;
        let mut joining = Joining::default();
        (0..NODES)
            .filter(|of| from.taken[node] >> of & 1 == 1)
            .for_each(|of| joining.take(of as u32));
        let receiving = (0..NODES).filter(|&of| of != node && from.up[of] == Up::Receiving);
        let missing = joining.missing(receiving.fold(0, |set, of| set | 1 << of));
        for of in (0..NODES).filter(|of| missing >> of & 1 == 1) {
            let mut next = *from;
            for (key, it) in from.keys.iter().enumerate() {
                let theirs = it.slot[of];
                let here = next.keys[key].slot[node].kind;
                match theirs.kind {
                    Kind::Entry if theirs.is_shared => {
                        let claim = Claim {
                            backend: theirs.backend,
                            birth: Birth::from_bits(u64::from(theirs.birth)),
                            stage: Stage::Opening,
                        };
                        let flying = InFlight { claim, connection: theirs.connection };
                        self.deliver(&mut next, node, key, flying, false);
                    }
                    Kind::Ended if here == Kind::Nothing => next.keys[key].slot[node] = theirs,
                    _ => {}
                }
                next.keys[key].owed[of] &= !(1 << node);
            }
            if self.scope.forgets_phase {
                let phases = [from.phase[node], from.phase[of]].map(phase_of);
                next.phase[node] = number_of(Phase::joining(phases.into_iter()));
            }
            next.taken[node] |= 1 << of;
            self.add("snapshot", node, 0, Detail::Peer(of as u8), next);
        }
        if missing == 0 {
            let mut next = *from;
            next.up[node] = Up::Receiving;
            next.taken[node] = 0;
            self.add("receives", node, 0, Detail::Nothing, next);
        }
    }

    /// A node gets another one's phase.
    pub(super) fn hears(&mut self, node: usize) {
        let (from, scope) = (self.from, self.scope);
        let has_moves = scope.tables.iter().any(|tables| tables.len() > 1);
        if !scope.has_stale_views || !has_moves || !from.runs(node) {
            return;
        }
        for of in (0..NODES).filter(|&of| of != node && from.runs(of)) {
            let mut next = *from;
            next.view[node][of] = from.own_view(of);
            self.add("hears", node, 0, Detail::Peer(of as u8), next);
        }
    }

    /// The reference table moves, as far as a node is concerned.
    pub(super) fn moves(&mut self, node: usize) {
        let (from, scope) = (self.from, self.scope);
        let last = scope.tables[0].len() as u32 - 1;
        if last == 0 {
            return;
        }
        let peers = (0..NODES).filter(|&of| of != node && from.up[of] != Up::Removed);
        let peers = peers.map(|of| from.heard(scope, node, of).member());
        let mut member = from.own_view(node).member();
        let unmarked = peers.clone().map(|peer| match scope.mutant {
            Mutant::NoGenerations => Member { walked_for: member.walked_for, ..peer },
            _ => peer,
        });
        let is_acknowledged = scope.mutant == Mutant::NoAcknowledgement
            || from.keys.iter().all(|it| it.owed[node] == 0);
        let generations = match scope.mutant {
            Mutant::NoGenerations => {
                member.walked_for.unwrap_or(u64::from(from.generations(scope, node)))
            }
            _ => u64::from(from.generations(scope, node)),
        };
        let has_next = member.phase.table < last;
        let Some(action) = member.next(unmarked, generations, has_next, is_acknowledged) else {
            return;
        };
        member.take(action);
        let mut next = *from;
        next.phase[node] = number_of(member.phase);
        next.walked_for[node] = member.walked_for.map_or(0, |all| all as u8);
        let claims_exceptions = match action {
            Action::Walk(_) => true,
            Action::GetReady => scope.mutant != Mutant::SilentWhenReady,
            Action::Mark | Action::Switch | Action::Finish => false,
        };
        if claims_exceptions {
            for (key, it) in from.keys.iter().enumerate() {
                let slot = &it.slot[node];
                let is_left_out = slot.is_shared && scope.mutant == Mutant::WalksOwnOnly;
                let is_exception = next.choice(scope, node, key).is_exception(slot.backend);
                let is_ended = slot.kind == Kind::Ended && scope.other_stage == Stage::Closing;
                if (slot.kind == Kind::Entry || is_ended) && is_exception && !is_left_out {
                    next.claim(node, key, scope);
                }
            }
        }
        let name = match action {
            Action::GetReady => "ready",
            Action::Walk(_) => "walk",
            Action::Mark => "mark",
            Action::Switch => "switch",
            Action::Finish => "finish",
        };
        self.add(name, node, 0, Detail::Nothing, next);
    }
}
