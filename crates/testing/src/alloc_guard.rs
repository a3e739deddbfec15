//! A counting global allocator, to show that a thread does not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::marker::PhantomData;

/// The system's allocator with counts of each thread's calls.
///
/// ```
/// use hotloop_testing::AllocGuard;
///
/// #[global_allocator]
/// static GUARD: AllocGuard = AllocGuard;
///
/// let armed = AllocGuard::arm();
/// let boxed = Box::new(7);
/// assert_eq!(armed.counts().allocated, 1);
/// drop(boxed);
/// assert_eq!(armed.counts().freed, 1);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocGuard;

/// A thread's calls to the allocator. Each count restarts at 0 after `u64::MAX`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AllocCounts {
    /// Calls that returned memory; a reallocation counts as one.
    pub allocated: u64,
    /// Calls that freed memory.
    pub freed: u64,
    /// Bytes requested by all calls together.
    pub allocated_bytes: u64,
}

impl AllocCounts {
    /// Whether the allocator was not called at all.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.allocated == 0 && self.freed == 0
    }
}

/// Counts for the thread that armed the guard, from then on. Stays on that thread.
#[derive(Debug)]
pub struct Armed {
    before: AllocCounts,
    /// Neither `Send` nor `Sync`: the counts belong to the thread.
    thread: PhantomData<*const ()>,
}

thread_local! {
    /// Nothing to initialise and nothing to drop, so that the allocator may access it at any point
    /// of a thread's life.
    static COUNTS: Cell<AllocCounts> = const {
        Cell::new(AllocCounts { allocated: 0, freed: 0, allocated_bytes: 0 })
    };
}

impl AllocGuard {
    /// Starts counting for the calling thread.
    ///
    /// # Panics
    /// If `AllocGuard` is not the program's global allocator, because every count would be zero.
    #[must_use]
    pub fn arm() -> Armed {
        let before = COUNTS.get();
        drop(black_box(Box::new(0_u8)));
        assert_ne!(before, COUNTS.get(), "AllocGuard is not installed as #[global_allocator]");
        Armed { before: COUNTS.get(), thread: PhantomData }
    }
}

impl Armed {
    /// The thread's calls since it armed the guard.
    #[must_use]
    pub fn counts(&self) -> AllocCounts {
        let now = COUNTS.get();
        AllocCounts {
            allocated: now.allocated.wrapping_sub(self.before.allocated),
            freed: now.freed.wrapping_sub(self.before.freed),
            allocated_bytes: now.allocated_bytes.wrapping_sub(self.before.allocated_bytes),
        }
    }
}

fn count_allocation(size_bytes: usize) {
    let mut counts = COUNTS.get();
    counts.allocated = counts.allocated.wrapping_add(1);
    counts.allocated_bytes = counts.allocated_bytes.wrapping_add(size_bytes as u64);
    COUNTS.set(counts);
}

// SAFETY: 1. Every call is passed on to `System`, which fulfils the trait's contract, with the
// arguments unchanged. 2. Counting neither allocates nor unwinds: it wraps, and the thread-local
// cell has nothing to initialise and nothing to drop.
unsafe impl GlobalAlloc for AllocGuard {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller fulfils the contract of `alloc`, which is `System`'s too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller fulfils the contract of `alloc_zeroed`, which is `System`'s too.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size_bytes: usize) -> *mut u8 {
        count_allocation(size_bytes);
        // SAFETY: 1. `memory` came from `System` through this allocator. 2. The caller fulfils the
        // contract of `realloc`, which is `System`'s too.
        unsafe { System.realloc(memory, layout, size_bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let mut counts = COUNTS.get();
        counts.freed = counts.freed.wrapping_add(1);
        COUNTS.set(counts);
        // SAFETY: 1. `memory` came from `System` through this allocator. 2. The caller fulfils the
        // contract of `dealloc`, which is `System`'s too.
        unsafe { System.dealloc(memory, layout) }
    }
}
