//! Records: items that lie together under one header.
//!
//! A record begins with a line's header, the count of its items, which follow. There are two kinds:
//!
//! - A line that fills up: its count grows with each push, until the line is full at [`per_line`]
//!   items. A small burst takes a part of a line, and the next one continues in it.
//! - A long record: the items of one push that lie in one piece, shown at once, in consecutive
//!   lines. They must be at least the items of [`LONG_LINES`] lines, or fill all lines up to the
//!   last of the memory. Only the first line has a header, so the items lie in one piece. The rest
//!   of the last line stays empty.
//!
//! The next record begins in the next line. Its header is set to 0 before the record ahead of it is
//! shown in full. A long record doesn't wrap around the end of the memory.

use std::sync::atomic::{Ordering, compiler_fence};

/// The bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// The bytes of a header, and the alignment of items that share lines.
pub(crate) const WORD_BYTES: usize = 8;

/// The bytes of a line that its header leaves for items.
const PAYLOAD_BYTES: usize = LINE_BYTES - WORD_BYTES;

/// Items that fill this many lines or more become a long record. Even one item in its last line
/// takes the whole line, so a ring needs one line more for every `LONG_LINES`. Loom uses fewer
/// items.
pub(crate) const LONG_LINES: usize = if cfg!(loom) { 1 } else { 4 };

/// Number of lines that the producer claims ahead in lines that fill up. For long records, it
/// claims the lines of the one after the next.
pub(crate) const CLAIM_AHEAD: usize = 4;

/// Number of lines that the consumer fetches ahead. This must be further than the producer claims:
/// otherwise, in a nearly empty ring, the consumer would take lines away from a producer that is
/// about to write them. A line that the producer has not claimed is still in the consumer's cache.
pub(crate) const FETCH_AHEAD: usize = 12;

/// Whether items are packed across lines. Others have a line each, which may be larger.
pub(crate) const fn is_dense<T>() -> bool {
    align_of::<T>() <= WORD_BYTES && size_of::<T>() <= PAYLOAD_BYTES
}

/// Bytes that an item takes up.
const fn item_bytes<T>() -> usize {
    if size_of::<T>() == 0 { WORD_BYTES } else { size_of::<T>() }
}

/// Number of items in a line beside its header, at least one.
pub(crate) const fn per_line<T>() -> usize {
    if is_dense::<T>() { PAYLOAD_BYTES / item_bytes::<T>() } else { 1 }
}

/// Minimum number of items of a long record.
pub(crate) const fn long_count<T>() -> usize {
    if is_dense::<T>() { LONG_LINES * per_line::<T>() } else { usize::MAX }
}

/// Maximum number of items in a record.
pub(crate) const fn record_max<T>() -> usize {
    if is_dense::<T>() { 4 * LONG_LINES * per_line::<T>() } else { 1 }
}

/// Maximum number of items in a long record of `line_count` lines.
#[inline(always)]
pub(crate) const fn items_in<T>(line_count: usize) -> usize {
    (line_count * LINE_BYTES - WORD_BYTES) / item_bytes::<T>()
}

/// Number of lines of a record with `count` items.
#[inline(always)]
pub(crate) const fn lines_of<T>(count: usize) -> usize {
    let bytes = item_bytes::<T>();
    match bytes % WORD_BYTES {
        _ if !is_dense::<T>() => 1,
        // The same in words, one of which is the header.
        0 => count * (bytes / WORD_BYTES) / (LINE_BYTES / WORD_BYTES) + 1,
        _ => (WORD_BYTES - 1 + count * bytes) / LINE_BYTES + 1,
    }
}

/// An end's position: an item of a record.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    /// The line in which the record starts. Invariant: one of the ring's lines. There is at least
    /// one, and `next_record` stays within them.
    pub(crate) line_index: usize,
    /// The item's index in the record.
    pub(crate) slot: usize,
    /// Number of items in all records before this one; wraps.
    pub(crate) behind: u64,
}

impl Cursor {
    /// The very first slot.
    pub(crate) const START: Self = Self { line_index: 0, slot: 0, behind: 0 };

    /// Number of items before this slot since the ring was made; wraps.
    #[inline(always)]
    pub(crate) const fn count(&self) -> u64 {
        self.behind.wrapping_add(self.slot as u64)
    }

    /// Moves to the first slot of the next record. The current one has `count` items in
    /// `taken_count` of the `line_count` lines.
    #[inline(always)]
    pub(crate) const fn next_record(
        &mut self,
        count: usize,
        taken_count: usize,
        line_count: usize,
    ) {
        self.slot = 0;
        self.behind = self.behind.wrapping_add(count as u64);
        self.line_index += taken_count;
        if self.line_index == line_count {
            self.line_index = 0;
        }
    }
}

/// Runs a step of a loop over part of a line, a few items at most. Keeps the compiler from setting
/// up a loop for many items, which wouldn't pay off.
#[inline(always)]
pub(crate) fn few<R>(step: impl FnOnce() -> R) -> R {
    compiler_fence(Ordering::SeqCst);
    step()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_takes_no_more_lines_than_its_items_one_line_at_a_time() {
        fn check<T>() {
            for count in per_line::<T>()..per_line::<T>() * 40 {
                let line_count = lines_of::<T>(count);
                assert!(line_count <= count.div_ceil(per_line::<T>()));
                assert!(items_in::<T>(line_count) >= count);
                assert!(line_count == 1 || items_in::<T>(line_count - 1) < count);
                assert!(items_in::<T>(line_count) >= line_count * per_line::<T>());
            }
        }
        check::<()>();
        check::<u8>();
        check::<u64>();
        check::<[u64; 3]>();
        check::<[u32; 5]>();
        check::<[u64; 7]>();
    }
}
