//! Records: how many items lie together under one header.
//!
//! A record begins with a line's header, which is the count of its items, and they follow. It is of one of two
//! kinds:
//!
//! - A line that fills up: its count grows with each push, up to [`per_line`], at which it ends. A small
//!   burst takes a part of a line so, and the next one goes on in it.
//! - A long record: items that a push has in one piece, shown at once, over as many lines as they take: at least
//!   [`LONG_LINES`] lines' items, or as many as fill all lines up to the last of the memory. Only the first line has a
//!   header, so the items lie in one piece. The rest of the last line stays empty.
//!
//! The next record begins in the next line, whose header is 0 before the one ahead of it is shown in full.
//! A long record doesn't wrap around the end of the memory.

use std::sync::atomic::{Ordering, compiler_fence};

/// The bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// The bytes of a header, and the alignment of items that share lines.
pub(crate) const WORD_BYTES: usize = 8;

/// The bytes of a line that its header leaves for items.
const PAYLOAD_BYTES: usize = LINE_BYTES - WORD_BYTES;

/// As many lines' items, or more, become a long record. Its last line is a whole one for as little as one
/// item: so a ring needs one line more for each this many. Loom has fewer items to go through.
pub(crate) const LONG_LINES: usize = if cfg!(loom) { 1 } else { 4 };

/// How many lines ahead the producer fetches lines that fill up. With a long record, it fetches the lines of the one
/// after the next.
pub(crate) const CLAIM_AHEAD: usize = 4;

/// How many lines ahead the consumer fetches lines that it will read. It must be further than the
/// producer claims: in a ring that is nearly empty, the consumer would take lines away from a producer that
/// is about to write them. One that the producer has not claimed is still in the consumer's cache.
pub(crate) const FETCH_AHEAD: usize = 12;

/// Whether items lie one after the other over lines; others have a line each, which may be larger.
pub(crate) const fn is_dense<T>() -> bool {
    align_of::<T>() <= WORD_BYTES && size_of::<T>() <= PAYLOAD_BYTES
}

/// The bytes that an item counts for.
const fn item_bytes<T>() -> usize {
    if size_of::<T>() == 0 { WORD_BYTES } else { size_of::<T>() }
}

/// How many items a line carries beside its header, one at least.
pub(crate) const fn per_line<T>() -> usize {
    if is_dense::<T>() { PAYLOAD_BYTES / item_bytes::<T>() } else { 1 }
}

/// From how many items on a push makes a long record.
pub(crate) const fn long_count<T>() -> usize {
    if is_dense::<T>() { LONG_LINES * per_line::<T>() } else { usize::MAX }
}

/// The most items of a record.
pub(crate) const fn record_max<T>() -> usize {
    if is_dense::<T>() { 4 * LONG_LINES * per_line::<T>() } else { 1 }
}

/// How many items a long record of so many lines carries at most.
#[inline(always)]
pub(crate) const fn items_in<T>(line_count: usize) -> usize {
    (line_count * LINE_BYTES - WORD_BYTES) / item_bytes::<T>()
}

/// How many lines a record of so many items takes.
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

/// Where an end stands: at an item of a record.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    /// The line that the record starts in. Invariant: one of the ring's, which has one at least. `next_record` goes
    /// to one that is.
    pub(crate) line_index: usize,
    /// The item of the record.
    pub(crate) slot: usize,
    /// The items in all records before this one; wraps.
    pub(crate) behind: u64,
}

impl Cursor {
    /// The first slot of all.
    pub(crate) const START: Self = Self { line_index: 0, slot: 0, behind: 0 };

    /// The items before this slot since the ring was made; wraps.
    #[inline(always)]
    pub(crate) const fn count(&self) -> u64 {
        self.behind.wrapping_add(self.slot as u64)
    }

    /// Goes to the first slot of the next record, from one of `count` items in `taken_count` of the `line_count`
    /// lines.
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

/// Runs a step of a loop over a part of a line, at most a few items: it isn't worth the set-up of a
/// loop over many, and this keeps the compiler from that.
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
