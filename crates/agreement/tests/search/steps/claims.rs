//! Claims that arrive, and ends of what nodes know.

use super::{Detail, Steps};
use crate::mutant::Mutant;
use crate::state::{CLAIMS, Client, InFlight, Kind, NODES, Slot, State, Up, numbers, small};
use hotloop_agreement::{Birth, Circumstances, Known, Reason, Stage};

impl<const K: usize> Steps<'_, K> {
    /// A claim arrives at a node. It may be lost if no node has to send it again.
    pub(super) fn claims(&mut self, node: usize, key: usize) {
        let (from, scope) = (self.from, self.scope);
        let it = &from.keys[key];
        for number in numbers(it.net[node]) {
            debug_assert!(number < CLAIMS);
            let flying = InFlight::numbered(number, it.in_other_stage, scope.other_stage);
            let birth = small(flying.claim.birth);
            let is_of = |slot: &Slot| {
                (slot.kind == Kind::Ended
                    || slot.kind == Kind::Entry && slot.backend == flying.claim.backend)
                    && slot.birth == birth
                    && slot.connection == flying.connection
            };
            let has_it = |of: usize| of != node && is_of(&it.slot[of]);
            let waits = |of: usize| has_it(of) && it.owed[of] >> node & 1 == 1;
            let mut next = *from;
            self.deliver(
                &mut next,
                node,
                key,
                flying,
                !(0..NODES).any(|of| from.up[of] != Up::Down && waits(of)),
            );
            let arrived = &mut next.keys[key];
            for of in (0..NODES).filter(|&of| of != node) {
                if is_of(&arrived.slot[of]) {
                    arrived.owed[of] &= !(1 << node);
                }
            }
            if scope.delivers_once {
                arrived.net[node] &= !(1 << number);
            }
            self.add("claim", node, key, Detail::Backend(flying.claim.backend), next);
            if !(0..NODES).any(waits) {
                let mut next = *from;
                let it = &mut next.keys[key];
                it.net[node] &= !(1 << number);
                let slot = &it.slot[node];
                it.is_lost |= slot.kind == Kind::Nothing || slot.birth < birth;
                self.add("lose", node, key, Detail::Backend(flying.claim.backend), next);
            }
        }
    }

    pub(super) fn deliver(
        &self,
        next: &mut State<K>,
        node: usize,
        key: usize,
        flying: InFlight,
        is_orphaned: bool,
    ) {
        let it = &mut next.keys[key];
        let slot = &mut it.slot[node];
        slot.is_used &= self.scope.mutant != Mutant::TakesBirth;
        let before = slot.known();
        let next_birth = it.births + u8::from(self.scope.mutant != Mutant::EqualDispute);
        let circumstances = Circumstances {
            is_owed: it.owed[node] != 0,
            is_orphaned,
            is_syn_again: slot.idle == 0
                && self.scope.other_stage == Stage::Opening
                && self.scope.mutant != Mutant::YieldsToSyn,
            is_used_since: slot.connection > flying.connection
                && self.scope.mutant != Mutant::EndsInUse,
            now: Birth::new(u64::from(next_birth)),
        };
        let mut outcome = before.after_claim(flying.claim, circumstances);
        let last = slot.connection.max(flying.connection);
        let joins = before.joins(&flying.claim) && self.scope.mutant != Mutant::ShortJoin;
        let is_replaced = match (before, outcome.known) {
            (Known::Entry(before), Known::Entry(after)) => before.birth != after.birth,
            (_, Known::Entry(_)) => true,
            _ => false,
        };
        let mut has_grown = false;
        if let Known::Entry(entry) = outcome.known
            && entry.birth == circumstances.now
            && outcome.claim == Some(Reason::Dispute)
        {
            it.births = next_birth;
        } else if joins {
            has_grown = it.owed[node] != 0 && last > slot.connection;
            slot.connection = last;
            if is_replaced {
                slot.idle = 0;
                it.owed[node] = 0;
            }
        } else if is_replaced {
            slot.connection = flying.connection;
            slot.idle = 0;
            it.owed[node] = 0;
        }
        if let Known::Entry(entry) = outcome.known
            && entry.stage == Stage::Closing
        {
            slot.set(outcome.known, self.scope);
            outcome.known = outcome.known.after_end();
        }
        next.enter(self.scope, node, key, outcome);
        if has_grown && outcome.claim.is_none() {
            next.claim(node, key, self.scope);
        }
    }

    /// An entry ends with its connection; one that no peer knows also when no packet came here for
    /// long. A tombstone lasts longer than any entry of its connection and than any claim.
    pub(super) fn ends(&mut self, node: usize, key: usize) {
        let (from, scope) = (self.from, self.scope);
        let it = &from.keys[key];
        let slot = &it.slot[node];
        let is_silent = !slot.is_shared && slot.idle == 2;
        let is_over = it.state == Client::Over || slot.connection != it.connection;
        if slot.kind == Kind::Entry && (is_over || is_silent) {
            let mut next = *from;
            let it = &mut next.keys[key];
            let after = match slot.known().after_end() {
                Known::Ended(_) if scope.mutant == Mutant::NoTombstones => Known::Nothing,
                after => after,
            };
            if after == Known::Nothing {
                it.owed[node] = 0;
            }
            it.slot[node].set(after, scope);
            self.add("end", node, key, Detail::Nothing, next);
        }
        if slot.kind == Kind::Ended {
            let has_entry = |of: usize| {
                let it = &it.slot[of];
                of != node
                    && from.up[of] != Up::Down
                    && it.kind == Kind::Entry
                    && it.connection == slot.connection
            };
            let is_claimed = |of: usize| {
                from.runs(of)
                    && numbers(it.net[of]).any(|number| {
                        InFlight::numbered(number, 0, scope.other_stage).connection
                            == slot.connection
                    })
            };
            let is_known = (0..NODES).any(|of| has_entry(of) || is_claimed(of));
            if !is_known && it.owed[node] & from.running() == 0 {
                let mut next = *from;
                next.keys[key].slot[node].set(Known::Nothing, scope);
                next.keys[key].owed[node] = 0;
                self.add("gone", node, key, Detail::Nothing, next);
            }
        }
    }
}
