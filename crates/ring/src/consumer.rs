//! The end that pops.

use std::fmt;

use crate::shared::Shared;
use crate::sync::Arc;

/// The end of a ring that items are popped from. Made by [`ring`](crate::ring).
///
/// There is one for each ring: it may move to another thread, but isn't cloned.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    /// Items popped so far; what `shared` shows, outside of a pop.
    head: usize,
    /// `tail` as last read. The true one is at or past it; all items before it may be taken.
    tail_seen: usize,
}

impl<T> Consumer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        Self { head: shared.head(), tail_seen: shared.tail(), shared }
    }

    /// Pops the oldest item, or nothing when the ring is empty.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.ready(1) == 0 {
            return None;
        }
        // SAFETY: 1. There is one consumer, and it is borrowed mutably. 2. `head` lies before
        // `tail`. 3. The index moves on below, so the item is taken once.
        let item = unsafe { self.shared.take(self.head) };
        self.head = self.head.wrapping_add(1);
        self.shared.publish_head(self.head);
        Some(item)
    }

    /// Pops up to `count_max` items, oldest first, hands each to `each`, and returns how many.
    ///
    /// Their slots are free for the producer when the burst ends. When `each` panics, it has the
    /// item it was called with, and those behind stay in the ring.
    ///
    /// ```
    /// let (mut tx, mut rx) = hotloop_ring::ring(8);
    /// tx.push_slice(&[1, 2, 3]);
    /// let mut burst = Vec::new();
    /// assert_eq!(rx.pop_burst(64, |item| burst.push(item)), 3);
    /// assert_eq!(burst, [1, 2, 3]);
    /// ```
    #[inline]
    pub fn pop_burst(&mut self, count_max: usize, mut each: impl FnMut(T)) -> usize {
        let ready_count = self.ready(count_max);
        if ready_count == 0 {
            return 0;
        }
        let taken = Taken { consumer: self };
        taken.hand_out(ready_count, &mut each);
        ready_count
    }

    /// Pops items into the front of `out`, in place of what is there, and returns how many.
    pub fn pop_slice(&mut self, out: &mut [T]) -> usize {
        let count_max = out.len();
        let mut places = out.iter_mut();
        self.pop_burst(count_max, |item| {
            *places.next().expect("called at most once for each place") = item;
        })
    }

    /// Items in the ring now. The producer may add some while this returns.
    pub fn len(&self) -> usize {
        self.shared.tail().wrapping_sub(self.head)
    }

    /// True when the ring holds nothing now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most items that the ring holds at once.
    pub fn capacity(&self) -> usize {
        self.shared.capacity()
    }

    /// True when the producer was dropped. Items may still be in the ring.
    pub fn is_closed(&self) -> bool {
        self.shared.producer_gone()
    }

    /// True when the producer was dropped and nothing is left: no item will ever come.
    pub fn is_finished(&self) -> bool {
        // In this order: a producer that is gone pushes no more, so what is empty then stays so.
        self.is_closed() && self.is_empty()
    }

    /// How many of `wanted_count` items may be taken. Reads the producer's index only when those
    /// last seen are too few.
    #[inline(always)]
    fn ready(&mut self, wanted_count: usize) -> usize {
        if self.tail_seen.wrapping_sub(self.head) < wanted_count {
            self.tail_seen = self.shared.tail();
        }
        self.tail_seen.wrapping_sub(self.head).min(wanted_count)
    }
}

/// A burst being handed out. Its drop gives the slots of what was taken back to the producer.
struct Taken<'a, T> {
    consumer: &'a mut Consumer<T>,
}

impl<T> Taken<'_, T> {
    /// `ready_count` is what `ready` returned.
    #[inline(always)]
    fn hand_out(self, ready_count: usize, each: &mut impl FnMut(T)) {
        for _ in 0..ready_count {
            // SAFETY: 1. There is one consumer, and it is borrowed mutably. 2. Fewer than
            // `ready_count` items were taken, so `head` lies before `tail`. 3. The index moves on
            // before `each` can panic, so the item is taken once.
            let item = unsafe { self.consumer.shared.take(self.consumer.head) };
            self.consumer.head = self.consumer.head.wrapping_add(1);
            each(item);
        }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.consumer.shared.publish_head(self.consumer.head);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.leave_consumer();
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
