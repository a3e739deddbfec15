//! The payload of a line: places for items, without knowledge of which hold one.

use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};

use crate::lines::per_line;

/// Room for [`per_line`] items. Those of up to 56 bytes lie densely one after the other.
pub(crate) struct Slots<T>(UnsafeCell<Space<T>>);

/// Never read as a whole: it gives size and alignment. Its size is a multiple of its alignment, and
/// that of `T` too, so `per_line::<T>()` items of at most 56 bytes fit into `words`, and one larger
/// or more strictly aligned item into `item`.
#[repr(C)]
union Space<T> {
    words: [MaybeUninit<u64>; 7],
    item: ManuallyDrop<MaybeUninit<T>>,
}

impl<T> Slots<T> {
    /// Empty places. The memory is written to, so the packet path isn't the first to touch it.
    pub(crate) fn new() -> Self {
        let mut space = Space { words: [MaybeUninit::zeroed(); 7] };
        if size_of::<T>() > size_of::<[u64; 7]>() {
            space.item = ManuallyDrop::new(MaybeUninit::zeroed());
        }
        Self(UnsafeCell::new(space))
    }

    /// The place of `slot`, inside the space for `slot < per_line::<T>()`.
    #[inline(always)]
    fn place(&self, slot: usize) -> *mut T {
        debug_assert!(slot < per_line::<T>(), "a slot of the line");
        self.0.get().cast::<T>().wrapping_add(slot)
    }

    /// Puts `item` into `slot`.
    ///
    /// # Safety
    /// `slot < per_line::<T>()`, and nobody else touches that slot now.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, slot: usize, item: T) {
        // SAFETY: 1. By contract `slot` is one of the places, which `Space` has room for and aligns.
        // 2. By contract no other thread reads or writes it now.
        unsafe { self.place(slot).write(item) }
    }

    /// Moves the item out of `slot`.
    ///
    /// # Safety
    /// As [`write`](Self::write), and `slot` holds an item that is not taken a second time.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, slot: usize) -> T {
        // SAFETY: 1. As in `write`. 2. By contract there is an item, and this is its only move.
        unsafe { self.place(slot).read() }
    }
}
