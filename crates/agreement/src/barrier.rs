//! How all nodes go over from one reference table to the next.

/// How far a node is with the moves of the reference table.
///
/// Phases of a move follow each other, and those of the next move are greater. Each is a promise:
///
/// | step | connections are compared with | unknown ones go by |
/// |---|---|---|
/// | [`Idle`](Step::Idle) | the one in use | this one |
/// | [`Ready`](Step::Ready) | both | the one before |
/// | [`Marked`](Step::Marked) | both; all exceptions are acknowledged by all | the one before |
/// | [`Switched`](Step::Switched) | both | the next |
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Phase {
    /// Number of the reference table that the move began with.
    pub table: u32,
    /// The step of the move to the next one.
    pub step: Step,
}

/// The steps of a move.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Step {
    /// No move, as far as this node is concerned.
    #[default]
    Idle,
    /// Connections are compared with both tables.
    Ready,
    /// All that differ from either are known to all peers.
    Marked,
    /// Unknown connections go by the next table.
    Switched,
}

impl Step {
    /// The step that is sent as this number: its place among the steps.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Idle,
            1 => Self::Ready,
            2 => Self::Marked,
            3 => Self::Switched,
            _ => return None,
        })
    }
}

impl Phase {
    /// The number of the table that unknown connections go by.
    #[must_use]
    pub const fn in_use(self) -> u32 {
        match self.step {
            Step::Switched => self.table + 1,
            _ => self.table,
        }
    }

    /// The number of the other table that connections are compared with.
    #[must_use]
    pub const fn other(self) -> Option<u32> {
        match self.step {
            Step::Idle => None,
            Step::Ready | Step::Marked => Some(self.table + 1),
            Step::Switched => Some(self.table),
        }
    }

    const fn at(self, step: Step) -> Self {
        Self { step, ..self }
    }

    const fn after(self) -> Self {
        Self { table: self.table + 1, step: Step::Idle }
    }

    /// The phase of a node that has come without its own: the greatest of its peers, without their
    /// [marks](Step::Marked), which it has no part in.
    #[must_use]
    pub fn joining(peers: impl Iterator<Item = Self>) -> Self {
        peers.max().unwrap_or_default().restarted()
    }

    /// The phase in which a node goes on from this one, of its own or of a peer, after a loss of
    /// memory: without the [mark](Step::Marked), which is a promise about claims that it may not know.
    #[must_use]
    pub fn restarted(self) -> Self {
        if self.step == Step::Marked { self.at(Step::Ready) } else { self }
    }
}

/// A node's state in a move, as its peers get it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Member {
    /// How far it is.
    pub phase: Phase,
    /// Drawn anew whenever the node loses connections: when it starts without all of them, when it
    /// evicts one, and when one finds no room.
    pub generation: u64,
    /// Whether connections that it lost so may still be alive: until two idle timeouts have passed.
    pub is_waiting: bool,
    /// A digest of all nodes' generations, when it last claimed all exceptions.
    pub walked_for: Option<u64>,
}

/// A node's next action in a move.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Compare connections with both tables, and claim all exceptions.
    GetReady,
    /// Claim all exceptions again, also those that peers have claimed. They are found for these
    /// generations.
    Walk(u64),
    /// Promise that all of the walk's claims are acknowledged.
    Mark,
    /// Let unknown connections go by the next table.
    Switch,
    /// Forget the table before.
    Finish,
}

impl Member {
    /// The node's next action, if there is one. `peers` are all other members, as this node
    /// knows them; `generations` is a digest of their generations and its own, `has_next` whether there is
    /// a next reference table, and `is_acknowledged` whether all peers have acknowledged all claims of
    /// this node.
    #[must_use]
    pub fn next(
        &self,
        peers: impl Iterator<Item = Self> + Clone,
        generations: u64,
        has_next: bool,
        is_acknowledged: bool,
    ) -> Option<Action> {
        let at = |step| self.phase.at(step);
        let have_all = |is_so: &dyn Fn(&Self) -> bool| peers.clone().all(|peer| is_so(&peer));
        let has_one_switched = || peers.clone().any(|peer| peer.phase >= at(Step::Switched));
        let is_marked_with_me =
            |peer: &Self| peer.phase == self.phase && peer.walked_for == self.walked_for;
        let is_ready = |peer: &Self| {
            peer.phase >= at(Step::Ready) && !peer.is_waiting || peer.phase >= at(Step::Switched)
        };
        let must_walk =
            || self.walked_for != Some(generations) && !self.is_waiting && have_all(&is_ready);
        match self.phase.step {
            Step::Idle => {
                let may = has_next && !self.is_waiting;
                (may && have_all(&|peer| peer.phase >= self.phase)).then_some(Action::GetReady)
            }
            Step::Marked if has_one_switched() || have_all(&is_marked_with_me) => {
                Some(Action::Switch)
            }
            Step::Ready | Step::Marked if must_walk() => Some(Action::Walk(generations)),
            Step::Ready if self.walked_for.is_some() && is_acknowledged => Some(Action::Mark),
            Step::Ready | Step::Marked => None,
            Step::Switched => have_all(&|peer| peer.phase >= self.phase).then_some(Action::Finish),
        }
    }

    /// Takes note of an action that is done.
    pub fn take(&mut self, action: Action) {
        match action {
            Action::GetReady => self.phase = self.phase.at(Step::Ready),
            Action::Walk(generations) => {
                self.phase = self.phase.at(Step::Ready);
                self.walked_for = Some(generations);
            }
            Action::Mark => self.phase = self.phase.at(Step::Marked),
            Action::Switch => (self.phase, self.walked_for) = (self.phase.at(Step::Switched), None),
            Action::Finish => (self.phase, self.walked_for) = (self.phase.after(), None),
        }
    }
}
