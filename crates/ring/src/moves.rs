//! What a ring moves many items out of and into at once.

use std::mem::MaybeUninit;

/// Items that lie one after the other, which [`Producer::push_from`](crate::Producer::push_from) moves out from
/// the front. A slice of `Copy` items is one, and copies them: `push_from(&mut &items[..])`.
///
/// # Safety
/// 1. The items that [`items`](Self::items) returns are the value's own, or `Copy`, and the same each time. 2. After
///    [`forget_front`](Self::forget_front) it neither returns, uses nor drops the first `count` of them again.
pub unsafe trait MoveOut {
    /// What is moved.
    type Item;

    /// All items, front first.
    fn items(&self) -> &[Self::Item];

    /// Takes the first `count` items to have been moved out.
    ///
    /// # Safety
    /// 1. There are as many. 2. The caller has moved them, or forgets them.
    unsafe fn forget_front(&mut self, count: usize);
}

/// Room for items, which [`Consumer::pop_into`](crate::Consumer::pop_into) moves in at its front. A `Vec` is some
/// with what it has allocated.
pub trait MoveIn {
    /// What is moved.
    type Item;

    /// Where the next items go.
    fn spare(&mut self) -> &mut [MaybeUninit<Self::Item>];

    /// Takes the first `count` spare places to hold items, which it owns from now on.
    ///
    /// # Safety
    /// 1. The last call of [`spare`](Self::spare), since which nothing has changed, returned as many places. 2. The
    ///    caller has moved an item into each.
    unsafe fn moved_in(&mut self, count: usize);
}

// SAFETY: 1. The items are `Copy`. 2. The slice goes on after those that were copied.
unsafe impl<T: Copy> MoveOut for &[T] {
    type Item = T;

    #[inline(always)]
    fn items(&self) -> &[T] {
        self
    }

    #[inline(always)]
    unsafe fn forget_front(&mut self, count: usize) {
        // SAFETY: 1. By contract there are as many.
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
        // SAFETY: 1. By contract so many places after the length were initialised. 2. They are within what is
        // allocated, as `spare_capacity_mut` returned them.
        unsafe { self.set_len(self.len() + count) }
    }
}
