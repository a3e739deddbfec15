//! Following a store, as one of the nodes that take their configuration from it.
//!
//! Three threads: two wait for changes, of the phases and of what other nodes find down, and do nothing but say so, as
//! a wait may take as long as it likes. The other one registers this node under a lease, reads what there is, and does what
//! [`Member`](super::phases::Member) says. It passes on what the control thread is to do, of which only
//! the newest is kept, so that neither waits for the other.
//!
//! A watch says at once that something has changed, but watches have lost events: what is there is also
//! read whenever the lease is kept alive, and when a watch begins again.

use super::error::{StoreError, StoreErrorKind};
use super::etcd::{Bounds, Etcd};
use super::findings::Finding;
use super::findings::HEALTH;
use super::follower::Follower;
use super::gateway::Key;
use super::layout::Stored;
use super::phases::{NodeState, PHASES};
use super::watching::Watched;
use crate::settings::StoreAddress;
use hotloop_privileges::Capabilities;
use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the end of a program may be held up until the store knows that the node has stopped.
const STOP_MAX: Duration = Duration::from_secs(1);

/// How often a store is asked.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After how long a watch begins again, and everything is read again though no change was seen.
    pub again: Duration,
    /// For how many seconds the store knows this node after it was last heard of. It is heard of, and
    /// reads, three times as often.
    pub lease_s: u32,
    /// How long to wait after something went wrong: at first, and at most. It doubles each time.
    pub wait: (Duration, Duration),
    /// Of the calls themselves.
    pub bounds: Bounds,
}

impl Default for Pace {
    /// One minute; 10 s; 0.1 s to 5 s.
    fn default() -> Self {
        let wait = (Duration::from_millis(100), Duration::from_secs(5));
        Self { again: Duration::from_secs(60), lease_s: 10, wait, bounds: Bounds::default() }
    }
}

/// How a store is, as this node sees it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StoreState {
    /// The revision that was read last; 0 before the first.
    pub revision: i64,
    /// The revision of the change that is being prepared.
    pub proposed: Option<i64>,
    /// Whether changes wait for this node.
    pub is_registered: bool,
    /// Whether they wait for another one of the same name instead, which came later.
    pub is_replaced: bool,
    /// The nodes that the store knows, each with what it says of itself.
    pub nodes: Vec<(String, Option<NodeState>)>,
    /// Since when it can't be read, and why.
    pub failure: Option<(Instant, String)>,
}

/// What a node is to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Task {
    /// To prepare what is proposed by this revision, which will be in force by another one, and to
    /// [answer](StoreWatch::answer).
    Prepare(i64, Arc<Stored>),
    /// To give up whatever it has prepared, or is preparing.
    Discard,
    /// To go over to what is in force now.
    Adopt {
        /// What that is.
        stored: Arc<Stored>,
        /// Whether this node has prepared it, or has the same text in force.
        is_prepared: bool,
    },
}

impl Task {
    /// Whether it is to go over to what was not prepared.
    pub(super) const fn is_unprepared(&self) -> bool {
        matches!(self, Self::Adopt { is_prepared: false, .. })
    }
}

/// What the threads say to each other, and control to them.
#[derive(Debug)]
pub(super) enum Signal {
    /// There may be something new in the store.
    Look,
    /// This proposal was prepared, or why it can't be.
    Answer(i64, Result<(), String>),
    /// This revision is in force.
    InForce(i64),
    /// This is what the probes of this node find down.
    Find(Arc<HashSet<String>>),
    /// There may be something new in what other nodes find.
    LookAtHealth,
    /// The node stops; the thread that waits for that sees that this is dropped.
    Stop(Sender<()>),
}

/// What the thread and its owner share.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What is to be gone over to: first, where there are both.
    pub adopt: Option<Task>,
    /// What is to be prepared, or no longer.
    pub prepare: Option<Task>,
    pub state: StoreState,
    /// What the other nodes find, and until when it counts.
    pub others: Option<(Arc<Vec<Finding>>, Instant)>,
}

/// A store that is followed. Dropping this ends the node's lease, for which it waits a second at most.
#[derive(Debug)]
pub struct StoreWatch {
    found: Arc<Mutex<Found>>,
    signals: Sender<Signal>,
}

