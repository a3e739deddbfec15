//! The memory of a ring: cache lines with a header and items.

use std::cell::UnsafeCell;
use std::collections::TryReserveError;
use std::mem::{ManuallyDrop, MaybeUninit, offset_of};
use std::ops::Range;

use crate::sync::{AtomicU64, Ordering};

/// Lines. This type doesn't know which slots hold items.
pub(crate) struct Memory<T>(Box<[Line<T>]>);

/// The lines of a [`Memory`].
pub(crate) struct Lines<'a, T>(&'a [Line<T>]);

/// A header and the items after it: 64 bytes for items of at most 56 bytes and alignment 8. Such
/// items are packed through the lines that follow: in a record of several lines, items also use the
/// headers' bytes of all lines but the first.
#[repr(C, align(64))]
struct Line<T> {
    header: AtomicU64,
    space: UnsafeCell<Space<T>>,
}

/// Never read as a whole: only provides size and alignment. Its size is a multiple of its alignment
/// and of `T`'s, so `per_line::<T>()` items of at most 56 bytes fit into `words`, and one item that
/// is larger or more strictly aligned into `item`.
#[repr(C)]
union Space<T> {
    words: [MaybeUninit<u64>; 7],
    item: ManuallyDrop<MaybeUninit<T>>,
}

impl<T> Memory<T> {
    /// Lines with headers of 0 and no items. Touches them, so that the packet path isn't the first
    /// to do it.
    pub(crate) fn new(line_count: usize) -> Result<Self, TryReserveError> {
        let mut lines = Vec::new();
        lines.try_reserve_exact(line_count)?;
        lines.extend((0..line_count).map(|_| {
            let mut space = Space { words: [MaybeUninit::zeroed(); 7] };
            if size_of::<T>() > size_of::<[u64; 7]>() {
                space.item = ManuallyDrop::new(MaybeUninit::zeroed());
            }
            Line { header: AtomicU64::new(0), space: UnsafeCell::new(space) }
        }));
        Ok(Self(lines.into_boxed_slice()))
    }

    /// All lines, by value, so that users keep address and count in registers.
    #[inline(always)]
    pub(crate) fn lines(&self) -> Lines<'_, T> {
        Lines(&self.0)
    }
}

impl<T> Clone for Lines<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Lines<'_, T> {}

