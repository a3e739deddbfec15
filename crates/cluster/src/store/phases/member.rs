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
    /// What this node last was to go over to: the revision, and what `current` says.
    known: (i64, String),
    /// What is proposed, by its revision, and what `current` will say.
    proposal: Option<(i64, String)>,
    /// Whether this node, since it has started, is seen to be there: what the store has of its name
    /// before that is from an earlier start.
    is_registered: bool,
    /// Whether it ever was.
    was_registered: bool,
    /// Whether another node has this one's name, and came later.
    is_replaced: bool,
}

impl Member {
    /// The node of this name, which has nothing in force yet. No other start of any node says the same
    /// in `start`.
    #[must_use]
    pub fn new(name: &str, start: impl Into<String>) -> Self {
        Self {
            key: format!("{NODES}{name}"),
            state: NodeState { start: start.into(), ..NodeState::default() },
            known: (0, String::new()),
            proposal: None,
            is_registered: false,
            was_registered: false,
            is_replaced: false,
        }
    }

    /// The revision that this node last was to go over to; 0 is none.
    #[must_use]
    pub const fn known(&self) -> i64 {
        self.known.0
    }

    /// Whether the other nodes wait for this one: before that, it must not announce anything.
    #[must_use]
    pub const fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Whether another node of this name has come later. Changes wait for that one, not for this.
    #[must_use]
    pub const fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// This revision is in force on this node, which the store is to say.
    pub const fn has_in_force(&mut self, revision: i64) {
        self.state.in_force = revision;
    }

    /// What is proposed was prepared, or why it can't be. Nothing comes of it where that is no longer
    /// proposed.
    pub fn answer(&mut self, at: i64, prepared: Result<(), String>) {
        if self.proposal.as_ref().is_some_and(|(proposed_at, _)| *proposed_at == at) {
            self.state.answer = Some((at, prepared.err()));
        }
    }

    /// A transaction of this node's was done, if `held`.
    pub const fn transacted(&mut self, held: bool) {
        self.is_registered |= held;
        self.was_registered |= held;
    }

    /// The lease has ended, and with it what the store has of this node.
    pub const fn has_lost_lease(&mut self) {
        self.is_registered = false;
    }

    /// What to do, by what the store has now; nothing until that changes. After each action, it is to be
    /// asked again, by what the store has then.
    pub fn observe(&mut self, seen: &Snapshot) -> Option<Action> {
        let (revision, pointer) = seen.current();
        if (revision, pointer) != (self.known.0, &self.known.1) {
            return Some(self.adopt(revision, pointer));
        }
        // The lease has ended: whoever waits for answers has to know that this node is back.
        let state = seen.get(&self.key).map(|known| NodeState::read(&known.value));
        let is_own = |state: &Option<NodeState>| {
            state.as_ref().is_some_and(|state| state.start == self.state.start)
        };
        self.is_registered &= state.as_ref().is_some_and(is_own);
        // What came before this start may be of one that has ended; what came after it is another node, unless no
        // node has written it.
        let is_other = matches!(&state, Some(Some(state)) if state.start != self.state.start);
        self.is_replaced = self.was_registered && is_other;
        let proposed = seen.proposed();
        let known = self.proposal.as_ref().map(|(at, pointer)| (*at, pointer.as_str()));
        if proposed != known {
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
        self.known = (revision, pointer.to_owned());
        Action::Adopt { revision, pointer: pointer.to_owned(), is_prepared }
    }

    /// Has the store say of this node what it is; nothing where it does.
    fn write(&self, seen: &Snapshot) -> Option<Transaction> {
        let text = self.state.to_text();
        let known = seen.get(&self.key);
        let is_said = self.is_registered && known.is_some_and(|known| known.value == text);
        if is_said || self.is_replaced {
            return None;
        }
        let mut writes = vec![Write::PutLeased(self.key.clone(), text)];
        if !self.is_registered {
            writes.push(Write::Put(MEMBERS.into(), self.key.clone()));
        }
        // A node that comes does so with what is in force: a commit just before that did not wait for it.
        let conditions = vec![
            (CURRENT.to_owned(), self.known.0),
            (self.key.clone(), known.map_or(0, |known| known.changed_at)),
        ];
        Some(Transaction { conditions, writes })
    }
}
