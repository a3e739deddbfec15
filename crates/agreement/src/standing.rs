//! A node's reference tables, compared with those of its peers.

use crate::barrier::{Action, Member, Phase, Step};

/// A node's reference tables, as its peers get them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Standing {
    /// How far the node is with a move.
    pub member: Member,
    /// A digest of the table that unknown connections go by; `None` before the node has one.
    pub in_use: Option<u64>,
    /// A digest of the other table, during a move.
    pub other: Option<u64>,
    /// A digest of the table that the node's configuration would make.
    pub wanted: Option<u64>,
}

/// Another member of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its tables; `None` if there is no contact with it.
    pub standing: Option<Standing>,
    /// Whether its name is less than this node's.
    pub is_before: bool,
}

/// The circumstances of a [decision](Standing::decide).
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Whether the node has waited for peers that may have a reference table.
    pub has_waited: bool,
    /// Whether all nodes have wanted the same table for long enough.
    pub is_settled: bool,
    /// Whether all peers have acknowledged all claims of the last walk.
    pub is_acknowledged: bool,
}

/// A node's next step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// Begin with the table that the node wants: no peer has one.
    Create,
    /// Use the tables of the peer at this index from now on, in this phase, and compare all connections
    /// with them. The node has lost its part in the agreement, or never had one.
    Adopt(usize, Phase),
    /// Begin a move to the next table of the peer at this index, or to the table that this node wants.
    Begin(Option<usize>),
    /// Go on with the move: any action but [`Action::GetReady`].
    Continue(Action),
}

impl Standing {
    /// The digest of the table with this number, if the node has it.
    #[must_use]
    pub fn digest_of(&self, number: u32) -> Option<u64> {
        let phase = self.member.phase;
        let other = self.other.filter(|_| phase.other() == Some(number));
        other.or(self.in_use.filter(|_| phase.in_use() == number))
    }

    /// The node's next step, if there is one.
    ///
    /// All nodes of a cluster have the same table with each number. Nodes that were started without
    /// contact may differ: then those with the lesser number or, at the same number, with the greater
    /// name adopt the others' tables. Nothing moves until all nodes are in contact.
    #[must_use]
    pub fn decide(&self, peers: &[Peer], at: Situation) -> Option<Decision> {
        let present = |(index, peer): (usize, &Peer)| Some((index, *peer, peer.standing?));
        let present = || peers.iter().enumerate().filter_map(present);
        let owners = present().filter(|(.., its)| its.in_use.is_some());
        if self.in_use.is_none() {
            let best = owners.max_by_key(|(.., its)| its.member.phase);
            return match best {
                Some((index, _, its)) => Some(its.adopted_from(index)),
                None => {
                    let is_first = !present().any(|(_, peer, _)| peer.is_before);
                    (at.has_waited && is_first).then_some(Decision::Create)
                }
            };
        }
        if let Some((index, peer, its)) = owners.clone().find(|(.., its)| self.differs(its)) {
            let (here, there) = (self.member.phase.in_use(), its.member.phase.in_use());
            let is_theirs = there > here || there == here && peer.is_before;
            return is_theirs.then(|| its.adopted_from(index));
        }
        if owners.count() < peers.len() {
            return None;
        }
        self.go_on(peers, at)
    }

    /// The decision to use these tables, of the peer at this index.
    fn adopted_from(&self, index: usize) -> Decision {
        Decision::Adopt(index, self.member.phase.restarted())
    }

    /// Whether two nodes have different tables with one number, or one of them is in a later move.
    fn differs(&self, its: &Self) -> bool {
        let (here, there) = (self.member.phase, its.member.phase);
        let mut numbers = [Some(here.in_use()), here.other()].into_iter().flatten();
        let is_other = |number| {
            let both = self.digest_of(number).zip(its.digest_of(number));
            both.is_some_and(|(here, there)| here != there)
        };
        let has_its = self.digest_of(there.in_use()).is_some();
        let has_this = its.digest_of(here.in_use()).is_some();
        numbers.any(is_other) || !(has_its || has_this)
    }

    /// The next step of a move; all peers are in contact, and have the same tables.
    fn go_on(&self, peers: &[Peer], at: Situation) -> Option<Decision> {
        let members = peers.iter().filter_map(|peer| peer.standing);
        let phase = self.member.phase;
        let theirs = || {
            let has_next = |peer: &Peer| peer.standing?.digest_of(phase.table + 1);
            peers.iter().position(|peer| has_next(peer).is_some())
        };
        let is_at_rest = |it: &Self| {
            it.member.phase == phase && !it.member.is_waiting && it.wanted == self.wanted
        };
        let may_propose = || {
            let is_first = !peers.iter().any(|peer| peer.is_before);
            let is_new = self.wanted.is_some() && self.wanted != self.in_use;
            is_first && is_new && at.is_settled && members.clone().all(|it| is_at_rest(&it))
        };
        let next = if phase.step == Step::Idle { theirs() } else { None };
        let has_next = next.is_some() || may_propose();
        let generations = self.generations(members.clone());
        let members = members.clone().map(|it| it.member);
        match self.member.next(members, generations, has_next, at.is_acknowledged)? {
            Action::GetReady => Some(Decision::Begin(next)),
            action => Some(Decision::Continue(action)),
        }
    }

