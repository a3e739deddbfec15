//! What control hands to every core: an immutable value, replaced as a whole while cores run.

use crate::deployment::Deployment;
use crate::per_core::PerCore;
use hotloop_ring::{Consumer, Producer, ring};
use std::fmt;

/// Loom's under `--cfg loom`, so that it sees in which order values are read and freed.
#[cfg(loom)]
use loom::sync::Arc;
#[cfg(not(loom))]
use std::sync::Arc;

/// How many values may be on the way to a subscriber, or back from it: a new one follows when the
/// one before it has been taken up and what it superseded is back.
const ON_THE_WAY_MAX: usize = 1;

/// Makes the two ends by which control publishes values of `T` to the cores that run `group`, all of
/// which start with `first`.
///
/// A core's stage owns its [`Subscriber`] and takes a newer value up between bursts; what it
/// superseded goes back to the [`Publisher`], which frees it. So a core never frees, waits, locks or
/// allocates, and nobody frees a value that a core still reads. A core keeps two values from being
/// freed at most: the one it reads, and one on the way to it or back.
///
/// The factory of a stage in that group takes the subscriber of its core.
///
/// ```
/// use hotloop_engine::{Deployment, publish};
/// use hotloop_stage::Core;
/// use std::sync::Arc;
///
/// let deployment = Deployment::run_to_completion(1);
/// let (mut publisher, subscribers) = publish(Arc::new("first"), deployment, 0);
/// let core = Core::new(0, 1);
/// let mut subscriber = subscribers.take(&core).expect("the factory of another stage took it");
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
    deployment: Deployment,
    group: usize,
) -> (Publisher<T>, PerCore<Subscriber<T>>) {
    let mut lanes = Vec::new();
    let subscribers = PerCore::new(deployment, group, || {
        let (newer_tx, newer) = ring(ON_THE_WAY_MAX);
        let (superseded, superseded_rx) = ring(ON_THE_WAY_MAX);
        lanes.push(Lane {
            newer: newer_tx,
            superseded: superseded_rx,
            is_out: false,
            is_newest: true,
        });
        Subscriber { current: Arc::clone(&first), superseded, newer }
    });
    (Publisher { newest: first, lanes }, subscribers)
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
    /// A subscriber that was dropped no longer counts; one that no factory has taken does, until the
    /// [`PerCore`] is dropped.
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

impl<T: fmt::Debug> fmt::Debug for Subscriber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("current", &self.current).finish_non_exhaustive()
    }
}
