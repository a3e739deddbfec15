//! Following a store: a thread that waits for changes, and keeps the newest configuration.
//!
//! A watch says at once that something has changed, but watches have lost events: what is there is read
//! again each minute besides. Only the newest is kept for whoever takes it, so nobody waits for anybody.

use super::command::nothing_in;
use super::error::{StoreError, StoreErrorKind};
use super::etcd::{Bounds, Etcd};
use super::gateway::Key;
use super::layout::{self, Stored};
use super::watching::Watched;
use crate::config::StoreAddress;
use hotloop_ops::Capabilities;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a store is asked.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After how long everything is read again, though no change was seen.
    pub again: Duration,
    /// How long to wait after something went wrong: at first, and at most. It doubles each time.
    pub wait: (Duration, Duration),
    /// Of the calls themselves.
    pub bounds: Bounds,
}

impl Default for Pace {
    /// One minute; 0.1 s to 5 s.
    fn default() -> Self {
        let wait = (Duration::from_millis(100), Duration::from_secs(5));
        Self { again: Duration::from_secs(60), wait, bounds: Bounds::default() }
    }
}

/// How a store is, as its watch sees it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StoreState {
    /// The revision that was read last; 0 before the first.
    pub revision: i64,
    /// Since when it can't be read, and why.
    pub failure: Option<(Instant, String)>,
}

/// What the thread and its owner share.
#[derive(Debug, Default)]
struct Found {
    newest: Option<Arc<Stored>>,
    state: StoreState,
}

/// A store that is followed. The thread ends some time after this is dropped.
#[derive(Debug)]
pub struct StoreWatch(Arc<Mutex<Found>>);

impl StoreWatch {
    /// Follows the store at this address, of which the revision `known` is already known; 0 is none.
    ///
    /// # Errors
    /// The system grants no thread.
    pub fn start(address: StoreAddress, known: i64, pace: Pace) -> io::Result<Self> {
        let found = Arc::new(Mutex::new(Found::default()));
        let follower = Follower {
            etcd: Etcd::new(address, pace.bounds),
            known,
            pace,
            wait: pace.wait.0,
            found: Arc::clone(&found),
        };
        thread::Builder::new().name("lb-store".into()).spawn(move || {
            hotloop_ops::keep(Capabilities::empty());
            follower.follow();
        })?;
        Ok(Self(found))
    }

    /// The newest configuration, if there is one that was not taken yet.
    #[must_use]
    pub fn take(&self) -> Option<Arc<Stored>> {
        lock(&self.0).newest.take()
    }

    /// How the store is.
    #[must_use]
    pub fn state(&self) -> StoreState {
        lock(&self.0).state.clone()
    }
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread.
struct Follower {
    etcd: Etcd,
    /// The revision that the owner got last.
    known: i64,
    pace: Pace,
    /// How long to wait when something goes wrong next.
    wait: Duration,
    found: Arc<Mutex<Found>>,
}

impl Follower {
    fn follow(mut self) {
        while Arc::strong_count(&self.found) > 1 {
            let followed = self.read().and_then(|at| self.watch(at));
            if let Err(error) = followed {
                tracing::debug!("{error}");
                thread::sleep(self.wait);
                self.wait = self.pace.wait.1.min(self.wait * 2);
            }
        }
    }

    /// Reads what is there, and keeps it for the owner where it is new. Returns the store's revision.
    fn read(&mut self) -> Result<i64, StoreError> {
        let read = layout::read(&self.etcd).and_then(|reading| match reading.stored {
            Some(stored) => Ok((reading.at, stored)),
            None => Err(nothing_in(self.etcd.address())),
        });
        let (at, stored) = read.inspect_err(|error| self.fail(error))?;
        let mut found = lock(&self.found);
        found.state.revision = stored.revision;
        if let Some((since, _)) = found.state.failure.take() {
            let s = since.elapsed().as_secs();
            tracing::info!("{}: read again, after {s} s", self.etcd.address());
        }
        // A store that was restored from a backup may be at a lower one.
        if stored.revision != self.known {
            self.known = stored.revision;
            found.newest = Some(Arc::new(stored));
        }
        Ok(at)
    }

    fn fail(&self, error: &StoreError) {
        let mut found = lock(&self.found);
        let why = error.to_string();
        match &mut found.state.failure {
            Some((_, known)) => *known = why,
            None => {
                tracing::error!("{why}; meanwhile, what is in force stays in force");
                found.state.failure = Some((Instant::now(), why));
            }
        }
    }

    /// Waits until something has changed after the revision `at`, or it is time to read again.
    fn watch(&mut self, at: i64) -> Result<(), StoreError> {
        let key = layout::current_key(&self.etcd);
        let mut watch = self.etcd.watch(Key::One(&key), at + 1, self.pace.again)?;
        loop {
            match watch.wait() {
                Ok(Watched::Begun) => self.wait = self.pace.wait.0,
                Ok(Watched::Changed | Watched::Over) => return Ok(()),
                Err(error) if error.kind() == StoreErrorKind::Compacted => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
