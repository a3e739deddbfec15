//! Publishing from control to every core: an immutable value, replaced as a whole while cores run.

use hotloop_ring::{Consumer, Producer, ring};
use std::fmt;
use std::sync::PoisonError;

/// Loom's types under `--cfg loom`, so that loom sees the order of reads and frees.
#[cfg(loom)]
use loom::sync::{Arc, Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::{Arc, Mutex, MutexGuard};

/// Maximum number of values on the way to a subscriber or back: a new value follows after the
/// subscriber has switched to the previous one and the superseded value is back.
const ON_THE_WAY_MAX: usize = 1;

/// Makes the two ends for publishing values of `T` from control to cores. All cores start with the
/// newest value, at first `first`.
///
/// A core's stage owns its [`Subscriber`] and switches to a newer value between bursts; the
/// superseded value goes back to the [`Publisher`], which frees it. A core therefore never frees,
/// waits, locks or allocates, and no value is freed while a core still reads it. A core keeps at
/// most two values alive: the one that it reads, and one on the way to it or back.
///
/// The factory of a stage makes the core's own end by [`Subscribers::subscribe`], in any group and
/// deployment.
///
/// ```
/// use hotloop_engine::publish;
/// use std::sync::Arc;
///
/// let (mut publisher, subscribers) = publish(Arc::new("first"));
/// let mut subscriber = subscribers.subscribe();
/// assert_eq!(*subscriber.current(), "first");
///
/// publisher.publish(Arc::new("second"));
/// assert_eq!((*publisher.newest(), *subscriber.current()), ("second", "first"));
/// assert!(subscriber.take_up());
/// assert_eq!(*subscriber.current(), "second");
/// assert!(publisher.collect());
/// ```
pub fn publish<T: Send + Sync>(first: Arc<T>) -> (Publisher<T>, Subscribers<T>) {
    let start = Start { newest: Arc::clone(&first), joined: Vec::new() };
    let start = Arc::new(Mutex::new(start));
    let subscribers = Subscribers { start: Arc::clone(&start) };
    (Publisher { newest: first, rings: Vec::new(), start }, subscribers)
}

/// The factories' end of [`publish`], for all cores. It keeps the newest value alive.
pub struct Subscribers<T> {
    start: Arc<Mutex<Start<T>>>,
}

/// The start of new subscribers. Locked by factories and by control, never by a core that runs.
struct Start<T> {
    newest: Arc<T>,
    /// The rings of subscribers that the publisher doesn't know yet.
    joined: Vec<SubscriberRings<T>>,
}

/// Locks the start. A panic can't leave it half changed.
fn lock<T>(start: &Mutex<Start<T>>) -> MutexGuard<'_, Start<T>> {
    start.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send + Sync> Subscribers<T> {
    /// Makes a subscriber that starts with the newest value. Call this in a stage's factory: it
    /// allocates, and locks out the publisher for a moment.
    ///
    /// # Panics
    /// If there isn't enough memory for two rings of one value.
    #[must_use]
    pub fn subscribe(&self) -> Subscriber<T> {
        let (newer_tx, newer) = ring(ON_THE_WAY_MAX);
        let (superseded, superseded_rx) = ring(ON_THE_WAY_MAX);
        let rings = SubscriberRings {
            newer: newer_tx,
            superseded: superseded_rx,
            is_out: false,
            is_newest: true,
        };
        let mut start = lock(&self.start);
        start.joined.push(rings);
        Subscriber { current: Arc::clone(&start.newest), superseded, newer }
    }
}

impl<T> Clone for Subscribers<T> {
    fn clone(&self) -> Self {
        Self { start: Arc::clone(&self.start) }
    }
}

/// Control's end of [`publish`]. If it is dropped first, subscribers keep the last value that they
/// received.
pub struct Publisher<T> {
    newest: Arc<T>,
    /// The rings of each known subscriber that is not known to be gone.
    rings: Vec<SubscriberRings<T>>,
    start: Arc<Mutex<Start<T>>>,
}

/// The rings to one subscriber and back.
struct SubscriberRings<T> {
    newer: Producer<Arc<T>>,
    superseded: Consumer<Arc<T>>,
    /// Whether a value was sent and the superseded one is not back yet.
    is_out: bool,
    /// Whether the last value that was sent is the newest.
    is_newest: bool,
}

impl<T: Send + Sync> Publisher<T> {
    /// Makes `value` the newest. Subscribers that have switched to the previous one get it at once,
    /// the others through [`collect`](Self::collect) later; values published in between are
    /// skipped. Never blocks, and frees returned values.
    pub fn publish(&mut self, value: Arc<T>) {
        let mut start = lock(&self.start);
        self.rings.append(&mut start.joined);
        let previous = std::mem::replace(&mut start.newest, Arc::clone(&value));
        drop(start);
        // Frees a value that no core reads, which may take long: not under the lock.
        drop(previous);
        self.newest = value;
        self.rings.iter_mut().for_each(|its| its.is_newest = false);
        self.collect();
    }

    /// The value published last, at first the one that [`publish`] was called with. Subscribers may
    /// still use an older one.
    #[must_use]
    pub fn newest(&self) -> &T {
        &self.newest
    }

    /// Frees returned values, and sends the newest value to subscribers that were not ready for it.
    /// Returns true once every subscriber uses the newest value and has returned the older ones: call
    /// this from time to time until then.
    ///
    /// Counts the subscribers made so far. One made later starts with the newest value, so there is
    /// nothing to wait for. A dropped subscriber no longer counts.
    pub fn collect(&mut self) -> bool {
        let Self { newest, rings, start } = self;
        rings.append(&mut lock(start).joined);
        rings.retain_mut(|its| its.settle(newest));
        rings.iter().all(|its| its.is_newest && !its.is_out)
    }
}

impl<T> SubscriberRings<T> {
    /// Takes a returned value, then sends the newest unless another is on its way. Returns false once the
    /// subscriber is gone.
    fn settle(&mut self, newest: &Arc<T>) -> bool {
        // Values still on the way are freed with the rings.
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
/// A subscriber is dropped with its stage, after the core's last packet. Only that drop may free a
/// value on the core's thread: if the publisher is gone, or this subscriber was the last to hold a
/// value.
pub struct Subscriber<T> {
    current: Arc<T>,
    superseded: Producer<Arc<T>>,
    /// The last field: once the publisher sees this end gone, the other end is gone, too, so that
    /// the publisher frees the values left in the rings.
    newer: Consumer<Arc<T>>,
}

impl<T> Subscriber<T> {
    /// The value in use.
    #[inline(always)]
    #[must_use]
    pub fn current(&self) -> &T {
        &self.current
    }

    /// Switches to a newer value, if there is one, and returns whether there was. Call this between
    /// bursts, in the stage's `tick`. Without a newer value, it costs one read.
    #[inline(always)]
    pub fn take_up(&mut self) -> bool {
        !self.newer.is_empty() && self.supersede()
    }

    #[cold]
    fn supersede(&mut self) -> bool {
        // There are never more values on the way than the ring back has room for. Checked all the
        // same: a value without room would be freed here.
        if self.superseded.room_for(1) == 0 {
            return false;
        }
        let Some(newer) = self.newer.pop() else { return false };
        let superseded = std::mem::replace(&mut self.current, newer);
        self.superseded.push(superseded).is_ok()
    }
}

impl<T> fmt::Debug for Subscribers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribers").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("subscribers", &self.rings.len()).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for Subscriber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("current", &self.current).finish_non_exhaustive()
    }
}
