//! Carries out a change: writes its parts, proposes it, and commits it once all nodes have
//! answered.

use super::error::{StoreError, StoreErrorKind};
use super::etcd::Etcd;
use super::generation::Generation;
use super::layout::Part;
use super::lease::Lease;
use super::phases::{Change, Coordinator, Outcome, Snapshot, Step, Store};
use crate::random::random_name;
use std::thread;
use std::time::{Duration, Instant};

/// Lifetime of a proposal after the last sign of life of its proposer, in seconds.
pub const PROPOSAL_S: u32 = 10;

/// Interval of readings of the answers.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of refusals by the store: a permanent refusal is repeated.
const REFUSALS_MAX: usize = 3;

/// A change to be carried out.
#[derive(Clone, Debug)]
pub struct Proposal<'a> {
    /// The parts of the configuration.
    pub parts: &'a [Part<'a>],
    /// The revision in force that it replaces; 0 if it is the first.
    pub replaces: i64,
    /// The nodes that must be present, in addition to those present at the beginning.
    pub expected: Vec<String>,
    /// Whether the change is committed at the deadline even if some nodes have not agreed.
    pub is_forced: bool,
    /// Maximum time for the nodes' answers.
    pub within: Duration,
}

/// A node that has not agreed yet, and the reason if it refuses.
pub type Open = (String, Option<String>);

/// The end of a change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Carried {
    /// The outcome.
    pub outcome: Outcome,
    /// The nodes that had not agreed when it ended.
    pub open: Vec<Open>,
}

impl Proposal<'_> {
    /// Carries the change out. `progress` is called repeatedly while nodes are awaited, with the
    /// nodes that have not agreed yet.
    ///
    /// # Errors
    /// The store's error. If the store became unreachable after the change was proposed, it is
    /// unknown whether the change is in force, and the message states that.
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
        // Ending the lease also removes the proposal, if it is still there.
        let _ = carrying.lease.revoke(etcd);
        outcome.map(|outcome| Carried { outcome, open: carrying.open })
    }
}

/// A change in progress.
struct Carrying<'a> {
    etcd: &'a Etcd,
    generation: Generation,
    coordinator: Coordinator,
    lease: Lease,
    begin: Instant,
    /// When to stop waiting for the store: the proposal has ended by then.
    end: Instant,
    /// Whether a request that matters was sent to the store.
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
                        // The store may have lost the lease.
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

    /// Takes the next step. Returns the outcome if that is the end.
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
                    // If this fails, the next commit deletes the parts.
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
