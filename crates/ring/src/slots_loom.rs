//! [`Slots`] for loom, which tells each access to a slot apart and reports those without an order
//! between them.

use std::mem::MaybeUninit;

use loom::cell::UnsafeCell;

use crate::lines::per_line;

/// Room for [`per_line`] items.
pub(crate) struct Slots<T>(Box<[UnsafeCell<MaybeUninit<T>>]>);

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self((0..per_line::<T>()).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect())
    }

    /// Puts `item` into `slot`.
    ///
    /// # Safety
    /// Nobody else touches that slot now.
    pub(crate) unsafe fn write(&self, slot: usize, item: T) {
        self.0[slot].with_mut(|place| {
            // SAFETY: 1. `place` points to the slot's value. 2. By contract nobody else touches it.
            unsafe { place.write(MaybeUninit::new(item)) };
        });
    }

    /// Moves the item out of `slot`. The consumer only reads a line.
    ///
    /// # Safety
    /// As [`write`](Self::write), and `slot` holds an item that is not taken a second time.
    pub(crate) unsafe fn take(&self, slot: usize) -> T {
        self.0[slot].with(|place| {
            // SAFETY: 1. `MaybeUninit<T>` has the layout of `T`. 2. By contract there is an item,
            // nobody writes the slot, and this is the item's only move.
            unsafe { place.cast::<T>().read() }
        })
    }
}
