//! This node's part in the agreement on reference tables. No clocks, and no service tables: the
//! owner passes both, and reports when its workers use other tables.

use super::peer::PeerStatus;
use super::peers::{Entered, Watermark};
use super::reference::Reference;
use hotloop_agreement::barrier::{Action, Phase, Step};
use hotloop_agreement::{Decision, Peer, Situation, Standing};
use std::sync::Arc;

/// The tables that workers use, and those that they will use.
#[derive(Debug)]
pub struct Agreement {
    node: String,
    standing: Standing,
    /// The tables in force, the one in use first.
    tables: Vec<Reference>,
    /// The tables that workers will use, and the standing from then on.
    awaited: Option<(Standing, Vec<Reference>)>,
    /// The mark after the last walk.
    watermark: Option<Watermark>,
    /// Until when connections that this node has lost may be alive.
    lost_until_ms: u64,
    wanted: Option<Arc<str>>,
    /// The digest that all nodes want, and since when.
    agreed: Option<(u64, u64)>,
}

/// The circumstances of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The time now.
    pub now_ms: u64,
    /// Whether the node has waited for peers that may have a reference table.
    pub has_waited: bool,
    /// Whether all workers have found their exceptions to the tables in force.
    pub is_marked: bool,
    /// How long all nodes must want the same table before that becomes the reference table.
    pub settle_ms: u64,
    /// How long connections that a node loses may be alive.
    pub lost_ms: u64,
}

impl Agreement {
    /// A node without a reference table. Connections that it has lost may be alive until
    /// `lost_until_ms`. No other run of a node has this `generation`, or one of those that follow it.
    #[must_use]
    pub fn new(node: &str, generation: u64, lost_until_ms: u64) -> Self {
        let mut standing = Standing::default();
        standing.member.generation = generation;
        Self {
            node: node.to_owned(),
            standing,
            tables: Vec::new(),
            awaited: None,
            watermark: None,
            lost_until_ms,
            wanted: None,
            agreed: None,
        }
    }

    /// Continues with the tables of the program that this one takes over from, and in its phase. Workers
    /// must use these tables: see [`turn`](Self::turn).
    pub fn inherit(&mut self, phase: Phase, tables: Vec<Reference>) {
        let mut standing = self.standing;
        standing.member.phase = phase.restarted();
        self.awaited = Some(standing_with(standing, tables));
    }

    /// The tables in force, the one in use first: at most two, and none at first.
    #[must_use]
    pub fn tables(&self) -> &[Reference] {
        &self.tables
    }

