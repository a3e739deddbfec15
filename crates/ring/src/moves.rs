//! Traits for memory that many items are moved from or to at once.

use std::mem::MaybeUninit;

/// Items that lie one after the other, which [`Producer::push_from`](crate::Producer::push_from)
/// moves out from the front. A slice of `Copy` items implements this, and copies them:
/// `push_from(&mut &items[..])`.
///
/// # Safety
/// 1. The items that [`items`](Self::items) returns are the value's own, or `Copy`, and the same
///    each time. 2. After [`forget_front`](Self::forget_front) the value neither returns, uses nor
///    drops the first `count` of them again.
pub unsafe trait MoveOut {
    /// The type of items.
    type Item;

    /// All items, front first.
    fn items(&self) -> &[Self::Item];

    /// Marks the first `count` items as moved out.
    ///
    /// # Safety
    /// 1. There are at least `count` items. 2. The caller has moved them, or forgets them.
    unsafe fn forget_front(&mut self, count: usize);
}

/// Room for items, which [`Consumer::pop_into`](crate::Consumer::pop_into) moves in from its front
/// on. A `Vec` implements this with its spare capacity.
pub trait MoveIn {
    /// The type of items.
    type Item;

    /// The free places for items, in order.
    fn spare(&mut self) -> &mut [MaybeUninit<Self::Item>];

    /// Marks the first `count` spare places as initialised. This value owns the items from now on.
    ///
    /// # Safety
    /// 1. The last call of [`spare`](Self::spare), since when nothing has changed, returned at
    ///    least `count` places. 2. The caller has moved an item into each.
    unsafe fn moved_in(&mut self, count: usize);
}

// SAFETY: 1. The items are `Copy`. 2. The slice continues after the items that were copied.
unsafe impl<T: Copy> MoveOut for &[T] {
    type Item = T;

    #[inline(always)]
    fn items(&self) -> &[T] {
        self
    }

    #[inline(always)]
    unsafe fn forget_front(&mut self, count: usize) {
        // SAFETY: 1. By contract there are at least `count` items.
        *self = unsafe { self.get_unchecked(count..) };
    }
}

impl<T> MoveIn for Vec<T> {
    type Item = T;

    #[inline(always)]
    fn spare(&mut self) -> &mut [MaybeUninit<T>] {
        self.spare_capacity_mut()
    }

    #[inline(always)]
    unsafe fn moved_in(&mut self, count: usize) {
        // SAFETY: 1. By contract `count` places after the length were initialised. 2. They are
        // within the allocation, as `spare_capacity_mut` returned them.
        unsafe { self.set_len(self.len() + count) }
    }
}
