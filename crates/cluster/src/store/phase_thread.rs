//! The thread that takes this node's part in the phases of a change.

use super::error::nothing_in;
use super::error::{StoreError, StoreErrorKind};
use super::etcd::Etcd;
use super::findings::Findings;
use super::layout::{self, Stored};
use super::lease::Lease;
use super::phases::{Action, CURRENT, Member, PREPARED, Snapshot, Store};
use super::store_watch::{Found, Pace, Signal, StoreState, Task, lock};
use crate::random::random_name;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of actions before the lease is checked again.
const ACTIONS_MAX: usize = 16;

/// An action of the member that needs a configuration which was not read yet.
#[derive(Debug)]
struct Unread {
    action: Action,
    pointer: String,
}

/// A node's side of a store.
pub(super) struct PhaseThread {
    etcd: Etcd,
    node: String,
    pace: Pace,
    /// The wait after the next error.
    wait: Duration,
    member: Member,
    lease: Lease,
    /// The action to take once the store can be read.
    unread: Option<Unread>,
    /// The last configuration that control had to switch to.
    in_force: Option<Arc<Stored>>,
    /// The last proposal that was read, with the future value of `current`.
    proposed: Option<(String, Arc<Stored>)>,
    findings: Findings,
    found: Arc<Mutex<Found>>,
}

impl PhaseThread {
    pub fn new(
        etcd: Etcd,
        node: &str,
        in_force: Option<Arc<Stored>>,
        pace: Pace,
        found: Arc<Mutex<Found>>,
    ) -> io::Result<Self> {
        let mut member = Member::new(node, random_name()?);
        member.has_in_force(in_force.as_ref().map_or(0, |stored| stored.revision));
        Ok(Self {
            etcd,
            node: node.to_owned(),
            pace,
            wait: pace.wait.0,
            member,
            lease: Lease::new(pace.lease_s),
            unread: None,
            in_force,
            proposed: None,
            findings: Findings::default(),
            found,
        })
    }

    /// Follows the store until the node stops.
    pub fn follow(mut self, inbox: &Receiver<Signal>) {
        let mut due = Instant::now();
        let mut is_failing = false;
        loop {
            let is_due = Instant::now() >= due;
            if is_due || !is_failing {
                let done = self.take_turns(is_due);
                is_failing = done.as_ref().is_err_and(is_failure);
                if is_due || done.is_err() {
                    due = Instant::now() + self.wait_after(done).min(self.pace.again);
                }
            }
            let exchange = self.findings.due().filter(|_| !is_failing);
            let next = exchange.map_or(due, |exchange| exchange.min(due));
            let wait = next.saturating_duration_since(Instant::now());
            let mut signal = inbox.recv_timeout(wait);
            while let Ok(came) = signal {
                match came {
                    Signal::Look => due = Instant::now(),
                    Signal::Answer(at, prepared) => {
                        self.member.answer(at, prepared);
                        due = Instant::now();
                    }
                    Signal::InForce(revision) => {
                        self.member.has_in_force(revision);
                        due = Instant::now();
                    }
                    Signal::Find(own) => self.findings.find(own),
                    Signal::LookAtHealth => self.findings.look(),
                    Signal::Stop(stopping) => {
                        // If this fails, the store drops the node once the lease ends.
                        let _ = self.lease.revoke(&self.etcd);
                        return drop(stopping);
                    }
                }
                signal = inbox.try_recv().map_err(|_| RecvTimeoutError::Timeout);
            }
            if matches!(signal, Err(RecvTimeoutError::Disconnected)) {
                return;
            }
        }
    }

    /// Takes the node's part in a change, if that `is_due`, and exchanges findings.
    fn take_turns(&mut self, is_due: bool) -> Result<(), StoreError> {
        let done = if is_due { self.turn() } else { Ok(()) };
        match done {
            Err(error) if is_failure(&error) => Err(error),
            done => self.exchange(is_due).and(done),
        }
    }

    /// The wait after a turn with this result.
    fn wait_after(&mut self, done: Result<(), StoreError>) -> Duration {
        let error = match done {
            Ok(()) => {
                self.wait = self.pace.wait.0;
                return self.lease.due().saturating_duration_since(Instant::now());
            }
            Err(error) => error,
        };
        // The requested revision is no longer kept: read the current one.
        if error.kind() == StoreErrorKind::Compacted {
            return self.pace.wait.0;
        }
        if error.kind() == StoreErrorKind::Refused {
            // The store may have lost the lease.
            self.lease.lose();
        }
        self.fail(&error);
        let wait = self.wait;
        self.wait = self.pace.wait.1.min(wait * 2);
        wait
    }

    /// Writes this node's findings to the store, and reads the findings of the others.
    fn exchange(&mut self, is_due: bool) -> Result<(), StoreError> {
        if is_due {
            self.findings.try_again();
        }
        let others = if self.member.is_replaced() {
            None
        } else {
            self.findings.exchange(&self.etcd, &self.node, self.lease.id())?
        };
        let until = self.lease.end();
        lock(&self.found).others = others.map(|others| (others, until));
        Ok(())
    }

    /// Takes all actions that need no waiting.
    fn turn(&mut self) -> Result<(), StoreError> {
        for _ in 0..ACTIONS_MAX {
            if self.lease.keep(&self.etcd)? {
                self.member.has_lost_lease();
                self.findings.has_lost_lease();
            }
            let seen = self.etcd.read()?;
            if !self.step(&seen)? {
                return self.has_read(&seen);
            }
        }
        Ok(())
    }

