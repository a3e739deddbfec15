//! A node: prepares proposals, answers, and switches to committed configurations.

use super::{CURRENT, MEMBERS, NODES, NodeReport, Snapshot, Transaction, Write};

/// The next action.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Try this transaction, and continue whatever its result.
    Transact(Transaction),
    /// Prepare the proposal of this revision, and then call [`Member::answer`] with the revision.
    Prepare(i64, String),
    /// Discard the prepared configuration, or stop preparing: it will not be committed.
    Discard,
    /// Switch to the configuration in force, by its revision, whether or not it was prepared.
    Adopt {
        /// The revision.
        revision: i64,
        /// The value of `current`.
        pointer: String,
    },
}

/// A node, from one start to the next.
#[derive(Debug)]
pub struct Member {
    key: String,
    state: NodeReport,
    /// The last configuration that this node had to switch to: the revision, and the value of
    /// `current`.
    known: (i64, String),
    /// The proposal, by its revision, and the future value of `current`.
    proposal: Option<(i64, String)>,
    /// Whether the store shows this start of the node: an earlier entry under its name is from an
    /// earlier start.
    is_registered: bool,
    /// Whether the node was ever registered.
    was_registered: bool,
    /// Whether another node has this one's name, and came later.
    is_replaced: bool,
}

impl Member {
    /// The node with this name, which has nothing in force yet. No other start of any node uses the
    /// same `start`.
    #[must_use]
    pub fn new(name: &str, start: impl Into<String>) -> Self {
        Self {
            key: format!("{NODES}{name}"),
            state: NodeReport { start: start.into(), ..NodeReport::default() },
            known: (0, String::new()),
            proposal: None,
            is_registered: false,
            was_registered: false,
            is_replaced: false,
        }
    }

    /// The last revision that this node had to switch to; 0 at the start.
    #[must_use]
    pub const fn known(&self) -> i64 {
        self.known.0
    }

    /// Whether the other nodes wait for this one: before that, it must not announce anything.
    #[must_use]
    pub const fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Whether another node with this name has come later. Changes wait for that node, not for this
    /// one.
    #[must_use]
    pub const fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Notes that this revision is in force on this node. The store will show it.
    pub const fn has_in_force(&mut self, revision: i64) {
        self.state.in_force = revision;
    }

    /// Answers the proposal: it was prepared, or the reason that it can't be. Has no effect if it
    /// is no longer proposed.
    pub fn answer(&mut self, at: i64, prepared: Result<(), String>) {
        if self.proposal.as_ref().is_some_and(|(proposed_at, _)| *proposed_at == at) {
            self.state.answer = Some((at, prepared.err()));
        }
    }

    /// Notes that a transaction of this node's was done, if `held`.
    pub const fn transacted(&mut self, held: bool) {
        self.is_registered |= held;
        self.was_registered |= held;
    }

    /// Notes that the lease has ended, and with it the store's entry for this node.
    pub const fn has_lost_lease(&mut self) {
        self.is_registered = false;
    }

    /// The action for this state of the store; `None` until the store changes. Call this again
    /// after each action, with the new state.
    pub fn observe(&mut self, seen: &Snapshot) -> Option<Action> {
        let (revision, pointer) = seen.current();
        if (revision, pointer) != (self.known.0, &self.known.1) {
            return Some(self.adopt(revision, pointer));
        }
        // The lease has ended: proposers that wait for answers must learn that this node is back.
        let state = seen.get(&self.key).map(|known| NodeReport::read(&known.value));
        let is_own = |state: &Option<NodeReport>| {
            state.as_ref().is_some_and(|state| state.start == self.state.start)
        };
        self.is_registered &= state.as_ref().is_some_and(is_own);
        // An entry from before this start may be of a start that has ended; an entry from after it
        // is another node, unless no node has written it.
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
        (self.proposal, self.state.answer) = (None, None);
        self.known = (revision, pointer.to_owned());
        Action::Adopt { revision, pointer: pointer.to_owned() }
    }

    /// Writes this node's state to the store; `None` if the store has it already.
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
        // A node joins with the configuration in force: a commit just before that did not wait for
        // it.
        let conditions = vec![
            (CURRENT.to_owned(), self.known.0),
            (self.key.clone(), known.map_or(0, |known| known.changed_at)),
        ];
        Some(Transaction { conditions, writes })
    }
}
