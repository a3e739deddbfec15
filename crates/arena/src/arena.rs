//! The arena, and the allocator that it is.

use std::fmt;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use allocator_api2::alloc::{AllocError, Allocator, Layout};

use crate::free::FreeRanges;
use crate::mapping::Mapping;
use crate::proc;
use crate::request::{ArenaError, HUGE_BYTES, Obtained, Pages, Refusal, Request};

/// Every allocation starts on a cache line of its own, and is a multiple of one.
const LINE_BYTES: usize = 64;

/// What [`Arena::on`] reserves.
const DEFAULT_BYTES: usize = 1 << 30;

/// A region of memory that collections allocate from.
///
/// A handle: cloning it gives another handle to the same region, which is unmapped with the last
/// one. The collections in it hold one each, so their memory never goes before they do.
///
/// It may be shared between threads; allocation takes a lock, and so belongs into the set-up of a
/// core, not into its packet path.
#[derive(Clone)]
pub struct Arena {
    region: Arc<Region>,
}

struct Region {
    /// Which offsets of `mapping` nobody holds. An allocation is a range that was taken from here
    /// and not given back: no two overlap, and all lie inside the mapping.
    free: Mutex<FreeRanges>,
    mapping: Mapping,
}

impl Arena {
    /// Maps the memory of `request`, and says what came of it.
    ///
    /// Kinds of pages are tried in the order of the request. Those that the kernel refuses, or
    /// promises but does not deliver, are passed over.
    ///
    /// # Errors
    /// [`ArenaError`]: the request is for nothing, names a node that isn't there, or no kind of
    /// pages can be had.
    pub fn new(request: Request) -> Result<(Self, Obtained), ArenaError> {
        let Request { bytes, pages: wanted, node, prefault } = request;
        check(bytes, node)?;
        if wanted.is_empty() {
            return Err(ArenaError::NoPages);
        }
        let mut tried = Vec::new();
        for pages in wanted {
            match obtain(bytes, pages, node, prefault) {
                Ok((mapping, obtained)) => return Ok((Self::over(mapping), obtained)),
                Err(refusal) => tried.push((pages, refusal)),
            }
        }
        Err(ArenaError::NoMemory { bytes, tried })
    }

    /// An arena on `node`, or wherever its memory is first touched: 1 GiB of addresses on
    /// transparent huge pages, or small ones where there are none.
    ///
    /// Addresses cost nothing; memory is taken as it is first touched, in 2 MiB steps. What must
    /// not be touched first in the packet path, or needs more, or huge pages from the reserved
    /// pool, is for [`Arena::new`].
    ///
    /// # Errors
    /// [`ArenaError`]: there is no such node, or not that many addresses (`ulimit -v`).
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

    /// Bytes of the region.
    pub fn bytes(&self) -> usize {
        self.region.mapping.bytes()
    }

    /// Bytes that are allocated, each allocation rounded up to 64.
    pub fn used_bytes(&self) -> usize {
        self.bytes() - self.free().free_bytes()
    }

    /// Bytes of the largest allocation that there is room for, when it asks for no alignment above
    /// 64.
    pub fn free_bytes_max(&self) -> usize {
        self.free().largest_bytes()
    }

    fn free(&self) -> MutexGuard<'_, FreeRanges> {
        // What is behind the lock is whole at every point where something in there could panic.
        self.region.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(bytes: usize, node: Option<u32>) -> Result<(), ArenaError> {
    if bytes == 0 {
        return Err(ArenaError::Empty);
    }
    if bytes > isize::MAX as usize - 2 * HUGE_BYTES {
        return Err(ArenaError::TooLarge { bytes });
    }
    let online = proc::nodes_online();
    match node {
        Some(node) if !proc::is_listed(node, &online) => {
            Err(ArenaError::NoSuchNode { node, online })
        }
        _ => Ok(()),
    }
}

/// Maps memory on `pages`, takes it, and sees what it is.
fn obtain(
    bytes: usize,
    pages: Pages,
    node: Option<u32>,
    prefault: bool,
) -> Result<(Mapping, Obtained), Refusal> {
    let bytes = bytes.next_multiple_of(pages.unit_bytes());
    let mapping = Mapping::new(bytes, pages).map_err(Refusal::Kernel)?;
    prefer(&mapping, node);
    // A reserved page that can't be had after all (a cgroup's limit) would kill the process when it
    // is touched. Of the others, one huge page shows whether the kernel gives any.
    let taken_bytes = if prefault || pages == Pages::Huge { bytes } else { HUGE_BYTES };
    mapping.populate(taken_bytes).map_err(Refusal::Kernel)?;
    let addr = mapping.addr().get();
    let map = proc::smap(addr);
    let is_small = |map: proc::Smap| map.page_bytes < HUGE_BYTES && map.huge_bytes == 0;
    if pages != Pages::Small && map.is_some_and(is_small) {
        return Err(Refusal::OnSmallPages);
    }
    let huge_bytes = map.map(|map| map.huge_bytes);
    Ok((mapping, Obtained { pages, bytes, huge_bytes, node: proc::node(addr) }))
}

/// Asks for memory on `node`.
fn prefer(mapping: &Mapping, node: Option<u32>) {
    if let Some(node) = node {
        // Where the kernel takes no such wish (containers often forbid it), pages lie where they
        // are first touched: as a rule on the node of the core that sets up its memory, the one
        // that is meant. `Obtained::node` tells.
        let _ = mapping.prefer_node(node);
    }
}

/// The bytes that an allocation of `layout` takes up.
fn taken_bytes(layout: Layout) -> Option<usize> {
    layout.size().checked_next_multiple_of(LINE_BYTES)
}

// SAFETY: 1. An allocation is a range of the mapping that `FreeRanges` hands out once until it is
// given back: it is valid, writable and nobody else's. 2. The mapping stays in place until the last
// clone of the handle is dropped, wherever handles move. 3. All clones share one `Region`, so one
// frees what another allocated. 4. A layout whose size lies between what was asked for and what was
// given takes up the same bytes (`taken_bytes`), so that it fits.
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
        // SAFETY: 1. `offset + bytes` is at most the length of the mapping.
        let start = unsafe { mapping.start().add(offset) };
        Ok(NonNull::slice_from_raw_parts(start, bytes))
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
