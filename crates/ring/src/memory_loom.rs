//! `Memory` for loom, which tracks a line's bytes word by word, and reports accesses to a word
//! without an order between them.

use std::collections::TryReserveError;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;

use loom::cell::UnsafeCell;

use crate::record::{LINE_BYTES, WORD_BYTES, is_dense};
use crate::sync::{AtomicU64, Ordering};

const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;

pub(crate) struct Memory<T> {
    headers: Box<[AtomicU64]>,
    /// One entry per word, headers included. Items touch all words that they lie in.
    words: Box<[Word]>,
    /// Indexed by the byte at which an item starts.
    items: Box<[std::cell::UnsafeCell<MaybeUninit<T>>]>,
}

/// The lines of a [`Memory`].
pub(crate) type Lines<'a, T> = &'a Memory<T>;

/// A word's accesses, as loom sees them. Both ends may read and write a header at the same time.
/// But if the word holds items, a write of these excludes both, and a read excludes a write of the
/// header.
#[derive(Default)]
struct Word {
    header_reads: UnsafeCell<()>,
    header_writes: UnsafeCell<()>,
}

impl<T> Memory<T> {
    pub(crate) fn new(line_count: usize) -> Result<Self, TryReserveError> {
        let empty = || std::cell::UnsafeCell::new(MaybeUninit::uninit());
        Ok(Self {
            headers: (0..line_count).map(|_| AtomicU64::new(0)).collect(),
            words: (0..line_count * LINE_WORDS).map(|_| Word::default()).collect(),
            items: (0..line_count * LINE_BYTES).map(|_| empty()).collect(),
        })
    }

    pub(crate) fn lines(&self) -> Lines<'_, T> {
        self
    }

    pub(crate) fn count(&self) -> usize {
        self.headers.len()
    }

    /// # Safety
    /// The line is one of the ring's.
    pub(crate) unsafe fn header(&self, line_index: usize, order: Ordering) -> usize {
        let count = self.headers[line_index].load(order) as usize;
        self.words[line_index * LINE_WORDS].header_reads.with(|_| ());
        count
    }

    /// # Safety
    /// The line is one of the ring's.
    pub(crate) unsafe fn set_header(&self, line_index: usize, count: usize, order: Ordering) {
        self.words[line_index * LINE_WORDS].header_writes.with_mut(|_| ());
        self.headers[line_index].store(count as u64, order);
    }

    /// The byte at which an item starts, and the words that it lies in. For loom, a large item lies
    /// in one line.
    fn place(&self, line_index: usize, slot: usize) -> (usize, RangeInclusive<usize>) {
        let bytes = if is_dense::<T>() { size_of::<T>() } else { WORD_BYTES };
        let first = line_index * LINE_BYTES + WORD_BYTES + slot * bytes;
        (first, first / WORD_BYTES..=(first + bytes.max(1) - 1) / WORD_BYTES)
    }

    /// # Safety
    /// Nothing else touches that slot now.
    pub(crate) unsafe fn write(&self, line_index: usize, slot: usize, item: T) {
        let (first, words) = self.place(line_index, slot);
        for word in &self.words[words] {
            word.header_reads.with_mut(|_| ());
            word.header_writes.with_mut(|_| ());
        }
        // SAFETY: 1. The place is one of the vector's. 2. By contract nothing else touches it.
        unsafe { (*self.items[first].get()).write(item) };
    }

    /// # Safety
    /// As for [`write`](Self::write), and the slot holds an item that is not taken a second time.
    pub(crate) unsafe fn take(&self, line_index: usize, slot: usize) -> T {
        let (first, words) = self.place(line_index, slot);
        for word in &self.words[words] {
            word.header_reads.with(|_| ());
            word.header_writes.with(|_| ());
        }
        // SAFETY: 1. The place is one of the vector's. 2. By contract there is an item, nothing writes the
        // slot, and this is the item's only move.
        unsafe { (*self.items[first].get()).assume_init_read() }
    }

    /// # Safety
    /// As for [`write`](Self::write) for each slot, and `from` points to `count` items, which are
    /// not used again.
    pub(crate) unsafe fn copy_in(
        &self,
        line_index: usize,
        slot: usize,
        from: *const T,
        count: usize,
    ) {
        for offset in 0..count {
            // SAFETY: 1. By contract there are `count` items. 2. As in `write`, by contract.
            unsafe { self.write(line_index, slot + offset, from.add(offset).read()) };
        }
    }

    /// # Safety
    /// As for [`take`](Self::take) for each slot, and `to` points to room for `count` items.
    pub(crate) unsafe fn copy_out(&self, line_index: usize, slot: usize, to: *mut T, count: usize) {
        for offset in 0..count {
            // SAFETY: 1. By contract there is room for `count` items. 2. As in `take`, by contract.
            unsafe { to.add(offset).write(self.take(line_index, slot + offset)) };
        }
    }

    pub(crate) fn claim(&self, _line_index: usize) {}

    pub(crate) fn claim_all(&self, _indices: std::ops::Range<usize>) {}

    pub(crate) fn fetch(&self, _line_index: usize) {}
}

/// Does nothing: loom has no cache.
pub fn prefetch<T>(_place: *const T) {}
