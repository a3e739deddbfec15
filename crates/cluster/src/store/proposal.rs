//! Carrying a change out: its parts are written, it is proposed, and committed once all nodes have answered.

use super::error::{StoreError, StoreErrorKind};
use super::etcd::Etcd;
use super::generation::Generation;
use super::layout::Part;
use super::lease::Lease;
use super::phases::{Change, Coordinator, Outcome, Snapshot, Step, Store};
use crate::random::random_name;
use std::thread;
use std::time::{Duration, Instant};

/// For how many seconds a proposal is there after its proposer was last heard of.
pub const PROPOSAL_S: u32 = 10;

/// From one look at the answers to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How often the store may refuse something: what it refuses for good, it refuses again.
const REFUSALS_MAX: usize = 3;

/// A change that is to be carried out.
#[derive(Clone, Debug)]
pub struct Proposal<'a> {
    /// The parts of the configuration.
    pub parts: &'a [Part<'a>],
    /// The revision in force that it replaces; 0 is none.
    pub replaces: i64,
    /// The nodes that there should be, in addition to those that are there at the beginning.
    pub expected: Vec<String>,
    /// Whether it is committed at the deadline though some nodes have not agreed.
    pub is_forced: bool,
    /// How long nodes may take to answer.
    pub within: Duration,
}

/// A node that has not agreed yet, and why it refuses, if it does.
pub type Open = (String, Option<String>);

/// A change that was carried out, or not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Carried {
    /// What came of it.
    pub outcome: Outcome,
    /// The nodes that had not agreed when it ended.
    pub open: Vec<Open>,
}

impl Proposal<'_> {
    /// Carries it out. `progress` is called again and again while nodes are waited for, with those that
    /// have not agreed yet.
    ///
    /// # Errors
    /// The store's. Where it could no longer be reached after the change was proposed, whether it is in
    /// force is not known, and the message says so.
    pub fn carry_out(
        self,
        etcd: &Etcd,
        progress: &mut dyn FnMut(&[Open]),
    ) -> Result<Carried, StoreError> {
        let begin = Instant::now();
        let mut expected = self.expected;
        expected.extend(etcd.read()?.states().map(|(name, _)| name.to_owned()));
        expected.sort();
        expected.dedup();
        let name = random_name().map_err(|error| {
            let problem = format!("no random numbers: {error}; try again");
            StoreError::new(StoreErrorKind::Refused, etcd.address(), problem)
        })?;
        let generation = Generation::write(etcd, &name, self.parts)?;
        let change = Change {
            pointer: generation.pointer(),
            replaces: self.replaces,
            expected,
            is_forced: self.is_forced,
            deadline_ms: (begin.elapsed() + self.within).as_millis() as u64,
            writes: generation.without_others(),
        };
        let end = Instant::now() + self.within + Duration::from_secs(PROPOSAL_S.into());
        let mut carrying = Carrying {
            etcd,
            generation,
            coordinator: Coordinator::new(change),
            lease: Lease::new(PROPOSAL_S),
            begin,
            end,
            is_proposed: false,
            open: Vec::new(),
        };
        let outcome = carrying.until_the_end(progress);
        // Whatever is left of the proposal goes with it.
        let _ = carrying.lease.revoke(etcd);
        outcome.map(|outcome| Carried { outcome, open: carrying.open })
    }
}

/// A change on its way.
struct Carrying<'a> {
    etcd: &'a Etcd,
    generation: Generation,
    coordinator: Coordinator,
    lease: Lease,
    begin: Instant,
    /// When the store is no longer waited for: the proposal has ended by then.
    end: Instant,
    /// Whether the store was asked for anything that matters.
    is_proposed: bool,
    open: Vec<Open>,
}

impl Carrying<'_> {
    fn until_the_end(&mut self, progress: &mut dyn FnMut(&[Open])) -> Result<Outcome, StoreError> {
        let mut refusal_count = 0;
        loop {
            match self.step() {
                Ok(Some(outcome)) => return Ok(outcome),
                Ok(None) => progress(&self.open),
                Err(error) if !self.is_proposed => return Err(error),
                Err(error) => {
                    if error.kind() == StoreErrorKind::Refused {
                        // It may be the lease that the store does not know.
                        self.lease.lose();
                        refusal_count += 1;
                    }
                    if refusal_count >= REFUSALS_MAX || Instant::now() >= self.end {
                        return Err(self.unknown(&error));
                    }
                }
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Does what is to be done next; an outcome where that is the end.
    fn step(&mut self) -> Result<Option<Outcome>, StoreError> {
        self.lease.keep(self.etcd)?;
        let seen = self.etcd.read()?;
        let step = self.coordinator.observe(&seen, self.begin.elapsed().as_millis() as u64);
        match step {
            Step::Wait => {}
            Step::Transact(transaction) => {
                self.is_proposed = true;
                self.note(&seen);
                Store::transact(self.etcd, &transaction, self.lease.id())?;
                return Ok(None);
            }
            Step::End(outcome) => {
                if !matches!(outcome, Outcome::Committed(_)) {
                    // What is left of it is deleted with what is committed next.
                    let _ = self.generation.delete(self.etcd, &seen);
                }
                return Ok(Some(outcome));
            }
        }
        self.note(&seen);
        Ok(None)
    }

    fn note(&mut self, seen: &Snapshot) {
        self.open = self.coordinator.waits_for(seen);
    }

    fn unknown(&self, error: &StoreError) -> StoreError {
        let problem = format!(
            "whether it is in force is not known: {error}; once the store answers, `ipip-lb cluster \
             show` prints what is"
        );
        StoreError::new(error.kind(), self.etcd.address(), problem)
    }
}
