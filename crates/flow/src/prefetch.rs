//! Prefetching of memory before it is read.

/// Asks the processor to fetch the cache line at the start of `place` without waiting for it: for
/// data that the flows of a burst lead to. Does nothing on processors without such an instruction.
#[inline(always)]
pub fn prefetch_line<T>(place: &T) {
    prefetch(std::ptr::from_ref(place));
}

/// [`prefetch_line`] of the item with this index. There may be none: a prefetch never faults, so callers need not
/// check.
#[inline(always)]
pub fn prefetch_at<T>(items: &[T], index: usize) {
    prefetch(items.as_ptr().wrapping_add(index));
}

/// Asks the processor to fetch the line of `place` without waiting for it. Does nothing on
/// processors without such an instruction.
#[inline(always)]
pub(crate) fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: 1. A prefetch reads nothing that the program sees, and never faults, whatever the
        // address. 2. The instruction belongs to SSE, which is part of every x86_64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: 1. A prefetch reads nothing that the program sees, never faults, whatever the
        // address, and changes neither registers, flags nor the stack.
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{place}]",
                place = in(reg) place,
                options(nostack, preserves_flags, readonly),
            )
        }
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = place;
}

/// [`prefetch`] for all lines of the value at `place`, at most four: the processor's own
/// prefetching streams through larger values.
#[inline(always)]
pub(crate) fn prefetch_all<T>(place: *const T) {
    const LINE_BYTES: usize = 64;
    for line in 0..size_of::<T>().div_ceil(LINE_BYTES).min(4) {
        prefetch(place.wrapping_byte_add(line * LINE_BYTES));
    }
}