impl<T> Lines<'_, T> {
    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        self.0.len()
    }

    /// The header of a line in which a record starts or will start.
    ///
    /// # Safety
    /// The line is one of the ring's.
    #[inline(always)]
    pub(crate) unsafe fn header(self, line_index: usize, order: Ordering) -> usize {
        // SAFETY: 1. By contract the index is in bounds.
        unsafe { self.0.get_unchecked(line_index) }.header.load(order) as usize
    }

    /// Writes the header of a line.
    ///
    /// # Safety
    /// The line is one of the ring's.
    #[inline(always)]
    pub(crate) unsafe fn set_header(self, line_index: usize, count: usize, order: Ordering) {
        // SAFETY: 1. By contract the index is in bounds.
        unsafe { self.0.get_unchecked(line_index) }.header.store(count as u64, order);
    }

    /// Address of the item `slot` of the record that starts in this line.
    #[inline(always)]
    fn place(self, line_index: usize, slot: usize) -> *mut T {
        debug_assert!(line_index < self.0.len(), "a line of the ring");
        // Derived from the whole slice, since a record may extend through later lines. All of a
        // line is in `UnsafeCell`s: a shared reference allows writes.
        let line = self.0.as_ptr().wrapping_add(line_index);
        line.wrapping_byte_add(offset_of!(Line<T>, space)).cast::<T>().cast_mut().wrapping_add(slot)
    }

    /// Puts `item` into a slot.
    ///
    /// # Safety
    /// The slot lies in the ring's lines, and nothing else touches its bytes now.
    #[inline(always)]
    pub(crate) unsafe fn write(self, line_index: usize, slot: usize, item: T) {
        // SAFETY: 1. By contract the place is in the lines, which are aligned for `T`. 2. By contract no
        // other thread reads or writes it now.
        unsafe { self.place(line_index, slot).write(item) }
    }

    /// Moves the item out of a slot.
    ///
    /// # Safety
    /// As for [`write`](Self::write), and the slot holds an item that is not taken a second time.
    #[inline(always)]
    pub(crate) unsafe fn take(self, line_index: usize, slot: usize) -> T {
        // SAFETY: 1. As in `write`. 2. By contract there is an item, and this is its only move.
        unsafe { self.place(line_index, slot).read() }
    }

    /// Moves `count` items into a record, from `slot` on.
    ///
    /// # Safety
    /// As for [`write`](Self::write) for each slot, and `from` points to `count` items, which are
    /// not used again.
    #[inline(always)]
    pub(crate) unsafe fn copy_in(
        self,
        line_index: usize,
        slot: usize,
        from: *const T,
        count: usize,
    ) {
        let place = self.place(line_index, slot);
        // SAFETY: 1. As in `write`, for each slot. 2. By contract there are `count` items at
        // `from`. 3. They aren't in the ring's memory: nothing outside refers to that.
        unsafe { place.copy_from_nonoverlapping(from, count) }
    }

    /// Moves `count` items out of a record, from `slot` on.
    ///
    /// # Safety
    /// As for [`take`](Self::take) for each slot, and `to` points to room for `count` items.
    #[inline(always)]
    pub(crate) unsafe fn copy_out(self, line_index: usize, slot: usize, to: *mut T, count: usize) {
        let place = self.place(line_index, slot);
        // SAFETY: 1. As in `take`, for each slot. 2. By contract there is room for `count` items at
        // `to`. 3. The room isn't in the ring's memory: nothing outside refers to that.
        unsafe { place.copy_to_nonoverlapping(to, count) }
    }

    /// Starts fetching a line for writing: the other core holds it, and stores would wait for each
    /// line in turn. Does nothing past the last line.
    #[inline(always)]
    pub(crate) fn claim(self, line_index: usize) {
        if let Some(line) = self.0.get(line_index) {
            claim(line);
        }
    }

    /// [`claim`](Self::claim) for several lines. Does nothing if one is past the last line.
    #[inline(always)]
    pub(crate) fn claim_all(self, indices: Range<usize>) {
        self.0.get(indices).into_iter().flatten().for_each(|line| claim(line));
    }

    /// Starts fetching a line for reading. Without this, the only lines on their way from the other
    /// core are those that the processor finds by running ahead. Does nothing past the last line.
    #[inline(always)]
    pub(crate) fn fetch(self, line_index: usize) {
        if let Some(line) = self.0.get(line_index) {
            prefetch(line);
        }
    }
}

/// Starts fetching a cache line for writing.
#[inline(always)]
fn claim<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: 1. The instruction is a hint: it changes neither memory nor registers, never faults,
    // and does nothing on processors that don't know it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

/// Starts fetching the cache line of `place` for reading without waiting for it: for the memory
/// that items refer to, which the core that pushed them has just written. Does nothing on
/// processors other than x86-64.
#[inline(always)]
pub fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: 1. The instruction is a hint: it changes neither memory nor registers, and never faults,
    // whatever the address.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) place, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::per_line;

    #[test]
    fn lines_are_one_cache_line_up_to_56_bytes() {
        assert_eq!((size_of::<Line<()>>(), per_line::<()>()), (64, 7));
        assert_eq!((size_of::<Line<u8>>(), per_line::<u8>()), (64, 56));
        assert_eq!((size_of::<Line<u64>>(), per_line::<u64>()), (64, 7));
        assert_eq!((size_of::<Line<[u64; 3]>>(), per_line::<[u64; 3]>()), (64, 2));
        assert_eq!((size_of::<Line<[u64; 7]>>(), per_line::<[u64; 7]>()), (64, 1));
        assert_eq!((size_of::<Line<[u64; 8]>>(), per_line::<[u64; 8]>()), (128, 1));
        assert_eq!((size_of::<Line<u128>>(), per_line::<u128>()), (128, 1));
    }
}
