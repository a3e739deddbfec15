//! The proposer's side: proposes a change, waits for all answers, and commits the change or takes
//! it back.

use super::{CURRENT, MEMBERS, NODES, NodeReport, PREPARED, Snapshot, Transaction, Write};

/// A requested change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    /// The new value of `current`. No other change uses the same value.
    pub pointer: String,
    /// The revision in force that it replaces; 0 if it is the first.
    pub replaces: i64,
    /// The nodes that must be present, besides any others that are.
    pub expected: Vec<String>,
    /// Whether the change is committed at the deadline without the answers of some nodes, which
    /// then withdraw.
    pub is_forced: bool,
    /// The deadline for all answers, in milliseconds of the caller's clock.
    pub deadline_ms: u64,
    /// Additional writes of the transaction that commits it.
    pub writes: Vec<Write>,
}

/// The outcome of a change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The change is in force from this revision on.
    Committed(i64),
    /// Another revision is in force than the one to replace: this one.
    Conflict(i64),
    /// Another change is being prepared.
    Busy,
    /// Required nodes are absent: the change was not proposed, or taken back.
    Absent(Vec<String>),
    /// A node can't prepare it: its name, and the reason.
    Refused(String, String),
    /// These nodes did not answer in time.
    Unanswered(Vec<String>),
    /// The proposal has ended with its lease, or was deleted.
    Lost,
}

/// The next step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Wait for a change in the store, or for the deadline.
    Wait,
    /// Try this transaction, and continue whatever its result.
    Transact(Transaction),
    /// Nothing more: the change has ended.
    End(Outcome),
}

/// A change in progress.
#[derive(Debug)]
pub struct Coordinator {
    change: Change,
    /// The proposal's revision, once the store showed it.
    proposed_at: Option<i64>,
    /// The outcome, if the change is being taken back.
    ending: Option<Outcome>,
}

impl Coordinator {
    /// Makes a coordinator for this change.
    #[must_use]
    pub const fn new(change: Change) -> Self {
        Self { change, proposed_at: None, ending: None }
    }

    /// The next step for this state of the store.
    pub fn observe(&mut self, seen: &Snapshot, now_ms: u64) -> Step {
        let (current_at, pointer) = seen.current();
        if pointer == self.change.pointer {
            return Step::End(Outcome::Committed(current_at));
        }
        let own = seen.proposed().filter(|(_, pointer)| *pointer == self.change.pointer);
        match (own, self.proposed_at) {
            (Some((at, _)), _) => {
                self.proposed_at = Some(at);
                self.go_on(seen, at, now_ms)
            }
            (None, Some(_)) => Step::End(self.ending.take().unwrap_or(Outcome::Lost)),
            (None, None) => self.propose(seen, current_at, now_ms),
        }
    }

    /// The nodes that have not agreed, each with its refusal, if any; empty before the change was
    /// proposed.
    #[must_use]
    pub fn waits_for(&self, seen: &Snapshot) -> Vec<(String, Option<String>)> {
        let Some(at) = self.proposed_at else { return Vec::new() };
        let answer = |state: Option<NodeReport>| state?.answer.filter(|(to, _)| *to == at);
        let open = seen.states().filter_map(|(name, state)| match answer(state) {
            Some((_, None)) => None,
            Some((_, refusal)) => Some((name.to_owned(), refusal)),
            None => Some((name.to_owned(), None)),
        });
        open.collect()
    }

    fn propose(&self, seen: &Snapshot, current_at: i64, now_ms: u64) -> Step {
        let Change { pointer, replaces, expected, is_forced, deadline_ms, .. } = &self.change;
        if current_at != *replaces {
            return Step::End(Outcome::Conflict(current_at));
        }
        if seen.proposed().is_some() {
            return Step::End(Outcome::Busy);
        }
        let absent = self.absent(seen);
        if !absent.is_empty() && !is_forced {
            return Step::End(Outcome::Absent(absent));
        }
        if now_ms >= *deadline_ms {
            return Step::End(Outcome::Unanswered(expected.clone()));
        }
        Step::Transact(Transaction {
            conditions: vec![(CURRENT.into(), *replaces), (PREPARED.into(), 0)],
            writes: vec![Write::PutLeased(PREPARED.into(), pointer.clone())],
        })
    }

    /// Commits the proposal of the revision `at`, or takes it back, or waits for answers.
    fn go_on(&mut self, seen: &Snapshot, at: i64, now_ms: u64) -> Step {
        let is_late = now_ms >= self.change.deadline_ms;
        let ending = if seen.current().0 != self.change.replaces {
            Some(Outcome::Conflict(seen.current().0))
        } else if self.change.is_forced {
            None
        } else {
            let absent = self.absent(seen);
            let absent = (!absent.is_empty()).then_some(Outcome::Absent(absent));
            absent.or_else(|| refusal(seen, at))
        };
        let unanswered: Vec<_> = self.waits_for(seen).into_iter().map(|(name, _)| name).collect();
        if ending.is_none() && (unanswered.is_empty() || is_late && self.change.is_forced) {
            return Step::Transact(self.commit(seen, at));
        }
        let late = is_late.then_some(Outcome::Unanswered(unanswered));
        let Some(ending) = ending.or(late) else { return Step::Wait };
        self.ending = Some(ending);
        Step::Transact(Transaction {
            conditions: vec![(PREPARED.into(), at)],
            writes: vec![Write::Delete(PREPARED.into())],
        })
    }

    /// A transaction that holds only if all nodes are unchanged since they were seen.
    fn commit(&self, seen: &Snapshot, at: i64) -> Transaction {
        let own = [(CURRENT, self.change.replaces), (PREPARED, at)];
        let members = [(MEMBERS, seen.changed_at(MEMBERS))];
        let fixed = own.into_iter().chain(members).map(|(key, at)| (key.to_owned(), at));
        let nodes =
            seen.nodes().map(|(name, report)| (format!("{NODES}{name}"), report.changed_at));
        let writes = [
            Write::Put(CURRENT.into(), self.change.pointer.clone()),
            Write::Delete(PREPARED.into()),
        ];
        Transaction {
            conditions: fixed.chain(nodes).collect(),
            writes: writes.into_iter().chain(self.change.writes.iter().cloned()).collect(),
        }
    }

    /// The required nodes that are absent.
    fn absent(&self, seen: &Snapshot) -> Vec<String> {
        let is_there = |name: &String| seen.nodes().any(|(node, _)| node == name);
        self.change.expected.iter().filter(|name| !is_there(name)).cloned().collect()
    }
}

fn refusal(seen: &Snapshot, at: i64) -> Option<Outcome> {
    seen.states().find_map(|(name, state)| match state?.answer {
        Some((to, Some(why))) if to == at => Some(Outcome::Refused(name.to_owned(), why)),
        _ => None,
    })
}