    /// A digest of all nodes' generations.
    fn generations(&self, others: impl Iterator<Item = Self>) -> u64 {
        let mut all: Vec<_> = others.chain([*self]).map(|it| it.member.generation).collect();
        all.sort_unstable();
        // FNV-1a, by 8 bytes at a time.
        let fold = |digest: u64, number: &u64| (digest ^ number).wrapping_mul(0x0100_0000_01b3);
        all.iter().fold(0xcbf2_9ce4_8422_2325, fold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITED: Situation =
        Situation { has_waited: true, is_settled: true, is_acknowledged: true };

    fn at(table: u32, step: Step, [in_use, other]: [u64; 2]) -> Standing {
        let member = Member { phase: Phase { table, step }, generation: 7, ..Member::default() };
        let some = |digest| (digest > 0).then_some(digest);
        Standing { member, in_use: some(in_use), other: some(other), wanted: Some(1) }
    }

    fn idle(table: u32, digest: u64) -> Standing {
        at(table, Step::Idle, [digest, 0])
    }

    fn before(standing: Standing) -> Peer {
        Peer { standing: Some(standing), is_before: true }
    }

    fn after(standing: Standing) -> Peer {
        Peer { standing: Some(standing), is_before: false }
    }

    const AWAY: Peer = Peer { standing: None, is_before: true };

    #[test]
    fn the_first_of_all_nodes_in_contact_makes_the_first_table() {
        let new = Standing { wanted: Some(1), ..Standing::default() };
        assert_eq!(new.decide(&[before(new)], WAITED), None);
        assert_eq!(new.decide(&[AWAY, after(new)], WAITED), Some(Decision::Create));
        let early = Situation { has_waited: false, ..WAITED };
        assert_eq!(new.decide(&[after(new)], early), None);
    }

    #[test]
    fn a_new_node_takes_the_tables_of_the_node_that_is_ahead() {
        let new = Standing::default();
        let peers = [before(new), after(idle(3, 1)), after(at(3, Step::Marked, [1, 2]))];
        let phase = Phase { table: 3, step: Step::Ready };
        assert_eq!(new.decide(&peers, WAITED), Some(Decision::Adopt(2, phase)));
    }

    #[test]
    fn of_two_tables_with_one_number_that_of_the_lesser_name_stays() {
        let phase = Phase { table: 3, step: Step::Idle };
        assert_eq!(
            idle(3, 1).decide(&[before(idle(3, 2))], WAITED),
            Some(Decision::Adopt(0, phase))
        );
        assert_eq!(idle(3, 1).decide(&[after(idle(3, 2))], WAITED), None);
        let moving = at(3, Step::Ready, [1, 4]);
        let its = at(3, Step::Ready, [1, 5]);
        assert_eq!(moving.decide(&[after(its)], WAITED), None);
        let phase = its.member.phase;
        assert_eq!(moving.decide(&[before(its)], WAITED), Some(Decision::Adopt(0, phase)));
    }

    #[test]
    fn a_node_that_missed_a_move_takes_the_later_table() {
        let late = idle(3, 1);
        let phase = Phase { table: 5, step: Step::Idle };
        assert_eq!(late.decide(&[after(idle(5, 2))], WAITED), Some(Decision::Adopt(0, phase)));
        assert_eq!(idle(5, 2).decide(&[before(late)], WAITED), None);
    }

    #[test]
    fn nodes_within_one_move_have_the_same_tables() {
        let steps = [
            idle(3, 1),
            at(3, Step::Ready, [1, 2]),
            at(3, Step::Marked, [1, 2]),
            at(3, Step::Switched, [2, 1]),
            idle(4, 2),
        ];
        for pair in steps.windows(2) {
            assert!(!pair[0].differs(&pair[1]) && !pair[1].differs(&pair[0]), "{pair:?}");
        }
        assert!(steps[0].differs(&steps[4]));
    }

    #[test]
    fn the_first_node_begins_a_move_once_all_want_the_same_and_are_in_contact() {
        let resting = |wanted| Standing { wanted: Some(wanted), ..idle(3, 1) };
        let next = resting(2);
        assert_eq!(next.decide(&[after(next)], WAITED), Some(Decision::Begin(None)));
        assert_eq!(next.decide(&[before(next)], WAITED), None, "another node begins");
        assert_eq!(next.decide(&[after(next), AWAY], WAITED), None);
        assert_eq!(next.decide(&[after(resting(1))], WAITED), None, "it wants another table");
        assert_eq!(resting(1).decide(&[after(resting(1))], WAITED), None, "it is in use");
        let early = Situation { is_settled: false, ..WAITED };
        assert_eq!(next.decide(&[after(next)], early), None);
        let mut waiting = next;
        waiting.member.is_waiting = true;
        assert_eq!(next.decide(&[after(waiting)], WAITED), None);
        let begun = at(3, Step::Ready, [1, 2]);
        assert_eq!(
            next.decide(&[before(next), after(begun)], WAITED),
            Some(Decision::Begin(Some(1)))
        );
    }

    #[test]
    fn a_move_goes_through_all_steps_in_each_node() {
        let mut nodes = [0, 1, 2].map(|_| Standing { wanted: Some(2), ..idle(3, 1) });
        for _ in 0..20 {
            for node in 0..3 {
                let others = (0..3).filter(|other| *other != node);
                let peer = |other| Peer { standing: Some(nodes[other]), is_before: other < node };
                let peers: Vec<_> = others.map(peer).collect();
                let it = &mut nodes[node];
                match it.decide(&peers, WAITED) {
                    None => continue,
                    Some(Decision::Begin(_)) => {
                        it.member.take(Action::GetReady);
                        it.other = Some(2);
                    }
                    Some(Decision::Continue(action)) => {
                        it.member.take(action);
                        (it.in_use, it.other) = match action {
                            Action::Switch => (Some(2), Some(1)),
                            Action::Finish => (Some(2), None),
                            _ => (it.in_use, it.other),
                        };
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let all = idle(4, 2);
        for it in nodes {
            assert_eq!((it.member.phase, it.in_use), (all.member.phase, all.in_use));
        }
    }
}
