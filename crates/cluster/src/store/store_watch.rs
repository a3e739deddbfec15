//! Follows a store, as one of the nodes that take their configuration from it.
//!
//! There are three threads: two wait for changes, one for the phases and one for other nodes'
//! findings, and only report them, because a wait may take any time. The third registers this node
//! under a lease, reads the store, and follows [`Member`](super::phases::Member). It passes tasks
//! on to the control thread. Only the newest task is kept, so that neither thread waits for the
//! other.
//!
//! A watch reports a change at once, but watches have lost events: the store is therefore also read
//! whenever the lease is kept alive, and when a watch begins again.

use super::error::{StoreError, StoreErrorKind};
use super::etcd::{Bounds, Etcd};
use super::etcd_watch::WatchEvent;
use super::findings::Finding;
use super::findings::HEALTH;
use super::gateway::Key;
use super::layout::Stored;
use super::phase_thread::PhaseThread;
use super::phases::{NodeReport, PHASES};
use crate::settings::StoreAccess;
use hotloop_privileges::Capabilities;
use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum delay of a program's end until the store knows that the node has stopped.
const STOP_MAX: Duration = Duration::from_secs(1);

/// The intervals of requests to a store.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Duration of a watch, after which it begins again, and everything is read again even if no
    /// change was seen.
    pub again: Duration,
    /// Time in seconds for which the store keeps this node after its last sign of life. The node sends
    /// one, and reads, three times as often.
    pub lease_s: u32,
    /// The wait after an error: at first, and at most. It doubles each time.
    pub wait: (Duration, Duration),
    /// The limits of the calls themselves.
    pub bounds: Bounds,
}

impl Default for Pace {
    /// Duration: 1 minute; lease: 10 s; wait: 0.1 s to 5 s.
    fn default() -> Self {
        let wait = (Duration::from_millis(100), Duration::from_secs(5));
        Self { again: Duration::from_secs(60), lease_s: 10, wait, bounds: Bounds::default() }
    }
}

/// The state of a store from this node's view.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StoreState {
    /// The revision that was read last; 0 before the first.
    pub revision: i64,
    /// The revision of the change that is being prepared.
    pub proposed: Option<i64>,
    /// Whether other nodes' changes wait for this node.
    pub is_registered: bool,
    /// Whether they wait for a newer node with the same name instead.
    pub is_replaced: bool,
    /// The nodes that the store knows, each with its own report.
    pub nodes: Vec<(String, Option<NodeReport>)>,
    /// Since when the store can't be read, and the reason.
    pub failure: Option<(Instant, String)>,
}

/// A task for a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Task {
    /// Prepare the configuration proposed by this revision, which another revision will put in
    /// force, and [answer](StoreWatch::answer).
    Prepare(i64, Arc<Stored>),
    /// Discard every prepared configuration, and stop preparing.
    Discard,
    /// Switch to the configuration in force now.
    Adopt(Arc<Stored>),
}

/// A message between the threads, or from control to them.
#[derive(Debug)]
pub(super) enum Signal {
    /// The store may have changed.
    Look,
    /// This proposal was prepared, or the reason that it can't be.
    Answer(i64, Result<(), String>),
    /// This revision is in force.
    InForce(i64),
    /// This is what the probes of this node find down.
    Find(Arc<HashSet<String>>),
    /// There may be something new in what other nodes find.
    LookAtHealth,
    /// The node stops; the thread that waits for this sees the sender dropped.
    Stop(Sender<()>),
}

/// The state that the thread and its owner share.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The configuration to switch to: before `prepare`, if there are both.
    pub adopt: Option<Task>,
    /// The proposal to prepare, or to discard.
    pub prepare: Option<Task>,
    pub state: StoreState,
    /// The findings of the other nodes, and the time until which they are valid.
    pub others: Option<(Arc<Vec<Finding>>, Instant)>,
}

/// A followed store. Dropping this value ends the node's lease, and waits for that at most a
/// second.
#[derive(Debug)]
pub struct StoreWatch {
    found: Arc<Mutex<Found>>,
    signals: Sender<Signal>,
}