    /// How far the node is with a move.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.standing.member.phase
    }

    /// The standing, for peers.
    #[must_use]
    pub const fn standing(&self, now_ms: u64) -> Standing {
        let mut standing = self.standing;
        standing.member.is_waiting = now_ms < self.lost_until_ms;
        standing
    }

    /// Sets the table that the node's configuration makes.
    pub fn want(&mut self, text: impl Into<Arc<str>>) {
        let text = text.into();
        self.standing.wanted = Some(super::reference::digest_of(&text));
        self.wanted = Some(text);
    }

    /// Notes that this node has lost connections, which may be alive for this long. Until then, the
    /// reference table does not move, unless this node has already [promised](Step::Marked) that it may.
    pub const fn lose(&mut self, now_ms: u64, lost_ms: u64) {
        let member = &mut self.standing.member;
        member.generation = member.generation.wrapping_add(1);
        if matches!(member.phase.step, Step::Ready) {
            member.walked_for = None;
        }
        self.lost_until_ms = now_ms + lost_ms;
    }

    /// Takes the next step, if one is due. Returns the tables that workers must use, if they change;
    /// then the next call has to be [`use_awaited`](Self::use_awaited) or
    /// [`give_up`](Self::give_up). `watermark` and `entered` are those of [`Peers`](super::Peers).
    pub fn turn(
        &mut self,
        peers: &[PeerStatus],
        at: Turn,
        watermark: impl FnOnce() -> Watermark,
        entered: impl Fn(&Watermark) -> Entered,
    ) -> Option<(Decision, Vec<Reference>)> {
        let peer = |status: &PeerStatus| Peer {
            standing: status.said.map(|said| said.standing),
            is_before: status.name < self.node,
        };
        let members: Vec<_> = peers.iter().map(peer).collect();
        let has_all = |mark| entered(mark) == Entered::default();
        let situation = Situation {
            has_waited: at.has_waited,
            is_settled: self.is_settled(&members, at),
            is_acknowledged: self.watermark.as_ref().is_some_and(has_all),
        };
        let decision = self.standing(at.now_ms).decide(&members, situation)?;
        match decision {
            // Workers claim exceptions as soon as they use other tables.
            Decision::Continue(action @ Action::Walk(_)) => {
                if at.is_marked {
                    self.watermark = Some(watermark());
                    self.standing.member.take(action);
                }
                None
            }
            Decision::Continue(Action::Mark) => {
                self.standing.member.take(Action::Mark);
                None
            }
            decision => {
                let (standing, tables) = self.after(decision, peers)?;
                if matches!(decision, Decision::Adopt(..)) && !self.tables.is_empty() {
                    self.lose(at.now_ms, at.lost_ms);
                }
                self.awaited = Some((standing, tables.clone()));
                Some((decision, tables))
            }
        }
    }

    /// Whether workers will use other tables.
    #[must_use]
    pub const fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Notes that all workers use the tables of the last turn. Returns these tables, for
    /// peers, to be sent before the node's next state.
    pub fn use_awaited(&mut self) -> &[Reference] {
        if let Some((standing, tables)) = self.awaited.take() {
            let Standing { member, in_use, other, .. } = standing;
            let own = &mut self.standing;
            (own.member.phase, own.member.walked_for) = (member.phase, member.walked_for);
            (own.in_use, own.other) = (in_use, other);
            (self.tables, self.watermark) = (tables, None);
        }
        &self.tables
    }

    /// Notes that workers can't use the tables of the last turn.
    pub fn give_up(&mut self) {
        self.awaited = None;
    }

    /// Whether all nodes have wanted one table for long enough.
    fn is_settled(&mut self, peers: &[Peer], at: Turn) -> bool {
        let wanted = self.standing.wanted;
        let agrees = |peer: &Peer| peer.standing.is_some_and(|its| its.wanted == wanted);
        let agreed = wanted.filter(|_| peers.iter().all(agrees));
        self.agreed = agreed.map(|wanted| match self.agreed {
            Some(before) if before.0 == wanted => before,
            _ => (wanted, at.now_ms),
        });
        self.agreed.is_some_and(|(_, since_ms)| at.now_ms - since_ms >= at.settle_ms)
    }

    /// The tables after a decision that needs others, and the standing with them. `None` if a peer has
    /// not sent one of them yet.
    fn after(
        &self,
        decision: Decision,
        peers: &[PeerStatus],
    ) -> Option<(Standing, Vec<Reference>)> {
        let mut standing = self.standing;
        let wanted = |number| Some(Reference::new(number, Arc::clone(self.wanted.as_ref()?)));
        let tables = match decision {
            Decision::Create => vec![wanted(0)?],
            Decision::Adopt(index, phase) => {
                (standing.member.phase, standing.member.walked_for) = (phase, None);
                let numbers = [Some(phase.in_use()), phase.other()].into_iter().flatten();
                numbers.map(|number| table_of(&peers[index], number)).collect::<Option<_>>()?
            }
            Decision::Begin(from) => {
                standing.member.take(Action::GetReady);
                let number = standing.member.phase.table + 1;
                let next = match from {
                    Some(index) => table_of(&peers[index], number),
                    None => wanted(number),
                };
                vec![self.tables.first()?.clone(), next?]
            }
            Decision::Continue(action) => {
                standing.member.take(action);
                let mut tables = self.tables.clone();
                match action {
                    Action::Switch => tables.reverse(),
                    _ => tables.truncate(1),
                }
                tables
            }
        };
        Some(standing_with(standing, tables))
    }
}

fn standing_with(standing: Standing, tables: Vec<Reference>) -> (Standing, Vec<Reference>) {
    let digest = |index: usize| tables.get(index).map(|table| table.digest);
    (Standing { in_use: digest(0), other: digest(1), ..standing }, tables)
}

/// The peer's table with this number.
fn table_of(status: &PeerStatus, number: u32) -> Option<Reference> {
    let digest = status.said?.standing.digest_of(number)?;
    let is_it = |table: &&Reference| table.number == number && table.digest == digest;
    status.references.iter().find(is_it).cloned()
}
