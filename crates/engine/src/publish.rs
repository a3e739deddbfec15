//! What control hands to every core: an immutable value, replaced as a whole while cores run.

use hotloop_ring::{Consumer, Producer, ring};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Loom's under `--cfg loom`, so that it sees in which order values are read and freed.
#[cfg(loom)]
use loom::sync::Arc;
#[cfg(not(loom))]
use std::sync::Arc;

/// How many values may be on the way to a subscriber, or back from it: a new one follows when the
/// one before it has been taken up and what it superseded is back.
const ON_THE_WAY_MAX: usize = 1;

/// Makes the two ends by which control publishes values of `T` to `subscriber_count` cores, all of
/// which start with `first`.
///
/// A core's stage owns its [`Subscriber`] and takes a newer value up between bursts; what it
/// superseded goes back to the [`Publisher`], which frees it. So a core never frees, waits, locks or
/// allocates, and nobody frees a value that a core still reads. A core keeps two values from being
/// freed at most: the one it reads, and one on the way to it or back.
///
/// A core takes its own by its number, which counts the cores of a role: where the stage stands
/// behind a boundary, that is the worker's, in either deployment.
///
/// ```
/// use hotloop_engine::publish;
/// use std::sync::Arc;
///
/// let (mut publisher, subscribers) = publish(Arc::new("first"), 1);
/// let mut subscriber = subscribers.take(0).expect("nobody has taken it");
/// assert_eq!(*subscriber.current(), "first");
///
/// publisher.publish(Arc::new("second"));
/// assert_eq!(*subscriber.current(), "first");
/// assert!(subscriber.take_up());
/// assert_eq!(*subscriber.current(), "second");
/// assert!(publisher.collect());
/// ```
pub fn publish<T: Send + Sync>(
    first: Arc<T>,
    subscriber_count: usize,
) -> (Publisher<T>, Subscribers<T>) {
    let (lanes, subscribers) = (0..subscriber_count)
        .map(|_| {
            let (newer_tx, newer) = ring(ON_THE_WAY_MAX);
            let (superseded, superseded_rx) = ring(ON_THE_WAY_MAX);
            let lane =
                Lane { newer: newer_tx, superseded: superseded_rx, is_out: false, is_newest: true };
            let current = Arc::clone(&first);
            (lane, Mutex::new(Some(Subscriber { current, superseded, newer })))
        })
        .unzip();
    (Publisher { newest: first, lanes }, Subscribers { subscribers })
}

/// Control's end of [`publish`]. Where it is dropped first, subscribers keep the last value that was
/// handed to them.
pub struct Publisher<T> {
    newest: Arc<T>,
    /// One for each subscriber that is not known to be gone.
    lanes: Vec<Lane<T>>,
}

/// The way to one subscriber and back.
struct Lane<T> {
    newer: Producer<Arc<T>>,
    superseded: Consumer<Arc<T>>,
    /// Whether a value was handed over and what it supersedes is not back yet.
    is_out: bool,
    /// Whether the last value handed over is the newest.
    is_newest: bool,
}

impl<T: Send + Sync> Publisher<T> {
    /// Makes `value` the newest. Subscribers that have taken up the one before get it at once, the
    /// others through [`collect`](Self::collect) once they have; what was published between is
    /// skipped. Never blocks, and frees what came back.
    pub fn publish(&mut self, value: Arc<T>) {
        self.newest = value;
        self.lanes.iter_mut().for_each(|lane| lane.is_newest = false);
        self.collect();
    }

    /// Frees what came back, and hands the newest value on to subscribers that were not ready for it.
    /// True once every subscriber has taken up the newest and none has an older one: call it from
    /// time to time until then.
    ///
    /// A subscriber that was dropped no longer counts; one that nobody has taken does, until the
    /// [`Subscribers`] are dropped.
    pub fn collect(&mut self) -> bool {
        let Self { newest, lanes } = self;
        lanes.retain_mut(|lane| lane.settle(newest));
        lanes.iter().all(|lane| lane.is_newest && !lane.is_out)
    }
}

impl<T> Lane<T> {
    /// Takes back, then hands over where the way is free. False once the subscriber is gone.
    fn settle(&mut self, newest: &Arc<T>) -> bool {
        // What is still on the way is freed with the lane.
        if self.newer.is_closed() {
            return false;
        }
        while let Some(superseded) = self.superseded.pop() {
            drop(superseded);
            self.is_out = false;
        }
        if !self.is_out && !self.is_newest {
            let handed_over = self.newer.push(Arc::clone(newest)).is_ok();
            (self.is_out, self.is_newest) = (handed_over, handed_over);
        }
        true
    }
}

/// The subscribers of a [`publish`], for factories to take from.
pub struct Subscribers<T> {
    /// Locked as a core is made, never while it runs.
    subscribers: Vec<Mutex<Option<Subscriber<T>>>>,
}

impl<T> Subscribers<T> {
    /// The subscriber at `index`; none where it was taken before, or there are not so many.
    pub fn take(&self, index: usize) -> Option<Subscriber<T>> {
        self.subscribers.get(index)?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A core's end of [`publish`]: a field of the stage that reads the value.
///
/// It is dropped with its stage, after the core's last packet. That drop alone may free a value on
/// the core's thread: where the publisher is gone, or it was the last to hold one.
pub struct Subscriber<T> {
    current: Arc<T>,
    superseded: Producer<Arc<T>>,
    /// The last field: once the publisher sees this end gone, the other is too, so that what is left
    /// in the rings is the publisher's to free.
    newer: Consumer<Arc<T>>,
}

impl<T> Subscriber<T> {
    /// The value taken up last.
    #[inline(always)]
    #[must_use]
    pub fn current(&self) -> &T {
        &self.current
    }

    /// Takes up a newer value, if there is one, and says whether there was: to be called between
    /// bursts, in the stage's `tick`. It is one read where there is none.
    #[inline(always)]
    pub fn take_up(&mut self) -> bool {
        !self.newer.is_empty() && self.supersede()
    }

    #[cold]
    fn supersede(&mut self) -> bool {
        // No more are on the way than there is room for on the way back. It is asked for all the
        // same: what found no room would be freed here.
        if self.superseded.room_for(1) == 0 {
            return false;
        }
        let Some(newer) = self.newer.pop() else { return false };
        let superseded = std::mem::replace(&mut self.current, newer);
        self.superseded.push(superseded).is_ok()
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Subscribers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.subscribers.len();
        f.debug_struct("Subscribers").field("count", &count).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for Subscriber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("current", &self.current).finish_non_exhaustive()
    }
}