impl StoreWatch {
    /// Follows the store with this access, as the node with this name, which already uses
    /// `in_force`.
    ///
    /// # Errors
    /// If the system provides no threads or no random numbers, or a file for access to the store is
    /// wrong.
    pub fn start(
        access: impl Into<StoreAccess>,
        node: &str,
        in_force: Option<Arc<Stored>>,
        pace: Pace,
    ) -> io::Result<Self> {
        let found = Arc::new(Mutex::new(Found::default()));
        let (signals, inbox) = mpsc::channel();
        let access = access.into();
        let client = || Etcd::new(access.clone(), pace.bounds).map_err(io::Error::other);
        let etcd = client()?;
        let phases = PhaseThread::new(etcd, node, in_force, pace, Arc::clone(&found))?;
        thread::Builder::new().name("lb-store".into()).spawn(move || {
            hotloop_privileges::keep(Capabilities::empty());
            phases.follow(&inbox);
        })?;
        let watch_prefix = |thread: &str, prefix: &'static str, say: fn() -> Signal| {
            let (etcd, watcher) = (client()?, signals.clone());
            thread::Builder::new().name(thread.into()).spawn(move || {
                hotloop_privileges::keep(Capabilities::empty());
                watch(&etcd, prefix, pace, &|| watcher.send(say()).is_ok());
            })
        };
        watch_prefix("lb-store-watch", PHASES, || Signal::Look)?;
        watch_prefix("lb-health-watch", HEALTH, || Signal::LookAtHealth)?;
        Ok(Self { found, signals })
    }

    /// The next task that was not taken yet, if there is one.
    #[must_use]
    pub fn take(&self) -> Option<Task> {
        let mut found = lock(&self.found);
        found.adopt.take().or_else(|| found.prepare.take())
    }

    /// Answers the proposal of this revision: it is prepared, or the reason that it can't be.
    pub fn answer(&self, at: i64, prepared: Result<(), String>) {
        self.signal(Signal::Answer(at, prepared));
    }

    /// Reports that this revision is in force on this node.
    pub fn has_in_force(&self, revision: i64) {
        self.signal(Signal::InForce(revision));
    }

    /// Reports the backends that this node's probes find down to the other nodes.
    pub fn find(&self, own: Arc<HashSet<String>>) {
        self.signal(Signal::Find(own));
    }

    /// The findings of the other nodes that see the store; `None` if only this node's own findings
    /// count, because the store can't be reached or the other nodes do not know them.
    #[must_use]
    pub fn others(&self) -> Option<Arc<Vec<Finding>>> {
        let found = lock(&self.found);
        let others = found.others.as_ref().filter(|(_, until)| Instant::now() < *until);
        others.map(|(others, _)| Arc::clone(others))
    }

    /// The state of the store.
    #[must_use]
    pub fn state(&self) -> StoreState {
        lock(&self.found).state.clone()
    }

    fn signal(&self, signal: Signal) {
        // If the thread has panicked, its message was logged, and the store misses the node.
        let _ = self.signals.send(signal);
    }
}

impl Drop for StoreWatch {
    fn drop(&mut self) {
        let (stopping, stopped): (_, Receiver<()>) = mpsc::channel();
        self.signal(Signal::Stop(stopping));
        // Nothing is ever sent: this waits until the other end is dropped.
        let _ = stopped.recv_timeout(STOP_MAX);
    }
}

pub(super) fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports changes below a prefix with `say`, until it returns false. A change before a watch
/// begins is not missed, because the beginning is reported, too.
fn watch(etcd: &Etcd, below: &str, pace: Pace, say: &dyn Fn() -> bool) {
    let from = format!("{}{below}", etcd.address().prefix());
    // The character after the slash.
    let end = format!("{}0", from.trim_end_matches('/'));
    let mut wait = pace.wait.0;
    loop {
        let watched = watch_once(etcd, Key::From(&from, &end), pace.again, &mut || {
            wait = pace.wait.0;
            say()
        });
        // The other thread finds the error.
        if !say() {
            return;
        }
        if let Err(error) = watched {
            tracing::debug!("{error}");
            thread::sleep(wait);
            wait = pace.wait.1.min(wait * 2);
        }
    }
}

/// Watches keys from now on, for a limited time, and reports every change, until the receiver is
/// gone.
fn watch_once(
    etcd: &Etcd,
    keys: Key<'_>,
    duration: Duration,
    look: &mut dyn FnMut() -> bool,
) -> Result<(), StoreError> {
    let mut watch = etcd.watch(keys, 0, duration)?;
    loop {
        match watch.wait() {
            Ok(WatchEvent::Begun | WatchEvent::Changed) => {
                if !look() {
                    return Ok(());
                }
            }
            Ok(WatchEvent::Over) => return Ok(()),
            Err(error) if error.kind() == StoreErrorKind::Compacted => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