impl StoreWatch {
    /// Follows the store at this address, as the node of this name, which has `in_force` already.
    ///
    /// # Errors
    /// The system grants no threads, or has no random numbers.
    pub fn start(
        address: StoreAddress,
        node: &str,
        in_force: Option<Arc<Stored>>,
        pace: Pace,
    ) -> io::Result<Self> {
        let found = Arc::new(Mutex::new(Found::default()));
        let (signals, inbox) = mpsc::channel();
        let etcd = Etcd::new(address.clone(), pace.bounds);
        let follower = Follower::new(etcd, node, in_force, pace, Arc::clone(&found))?;
        thread::Builder::new().name("lb-store".into()).spawn(move || {
            hotloop_privileges::keep(Capabilities::empty());
            follower.follow(&inbox);
        })?;
        let watch_prefix = |thread: &str, prefix: &'static str, say: fn() -> Signal| {
            let (etcd, watcher) = (Etcd::new(address.clone(), pace.bounds), signals.clone());
            thread::Builder::new().name(thread.into()).spawn(move || {
                hotloop_privileges::keep(Capabilities::empty());
                watch((&etcd, prefix), pace, &|| watcher.send(say()).is_ok());
            })
        };
        watch_prefix("lb-store-watch", PHASES, || Signal::Look)?;
        watch_prefix("lb-health-watch", HEALTH, || Signal::LookAtHealth)?;
        Ok(Self { found, signals })
    }

    /// What is to be done, if there is something that was not taken yet.
    #[must_use]
    pub fn take(&self) -> Option<Task> {
        let mut found = lock(&self.found);
        found.adopt.take().or_else(|| found.prepare.take())
    }

    /// What was proposed by this revision is prepared, or why it can't be.
    pub fn answer(&self, at: i64, prepared: Result<(), String>) {
        self.signal(Signal::Answer(at, prepared));
    }

    /// This revision is in force on this node.
    pub fn has_in_force(&self, revision: i64) {
        self.signal(Signal::InForce(revision));
    }

    /// This is what the probes of this node find down, which the other nodes are to know.
    pub fn find(&self, own: Arc<HashSet<String>>) {
        self.signal(Signal::Find(own));
    }

    /// What the probes of the other nodes that see the store find down; none where this node's own findings alone
    /// count, as the store can't be reached, or the other nodes do not know them.
    #[must_use]
    pub fn others(&self) -> Option<Arc<Vec<Finding>>> {
        let found = lock(&self.found);
        let others = found.others.as_ref().filter(|(_, until)| Instant::now() < *until);
        others.map(|(others, _)| Arc::clone(others))
    }

    /// How the store is.
    #[must_use]
    pub fn state(&self) -> StoreState {
        lock(&self.found).state.clone()
    }

    fn signal(&self, signal: Signal) {
        // Where the thread has ended by a panic, its message was logged, and the store misses the node.
        let _ = self.signals.send(signal);
    }
}

impl Drop for StoreWatch {
    fn drop(&mut self) {
        let (stopping, stopped): (_, Receiver<()>) = mpsc::channel();
        self.signal(Signal::Stop(stopping));
        // Nothing is ever sent: it waits until the other end is dropped.
        let _ = stopped.recv_timeout(STOP_MAX);
    }
}

pub(super) fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says when something has changed below a prefix, for as long as anybody hears it. What changes before a watch
/// begins is not missed, as that is said, too.
fn watch((etcd, below): (&Etcd, &str), pace: Pace, say: &dyn Fn() -> bool) {
    let from = format!("{}{below}", etcd.address().prefix());
    // The character after the slash.
    let end = format!("{}0", from.trim_end_matches('/'));
    let mut wait = pace.wait.0;
    loop {
        let watched = watch_once(etcd, Key::From(&from, &end), pace.again, &mut || {
            wait = pace.wait.0;
            say()
        });
        // The other thread finds out what is wrong.
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

/// Watches keys from now on, for some time, and says whatever it sees, until the receiver is gone.
fn watch_once(
    etcd: &Etcd,
    keys: Key<'_>,
    duration: Duration,
    look: &mut dyn FnMut() -> bool,
) -> Result<(), StoreError> {
    let mut watch = etcd.watch(keys, 0, duration)?;
    loop {
        match watch.wait() {
            Ok(Watched::Begun | Watched::Changed) => {
                if !look() {
                    return Ok(());
                }
            }
            Ok(Watched::Over) => return Ok(()),
            Err(error) if error.kind() == StoreErrorKind::Compacted => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
