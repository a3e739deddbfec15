//! Cache lines that carry items and say how many they hold.

use std::sync::atomic::compiler_fence;

use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering, order};

/// How much a lap adds to a header: the count of items below it takes a byte.
const LAP: u64 = 1 << 8;

/// The bytes of a line that its header leaves for items.
const PAYLOAD_BYTES: usize = 56;

/// How many items a line carries: as many as fit beside its header, and one at least.
pub(crate) const fn per_line<T>() -> usize {
    if align_of::<T>() > align_of::<u64>() || size_of::<T>() > PAYLOAD_BYTES {
        return 1;
    }
    if size_of::<T>() == 0 { 7 } else { PAYLOAD_BYTES / size_of::<T>() }
}

/// Items and how many of them there are: 64 bytes where items are of at most 56, so that both cross
/// to the other core together.
///
/// `header` is the lap's tag plus the count of items that were put in during that lap. The count
/// only grows within a lap, and slots below it hold what was put in; the consumer knows how many of
/// those it has taken. So an item is in the slots that are below the count and not taken yet.
#[repr(C, align(64))]
pub(crate) struct Line<T> {
    header: AtomicU64,
    pub(crate) slots: Slots<T>,
}

impl<T> Line<T> {
    /// A line as the lap before `first` left it: full, and all taken.
    pub(crate) fn before(first: Cursor) -> Self {
        let header = first.tag.wrapping_sub(LAP) + per_line::<T>() as u64;
        Self { header: AtomicU64::new(header), slots: Slots::new() }
    }

    /// Shows the first `count` items to the consumer. For the producer only.
    #[inline(always)]
    pub(crate) fn show(&self, tag: u64, count: usize) {
        self.header.store(tag + count as u64, order::show_line());
    }

    /// How many items were put in during the lap of `tag`, up to [`per_line`]. The caller may read
    /// them.
    #[inline(always)]
    pub(crate) fn shown_count(&self, tag: u64) -> usize {
        Self::count(self.header.load(order::see_line()), tag)
    }

    /// As [`shown_count`](Self::shown_count), without leave to read the items.
    pub(crate) fn known_count(&self, tag: u64) -> usize {
        Self::count(self.header.load(Ordering::Relaxed), tag)
    }

    /// A header of the lap before lies far above the tag, when the tag is taken off it.
    #[inline(always)]
    fn count(header: u64, tag: u64) -> usize {
        let count = header.wrapping_sub(tag);
        if count <= per_line::<T>() as u64 { count as usize } else { 0 }
    }
}

/// Where an end stands: a slot of a line, in a lap.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    /// Below the count of lines.
    pub(crate) line_index: usize,
    /// Below [`per_line`], except while a line is being finished.
    pub(crate) slot: usize,
    /// The lap, shifted past the count: it wraps, and only a lap and the one before it need differ.
    pub(crate) tag: u64,
    /// The items in all lines before this one, in this lap and those before; wraps.
    pub(crate) behind: u64,
}

impl Cursor {
    /// The first slot of all, in the lap of this number.
    pub(crate) const fn start(lap: u64) -> Self {
        Self { line_index: 0, slot: 0, tag: lap.wrapping_mul(LAP), behind: 0 }
    }

    /// The items before this slot since the ring was made; wraps.
    #[inline(always)]
    pub(crate) const fn count(&self) -> u64 {
        self.behind.wrapping_add(self.slot as u64)
    }

    /// The same place `count` laps later.
    pub(crate) const fn skip_laps(self, count: u64) -> Self {
        Self { tag: self.tag.wrapping_add(count.wrapping_mul(LAP)), ..self }
    }

    /// The line `count` lines further on; less than a lap.
    pub(crate) const fn skip_lines(self, count: usize, line_count: usize) -> Self {
        let line_index = self.line_index + count;
        if line_index < line_count {
            Self { line_index, ..self }
        } else {
            Self { line_index: line_index - line_count, ..self.skip_laps(1) }
        }
    }

    /// Goes to the first slot of the next line, of `line_count` lines of `per_line` items.
    #[inline(always)]
    pub(crate) const fn next_line(&mut self, line_count: usize, per_line: usize) {
        self.slot = 0;
        self.behind = self.behind.wrapping_add(per_line as u64);
        self.line_index += 1;
        if self.line_index == line_count {
            self.line_index = 0;
            self.tag = self.tag.wrapping_add(LAP);
        }
    }
}

/// The slot that an end has come to in its line. It lives in a register, and goes back into the
/// cursor when the line is done with, or a closure panics.
pub(crate) struct Reached<'a> {
    pub(crate) slot: usize,
    pub(crate) cursor: &'a mut Cursor,
}

impl Drop for Reached<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.cursor.slot = self.slot;
    }
}

/// How many lines ahead the producer fetches a line that it will write.
const CLAIM_AHEAD: usize = 4;

/// How many lines ahead the consumer fetches a line that it will read. It must be further than the
/// producer claims: in a ring that is nearly empty, the consumer would take lines away from a producer that
/// is about to write them. One that the producer has not claimed is still in the consumer's cache.
const FETCH_AHEAD: usize = 12;

/// Starts fetching a line for writing, some way after the one of `index`: the other core holds it, and
/// stores would wait for each line in turn. Past the last line nothing is fetched.
#[inline(always)]
pub(crate) fn claim<T>(lines: &[Line<T>], index: usize) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    if let Some(line) = lines.get(index + CLAIM_AHEAD) {
        // SAFETY: 1. The instruction is a hint: it changes neither memory nor registers, never
        // faults, and does nothing where the processor doesn't know it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
    let _ = (lines, index, CLAIM_AHEAD);
}

/// Starts fetching a line for reading, some way after the one of `index`. Without it, only so many lines are
/// on their way from the other core as the processor finds by running ahead, and it stops at each line
/// that is not full. Past the last line nothing is fetched.
#[inline(always)]
pub(crate) fn fetch<T>(lines: &[Line<T>], index: usize) {
    if let Some(line) = lines.get(index + FETCH_AHEAD) {
        prefetch(line);
    }
}

/// Starts fetching the cache line of `place` for reading, and doesn't wait for it: for the memory that items
/// refer to, which the core that pushed them has just written. Does nothing on processors other than x86-64.
#[inline(always)]
pub fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    // SAFETY: 1. The instruction is a hint: it changes neither memory nor registers, and never faults,
    // whatever the address.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) place, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
    let _ = place;
}

/// Runs a step of a loop over a part of a line, at most a few items: it isn't worth the set-up of a
/// loop over many, and this keeps the compiler from that.
#[inline(always)]
pub(crate) fn few<R>(step: impl FnOnce() -> R) -> R {
    compiler_fence(Ordering::SeqCst);
    step()
}
