//! Replaces `mapping.rs` under Miri, which has no mappings with pages of their own: memory from the
//! allocator, so that everything built on a mapping is checked.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::num::NonZero;
use std::ptr::NonNull;

use rustix::io::{Errno, Result};

use crate::request::{Pages, SMALL_BYTES};

/// Zeroed memory, given back when dropped.
pub(crate) struct Mapping {
    /// Invariant: allocated with `layout`, whose size is not 0, by [`new`](Self::new).
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: 1. Memory of the allocator belongs to the process, not to a thread. 2. `Mapping` is its
// only owner, and hands out its address only.
unsafe impl Send for Mapping {}

// SAFETY: 1. `&Mapping` only allows reading its fields.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Like the other `new`, for small pages only.
    pub(crate) fn new(bytes: usize, pages: Pages) -> Result<Self> {
        if pages != Pages::Small || bytes == 0 {
            return Err(Errno::NOMEM);
        }
        let layout = Layout::from_size_align(bytes, SMALL_BYTES).map_err(|_| Errno::NOMEM)?;
        // SAFETY: 1. The layout's size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::NOMEM)?;
        Ok(Self { start, layout })
    }

    /// The address of `offset`, with the right to access the whole region.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        self.start.map_addr(|addr| addr.checked_add(offset).expect("an offset in the region"))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }

    pub(crate) fn addr(&self) -> NonZero<usize> {
        self.start.addr()
    }

    pub(crate) fn populate(&self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    pub(crate) fn lock(&self) -> Result<()> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn prefer_node(&self, _: u32) -> Result<()> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn first_node(&self) -> Result<u32> {
        Err(Errno::NOSYS)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: 1. By the invariant, the memory was allocated with this layout, and is given back
        // once.
        // 2. The arena that owns the mapping is gone, and with it everything that was allocated
        //    from it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