    /// Takes the next action for this state of the store. Returns whether there was one.
    fn step(&mut self, seen: &Snapshot) -> Result<bool, StoreError> {
        if let Some(unread) = self.unread.take_if(|unread| !is_current(&unread.action, seen)) {
            tracing::debug!("no longer wanted: {:?}", unread.action);
        }
        if self.unread.is_none() {
            let Some(action) = self.member.observe(seen) else { return Ok(false) };
            match action {
                Action::Transact(transaction) => {
                    let (held, _) = Store::transact(&self.etcd, &transaction, self.lease.id())?;
                    self.member.transacted(held);
                }
                Action::Discard => {
                    self.proposed = None;
                    lock(&self.found).prepare = Some(Task::Discard);
                }
                Action::Prepare(_, ref pointer) | Action::Adopt { ref pointer, .. } => {
                    let pointer = pointer.clone();
                    self.unread = Some(Unread { action, pointer });
                }
            }
        }
        if let Some(Unread { action, pointer }) = self.unread.take() {
            match self.read(&action, &pointer) {
                Ok(()) => {}
                Err(error) => return self.postpone(Unread { action, pointer }, error),
            }
        }
        Ok(true)
    }

    /// Reads the configuration for an action, and passes it on.
    fn read(&mut self, action: &Action, pointer: &str) -> Result<(), StoreError> {
        let known = self.proposed.take().filter(|(known, _)| known == pointer);
        let text = match (known, action) {
            // Nothing is in force.
            (_, Action::Adopt { revision: 0, .. }) => return Ok(()),
            (Some((_, stored)), _) => stored.text.clone(),
            (None, Action::Prepare(..)) => layout::text_of(&self.etcd, PREPARED, pointer, 0)?,
            (None, _) => layout::text_of(&self.etcd, CURRENT, pointer, 0)?,
        };
        let name = self.etcd.address().to_string();
        match *action {
            Action::Prepare(at, _) => {
                let stored = Arc::new(Stored { name, revision: at, text });
                self.proposed = Some((pointer.to_owned(), Arc::clone(&stored)));
                lock(&self.found).prepare = Some(Task::Prepare(at, stored));
            }
            Action::Adopt { revision, .. } => {
                // A copy ends with a line end.
                let same_text = self
                    .in_force
                    .as_ref()
                    .filter(|stored| stored.text.trim_end() == text.trim_end());
                if same_text.is_none_or(|stored| stored.revision != revision) {
                    let stored = Arc::new(Stored { name, revision, text });
                    self.in_force = Some(Arc::clone(&stored));
                    let mut found = lock(&self.found);
                    found.adopt = Some(Task::Adopt(stored));
                    // An earlier proposal is either in force now, or is obsolete.
                    found.prepare = None;
                }
            }
            Action::Transact(_) | Action::Discard => {}
        }
        Ok(())
    }

    /// Handles a configuration that can't be read: if it is proposed, the error is the answer,
    /// unless another attempt may help.
    fn postpone(&mut self, unread: Unread, error: StoreError) -> Result<bool, StoreError> {
        if error.kind() != StoreErrorKind::Content {
            self.unread = Some(unread);
            return Err(error);
        }
        if let Action::Prepare(at, _) = unread.action {
            self.member.answer(at, Err(error.to_string()));
            return Ok(true);
        }
        // Another proposal may have been committed, and these parts deleted.
        if !is_current(&unread.action, &self.etcd.read()?) {
            return Ok(true);
        }
        self.unread = Some(unread);
        Err(error)
    }

    /// Notes that the store was read, and nothing is left to do.
    fn has_read(&self, seen: &Snapshot) -> Result<(), StoreError> {
        let revision = seen.current().0;
        let nodes = seen.states().map(|(name, state)| (name.to_owned(), state)).collect();
        let is_replaced = self.member.is_replaced();
        let mut found = lock(&self.found);
        let before = std::mem::take(&mut found.state);
        found.state = StoreState {
            revision,
            proposed: seen.proposed().map(|(at, _)| at),
            is_registered: self.member.is_registered(),
            is_replaced,
            nodes,
            failure: before.failure,
        };
        let (address, node) = (self.etcd.address(), &self.node);
        if is_replaced && !before.is_replaced {
            tracing::error!(
                "{address}: another node called {node} has started: changes wait for that one, and not \
                 for this; stop one of them, or give it another cluster.node"
            );
        }
        if revision == 0 {
            drop(found);
            return Err(nothing_in(address));
        }
        if let Some((since, _)) = found.state.failure.take() {
            tracing::info!("{address}: read again, after {} s", since.elapsed().as_secs());
        }
        Ok(())
    }

    fn fail(&self, error: &StoreError) {
        let mut found = lock(&self.found);
        if is_failure(error) {
            found.others = None;
        }
        let why = error.to_string();
        match &mut found.state.failure {
            Some((_, known)) => *known = why,
            None => {
                tracing::error!("{why}; meanwhile, what is in force stays in force");
                found.state.failure = Some((Instant::now(), why));
            }
        }
    }
}

/// Whether the error is the store's, not its content's.
fn is_failure(error: &StoreError) -> bool {
    use StoreErrorKind::{Access, Refused, Unreachable};
    matches!(error.kind(), Unreachable | Access | Refused)
}

/// Whether the store still has the value that an action is about.
fn is_current(action: &Action, seen: &Snapshot) -> bool {
    match action {
        Action::Prepare(at, pointer) => seen.proposed() == Some((*at, pointer)),
        Action::Adopt { revision, pointer, .. } => seen.current() == (*revision, pointer),
        Action::Transact(_) | Action::Discard => true,
    }
}
