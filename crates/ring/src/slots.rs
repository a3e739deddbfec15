//! The payload of a line: places for items, without knowledge of which hold one.

use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;

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

    /// Copies `items` into the slots from `slot` on.
    ///
    /// # Safety
    /// As [`write`](Self::write) for `items.len()` slots, at least one and all of the line.
    #[inline(always)]
    pub(crate) unsafe fn write_slice(&self, slot: usize, items: &[T])
    where
        T: Copy,
    {
        // SAFETY: 1. As in `write`, for each of the slots. 2. `items` is borrowed from elsewhere:
        // nobody has a reference into the slots, so the two don't overlap.
        unsafe { copy_few(items.as_ptr(), self.place(slot), items.len()) }
    }

    /// Moves the items from `slot` on to `out`, over what is there without dropping it.
    ///
    /// # Safety
    /// As [`take`](Self::take) for `out.len()` slots, at least one and all of the line.
    #[inline(always)]
    pub(crate) unsafe fn take_slice(&self, slot: usize, out: &mut [T]) {
        // SAFETY: 1. As in `take`, for each of the slots. 2. `out` is borrowed from elsewhere, so
        // the two don't overlap.
        unsafe { copy_few(self.place(slot), out.as_mut_ptr(), out.len()) }
    }
}

/// Copies `count` items, without a call for the few of a line: two copies of a size that the
/// compiler knows cover the counts between them, and overlap.
///
/// # Safety
/// As [`ptr::copy_nonoverlapping`], and `count` is in `1..=per_line::<T>()`.
#[inline(always)]
unsafe fn copy_few<T>(from: *const T, to: *mut T, count: usize) {
    match count {
        // SAFETY: 1. By contract.
        1 => unsafe { ptr::copy_nonoverlapping(from, to, 1) },
        // SAFETY: 1. By contract, for two at each end.
        2..4 => unsafe { copy_ends::<T, 2>(from, to, count) },
        // SAFETY: 1. By contract, for four at each end.
        4..=8 => unsafe { copy_ends::<T, 4>(from, to, count) },
        // SAFETY: 1. By contract.
        9.. if per_line::<T>() > 8 => unsafe { ptr::copy_nonoverlapping(from, to, count) },
        _ => debug_assert!(false, "no more than a line's items, and no fewer than one"),
    }
}

/// Copies the first `N` and the last `N` of `count` items.
///
/// # Safety
/// As [`ptr::copy_nonoverlapping`], and `count` is at least `N`.
#[inline(always)]
unsafe fn copy_ends<T, const N: usize>(from: *const T, to: *mut T, count: usize) {
    // SAFETY: 1. By contract.
    unsafe { ptr::copy_nonoverlapping(from, to, N) };
    let rest_count = count - N;
    // SAFETY: 1. By contract, since `rest_count + N` is `count`.
    unsafe {
        ptr::copy_nonoverlapping(from.wrapping_add(rest_count), to.wrapping_add(rest_count), N);
    }
}
