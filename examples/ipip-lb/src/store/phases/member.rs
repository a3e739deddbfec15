//! A node: prepares what is proposed, answers, and goes over to what is committed.

use super::{CURRENT, MEMBERS, NODES, NodeState, Snapshot, Transaction, Write};

/// What to do next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// To do this, whatever comes of it.
    Transact(Transaction),
    /// To prepare what is proposed, and to call [`Member::answer`] with this revision then.
    Prepare(i64, String),
    /// To give up what was prepared, or is being prepared: it won't come.
    Discard,
    /// To go over to what is in force, by its revision. What was not prepared leaves a time in which this
    /// node may take connections with it: it withdraws first, where it announces anything.
    Adopt {
        /// The revision.
        revision: i64,
        /// What `current` says.
        pointer: String,
        /// Whether this node has prepared it.
        is_prepared: bool,
    },
}

/// A node, from one start of it to the next.
#[derive(Debug)]
pub struct Member {
    key: String,
    state: NodeState,
    /// What is proposed, by its revision, and what `current` will say.
    proposal: Option<(i64, String)>,
    /// Whether this node, since it has started, was seen to be there: what the store has of its name
    /// before that is from an earlier start.
    is_registered: bool,
}

impl Member {
    /// The node of this name, which has nothing in force yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let key = format!("{NODES}{name}");
        Self { key, state: NodeState::default(), proposal: None, is_registered: false }
    }

    /// The revision in force; 0 is none.
    #[must_use]
    pub const fn in_force(&self) -> i64 {
        self.state.in_force
    }

    /// Whether the other nodes wait for this one: before that, it must not announce anything.
    #[must_use]
    pub const fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// What is proposed was prepared, or why it can't be. Nothing comes of it where that is no longer
    /// proposed.
    pub fn answer(&mut self, at: i64, prepared: Result<(), String>) {
        if self.proposal.as_ref().is_some_and(|(proposed_at, _)| *proposed_at == at) {
            self.state.answer = Some((at, prepared.err()));
        }
    }

    /// A transaction of this node's was done, if `held`.
    pub fn transacted(&mut self, held: bool) {
        self.is_registered |= held;
    }

    /// What to do, by what the store has now; nothing until that changes. After each action, it is to be
    /// asked again, by what the store has then.
    pub fn observe(&mut self, seen: &Snapshot) -> Option<Action> {
        let (revision, pointer) = seen.current();
        if revision != self.state.in_force {
            return Some(self.adopt(revision, pointer));
        }
        // The lease has ended: whoever waits for answers has to know that this node is back.
        let is_there = seen.get(&self.key).is_some();
        self.is_registered &= is_there;
        let proposed = seen.proposed();
        if proposed.map(|(at, _)| at) != self.proposal.as_ref().map(|(at, _)| *at) {
            self.state.answer = None;
            let had_one = self.proposal.take().is_some();
            if had_one {
                return Some(Action::Discard);
            }
            let (at, pointer) = proposed?;
            self.proposal = Some((at, pointer.to_owned()));
            return Some(Action::Prepare(at, pointer.to_owned()));
        }
        self.write(seen).map(Action::Transact)
    }

    fn adopt(&mut self, revision: i64, pointer: &str) -> Action {
        let agreed = self.proposal.take().zip(self.state.answer.take());
        let is_prepared = agreed
            .is_some_and(|((at, proposed), answer)| proposed == pointer && answer == (at, None));
        self.state.in_force = revision;
        Action::Adopt { revision, pointer: pointer.to_owned(), is_prepared }
    }

    /// Has the store say of this node what it is; nothing where it does.
    fn write(&self, seen: &Snapshot) -> Option<Transaction> {
        let text = self.state.to_text();
        let known = seen.get(&self.key);
        if self.is_registered && known.is_some_and(|known| known.value == text) {
            return None;
        }
        let mut writes = vec![Write::PutLeased(self.key.clone(), text)];
        if !self.is_registered {
            writes.push(Write::Put(MEMBERS.into(), self.key.clone()));
        }
        // A node that comes does so with what is in force: a commit just before that did not wait for it.
        let conditions = vec![
            (CURRENT.to_owned(), self.state.in_force),
            (self.key.clone(), known.map_or(0, |known| known.changed_at)),
        ];
        Some(Transaction { conditions, writes })
    }
}
