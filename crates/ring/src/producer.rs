//! The end that pushes.

use std::fmt;

use crate::shared::Shared;
use crate::sync::Arc;

/// The end of a ring that items are pushed into. Made by [`ring`](crate::ring).
///
/// There is one for each ring: it may move to another thread, but isn't cloned.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    /// Items pushed so far; what `shared` shows, outside of a push.
    tail: usize,
    /// `head` as last read. The true one is at or past it, up to `tail`.
    head_seen: usize,
    /// Never less than the most items that were in the ring after a push.
    high_water: usize,
}

impl<T> Producer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        Self { tail: shared.tail(), head_seen: shared.head(), high_water: 0, shared }
    }

    /// Pushes one item.
    ///
    /// # Errors
    /// Gives the item back when the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.room_for(1) == 0 {
            return Err(item);
        }
        // SAFETY: 1. There is one producer, and it is borrowed mutably. 2. There is room, so `tail`
        // lies before `head + capacity`.
        unsafe { self.shared.write(self.tail, item) };
        self.publish(1);
        Ok(())
    }

    /// Pushes up to `count` items, each from a call of `next`, and returns how many: as many as
    /// there is room for. `next` is called exactly that often, so no item is left over.
    ///
    /// The consumer sees the burst at once. When `next` panics, it sees the items before.
    ///
    /// ```
    /// let (mut tx, mut rx) = hotloop_ring::ring(2);
    /// let mut waiting = vec![3, 2, 1];
    /// assert_eq!(tx.push_burst(waiting.len(), || waiting.pop().unwrap()), 2);
    /// assert_eq!(waiting, [3]);
    /// assert_eq!((rx.pop(), rx.pop(), rx.pop()), (Some(1), Some(2), None));
    /// ```
    #[inline]
    pub fn push_burst(&mut self, count: usize, mut next: impl FnMut() -> T) -> usize {
        let room_count = self.room_for(count);
        if room_count == 0 {
            return 0;
        }
        let written = Written { producer: self, count: 0 };
        written.fill(room_count, &mut next);
        room_count
    }

    /// Pushes a copy of the first items of `items`, as many as there is room for, and returns how
    /// many.
    pub fn push_slice(&mut self, items: &[T]) -> usize
    where
        T: Copy,
    {
        let mut rest = items.iter().copied();
        self.push_burst(items.len(), || rest.next().expect("called once for each item"))
    }

    /// How many of `wanted_count` items there is room for now. That room stays until it is pushed
    /// into: the consumer can only add to it.
    ///
    /// Reads the consumer's index only when the room last seen is too small.
    #[inline]
    pub fn room_for(&mut self, wanted_count: usize) -> usize {
        if self.free_seen() < wanted_count {
            self.head_seen = self.shared.head();
        }
        self.free_seen().min(wanted_count)
    }

    /// How many items there is room for now, from the consumer's index as it is.
    pub fn free_count(&mut self) -> usize {
        self.head_seen = self.shared.head();
        self.free_seen()
    }

    /// Items in the ring now. The consumer may take some while this returns.
    pub fn len(&self) -> usize {
        self.tail.wrapping_sub(self.shared.head())
    }

    /// True when the ring holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most items that the ring holds at once.
    pub fn capacity(&self) -> usize {
        self.shared.capacity()
    }

    /// The most items that were in the ring at once, as the producer found it after its pushes.
    ///
    /// Exact above an eighth of the capacity. Up to there it may be too high, never too low: that
    /// spares a look at the consumer's index in each burst while the ring is almost empty.
    pub fn high_water(&self) -> usize {
        self.high_water
    }

    /// True when the consumer was dropped. Pushes still work while there is room, but nobody takes
    /// the items: they are dropped with the producer.
    pub fn is_closed(&self) -> bool {
        self.shared.consumer_gone()
    }

    #[inline(always)]
    fn free_seen(&self) -> usize {
        self.shared.capacity() - self.tail.wrapping_sub(self.head_seen)
    }

    /// Shows `count` more items to the consumer.
    #[inline(always)]
    fn publish(&mut self, count: usize) {
        self.tail = self.tail.wrapping_add(count);
        self.shared.publish_tail(self.tail);
        let known = self.high_water.max(self.shared.capacity() / 8);
        if self.tail.wrapping_sub(self.head_seen) > known {
            self.head_seen = self.shared.head();
        }
        self.high_water = self.high_water.max(self.tail.wrapping_sub(self.head_seen));
    }
}

/// A burst being written. Its drop publishes what was written, so a panic in between loses nothing.
struct Written<'a, T> {
    producer: &'a mut Producer<T>,
    count: usize,
}

impl<T> Written<'_, T> {
    /// `room_count` is what `room_for` returned.
    #[inline(always)]
    fn fill(mut self, room_count: usize, next: &mut impl FnMut() -> T) {
        while self.count < room_count {
            let item = next();
            let index = self.producer.tail.wrapping_add(self.count);
            // SAFETY: 1. There is one producer, and it is borrowed mutably. 2. `count` is below the
            // room, so `index` lies before `head + capacity`; it is at or past `tail`.
            unsafe { self.producer.shared.write(index, item) };
            self.count += 1;
        }
    }
}

impl<T> Drop for Written<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.producer.publish(self.count);
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.leave_producer();
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
