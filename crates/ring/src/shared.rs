//! What both ends of a ring share: the slots, the two indices, and who has gone.

use std::mem::MaybeUninit;
use std::ops::Deref;

use crate::sync::{AtomicBool, AtomicUsize, Ordering, UnsafeCell};

/// Keeps a value on cache lines of its own: 128 bytes, since x86 fetches lines in pairs.
#[repr(align(128))]
pub(crate) struct CachePadded<T>(T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The memory of a ring.
///
/// Indices count every item ever pushed or popped and wrap at `usize::MAX`; slot `i & mask` holds
/// item `i`. At all times `tail - head <= capacity <= slots.len()` (wrapping), so an index names
/// one slot and a slot at most one item.
pub(crate) struct Shared<T> {
    /// Items popped so far. Written by the consumer only.
    head: CachePadded<AtomicUsize>,
    /// Items pushed so far. Written by the producer only.
    tail: CachePadded<AtomicUsize>,
    /// A power of two of slots, at least `capacity`. Those in `head..tail` hold an item and belong
    /// to the consumer, the others hold none and belong to the producer.
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Most items at once.
    capacity: usize,
    /// Set when the producer is dropped, after its last item was published.
    producer_gone: AtomicBool,
    /// Set when the consumer is dropped.
    consumer_gone: AtomicBool,
}

// SAFETY: 1. A `Shared` owns the items between `head` and `tail`; moving it to a thread moves them,
// which `T: Send` allows. 2. It holds nothing tied to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

// SAFETY: 1. Slots are reached only through `write` and `take`, whose contracts give each slot to
// one thread at a time. 2. An item written by one thread is taken by another, never seen by both:
// `T: Send` is enough. 3. All else in here is atomic or never changes.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let slot_count =
            capacity.checked_next_power_of_two().expect("ring capacity is at most 2^63");
        Self {
            head: CachePadded(AtomicUsize::new(0)),
            tail: CachePadded(AtomicUsize::new(0)),
            slots: (0..slot_count).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
            capacity,
            producer_gone: AtomicBool::new(false),
            consumer_gone: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Items popped so far. What the consumer read before it published this value, it is done with.
    #[inline(always)]
    pub(crate) fn head(&self) -> usize {
        self.head.load(Ordering::Acquire)
    }

    /// Items pushed so far. Every item before this index is visible to the caller.
    #[inline(always)]
    pub(crate) fn tail(&self) -> usize {
        self.tail.load(Ordering::Acquire)
    }

    /// Gives the slots before `head` back to the producer. For the consumer only.
    #[inline(always)]
    pub(crate) fn publish_head(&self, head: usize) {
        self.head.store(head, Ordering::Release);
    }

    /// Shows the items before `tail` to the consumer. For the producer only.
    #[inline(always)]
    pub(crate) fn publish_tail(&self, tail: usize) {
        self.tail.store(tail, Ordering::Release);
    }

    pub(crate) fn producer_gone(&self) -> bool {
        self.producer_gone.load(Ordering::Acquire)
    }

    pub(crate) fn consumer_gone(&self) -> bool {
        self.consumer_gone.load(Ordering::Acquire)
    }

    /// Release, so that whoever reads it reads a `tail` that covers the last item too.
    pub(crate) fn leave_producer(&self) {
        self.producer_gone.store(true, Ordering::Release);
    }

    pub(crate) fn leave_consumer(&self) {
        self.consumer_gone.store(true, Ordering::Release);
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index & (self.slots.len() - 1)]
    }

    /// Puts `item` into the slot of `index`.
    ///
    /// # Safety
    /// The slot belongs to the calling thread and holds no item: `index` is in
    /// `tail..head + capacity` and the caller is the producer.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, index: usize, item: T) {
        self.slot(index).with_mut(|slot| {
            // SAFETY: 1. `slot` points into `self.slots`, which lives as long as `self`. 2. By this
            // function's contract no other thread reads or writes it now.
            unsafe { *slot = MaybeUninit::new(item) };
        });
    }

    /// Takes the item out of the slot of `index`.
    ///
    /// # Safety
    /// The slot belongs to the calling thread and holds an item that was not taken yet: `index` is
    /// in `head..tail`, and the caller is the consumer or owns the ring alone.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, index: usize) -> T {
        self.slot(index).with_mut(|slot| {
            // SAFETY: 1. `slot` points into `self.slots` and `MaybeUninit<T>` has the layout of
            // `T`. 2. By this function's contract it holds an item, no other thread touches it,
            // and nobody takes the item again.
            unsafe { slot.cast::<T>().read() }
        })
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let mut left = Left { head: self.head(), tail: self.tail(), shared: self };
        left.drop_items();
    }
}

/// The items that nobody popped, on their way out.
struct Left<'a, T> {
    /// Always past the last item taken, so that none is dropped twice.
    head: usize,
    tail: usize,
    shared: &'a Shared<T>,
}

impl<T> Left<'_, T> {
    fn drop_items(&mut self) {
        while self.head != self.tail {
            let index = self.head;
            self.head = self.head.wrapping_add(1);
            // SAFETY: 1. Both ends are gone: the ring is being dropped and is the caller's alone.
            // 2. `index` lies in `head..tail`, and each index comes by once.
            drop(unsafe { self.shared.take(index) });
        }
    }
}

impl<T> Drop for Left<'_, T> {
    /// Does nothing unless an item's own drop panicked; then the rest is still dropped, as with the
    /// standard collections.
    fn drop(&mut self) {
        self.drop_items();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Arc;
    use crate::{Consumer, Producer};

    /// An empty ring through which `index` items went already.
    fn used(capacity: usize, index: usize) -> (Producer<usize>, Consumer<usize>) {
        let shared = Shared::new(capacity);
        shared.publish_head(index);
        shared.publish_tail(index);
        let shared = Arc::new(shared);
        (Producer::new(shared.clone()), Consumer::new(shared))
    }

    #[test]
    fn indices_wrap() {
        for capacity in [1, 3, 4, 5] {
            let (mut tx, mut rx) = used(capacity, usize::MAX - 6);
            let mut expected = 0;
            for round in 0..8 {
                let mut next = round * capacity..;
                assert_eq!(tx.push_burst(capacity + 1, || next.next().unwrap()), capacity);
                assert_eq!((tx.len(), rx.len(), tx.free_count()), (capacity, capacity, 0));
                assert_eq!(tx.push(usize::MAX), Err(usize::MAX));
                let popped = rx.pop_burst(usize::MAX, |item| {
                    assert_eq!(item, expected);
                    expected += 1;
                });
                assert_eq!(popped, capacity);
                assert!(tx.is_empty() && rx.is_empty());
            }
        }
    }

    #[test]
    fn what_is_left_across_the_wrap_is_dropped() {
        let item = Arc::new(());
        let shared = Shared::new(4);
        shared.publish_head(usize::MAX);
        shared.publish_tail(usize::MAX);
        let mut tx = Producer::new(Arc::new(shared));
        assert_eq!(tx.push_burst(3, || item.clone()), 3);
        assert_eq!(Arc::strong_count(&item), 4);
        drop(tx);
        assert_eq!(Arc::strong_count(&item), 1);
    }
}
