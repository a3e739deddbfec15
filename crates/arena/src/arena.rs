//! The arena, which is also an allocator.

use std::fmt;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use allocator_api2::alloc::{AllocError, Allocator, Layout};

use crate::error::{ArenaError, Refusal};
use crate::free::FreeRanges;
use crate::mapping::Mapping;
use crate::obtain::{check, obtain, prefer};
use crate::obtained::{Obtained, Progress};
use crate::request::{Pages, Request};

/// Every allocation starts on a cache line of its own, and its size is a multiple of this.
pub(crate) const LINE_BYTES: usize = 64;

/// Bytes reserved by [`Arena::on`].
const DEFAULT_BYTES: usize = 1 << 30;

/// A region of memory that collections allocate from.
///
/// This is a handle: its clones share the same region, which is unmapped with the last of them.
/// Each collection in the region holds a clone, so its memory outlives it.
///
/// It may be shared between threads. Allocation takes a lock, so it belongs into the set-up of a
/// core, not into its packet path.
#[derive(Clone)]
pub struct Arena {
    region: Arc<Region>,
}

struct Region {
    /// The free offsets of `mapping`. An allocation is a range that was taken from here and not
    /// given back: no two overlap, and all lie inside the mapping.
    free: Mutex<FreeRanges>,
    mapping: Mapping,
}

impl Arena {
    /// Maps the memory of `request`, and reports the result.
    ///
    /// Tries kinds of pages in the order of the request. Skips kinds that the kernel refuses, or
    /// promises but does not deliver, and kinds that can't fulfil the request's hard requirements
    /// (`lock`, `node_only`).
    ///
    /// # Errors
    /// [`ArenaError`]: the request is for 0 bytes, names a node that doesn't exist, or can't be
    /// fulfilled with any kind of pages. Each message has the remedy.
    pub fn new(request: Request) -> Result<(Self, Obtained), ArenaError> {
        Self::with_progress(request, |_| ())
    }

    /// [`Arena::new`] that calls `progress` after each step of populating the memory. That may take
    /// seconds a GiB if the machine hasn't used the memory for long.
    ///
    /// A step is 64 MiB, or one page if pages are larger. The last one ends with `done_bytes` equal
    /// to `total_bytes`. There are no steps if the memory is not populated now.
    ///
    /// # Errors
    /// As for [`Arena::new`].
    ///
    /// # Example
    ///
    /// ```
    /// use hotloop_arena::{Arena, Request};
    ///
    /// # fn main() -> Result<(), hotloop_arena::ArenaError> {
    /// let (arena, obtained) = Arena::with_progress(Request::new(4 << 20), |step| {
    ///     eprintln!("{}: {} of {} bytes", step.pages, step.done_bytes, step.total_bytes);
    /// })?;
    /// # assert_eq!(arena.bytes(), obtained.bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_progress(
        request: Request,
        mut progress: impl FnMut(Progress),
    ) -> Result<(Self, Obtained), ArenaError> {
        let Request { bytes, node, .. } = request;
        check(bytes, node)?;
        if request.pages.is_empty() {
            return Err(ArenaError::NoPages);
        }
        let mut tried = Vec::new();
        for &pages in &request.pages {
            match obtain(&request, pages, &mut progress) {
                Ok((mapping, obtained)) => return Ok((Self::over(mapping), obtained)),
                Err(refusal) => tried.push((pages, refusal)),
            }
        }
        Err(ArenaError::NoMemory { bytes, tried })
    }

    /// An arena on `node`, or on the node that first touches the memory: 1 GiB of addresses on
    /// transparent huge pages, or small ones if there are none.
    ///
    /// Addresses cost nothing; memory is populated when first touched, in steps of 2 MiB. Use
    /// [`Arena::new`] if the packet path must not be the first to touch the memory, for larger
    /// regions, or for huge pages from the reserved pool.
    ///
    /// # Errors
    /// [`ArenaError`]: the node doesn't exist, or the address space is too small (`ulimit -v`).
    pub fn on(node: Option<u32>) -> Result<Self, ArenaError> {
        check(DEFAULT_BYTES, node)?;
        let mut tried = Vec::new();
        for pages in [Pages::Transparent, Pages::Small] {
            match Mapping::new(DEFAULT_BYTES, pages) {
                Ok(mapping) => {
                    prefer(&mapping, node);
                    return Ok(Self::over(mapping));
                }
                Err(errno) => tried.push((pages, Refusal::Kernel(errno))),
            }
        }
        Err(ArenaError::NoMemory { bytes: DEFAULT_BYTES, tried })
    }

    fn over(mapping: Mapping) -> Self {
        let free = Mutex::new(FreeRanges::new(mapping.bytes()));
        Self { region: Arc::new(Region { free, mapping }) }
    }

    /// Size of the region in bytes.
    pub fn bytes(&self) -> usize {
        self.region.mapping.bytes()
    }

    /// Allocated bytes, with each allocation rounded up to 64.
    pub fn used_bytes(&self) -> usize {
        self.bytes() - self.free().free_bytes()
    }

    /// Size in bytes of the largest possible allocation with an alignment of at most 64.
    pub fn free_bytes_max(&self) -> usize {
        self.free().largest_bytes()
    }

    fn free(&self) -> MutexGuard<'_, FreeRanges> {
        // The data under the lock is consistent at every point that could panic.
        self.region.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes that an allocation of `layout` takes up.
pub(crate) fn taken_bytes(layout: Layout) -> Option<usize> {
    layout.size().checked_next_multiple_of(LINE_BYTES)
}

// SAFETY: 1. An allocation is a range of the mapping (`Region::free`) that is handed out once until
// it is given back: it is valid and writable, and overlaps no other allocation. 2. The mapping stays
// in place until the last clone of the handle is dropped, wherever handles move. 3. All clones share
// one `Region`, so one frees what another allocated. 4. Every layout with a size between the requested and the
// returned one takes up the same bytes (`taken_bytes`), so it fits.
unsafe impl Allocator for Arena {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let bytes = taken_bytes(layout).ok_or(AllocError)?;
        if bytes == 0 {
            let align = NonZero::new(layout.align()).ok_or(AllocError)?;
            return Ok(NonNull::slice_from_raw_parts(NonNull::without_provenance(align), 0));
        }
        let mapping = &self.region.mapping;
        let align = layout.align().max(LINE_BYTES);
        let offset = self.free().take(bytes, align, mapping.addr().get()).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(mapping.at(offset), bytes))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        let bytes = taken_bytes(layout).expect("the layout of an allocation");
        if bytes > 0 {
            let offset = block.addr().get() - self.region.mapping.addr().get();
            self.free().give(offset, bytes);
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("bytes", &self.bytes())
            .field("used_bytes", &self.used_bytes())
            .finish()
    }
}
