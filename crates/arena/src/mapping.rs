//! Memory from the kernel: the one place that maps and unmaps.

use std::num::NonZero;
use std::ptr::{self, NonNull};

use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::request::{HUGE_BYTES, Pages, SMALL_BYTES};

/// A readable and writable region of anonymous memory, unmapped when dropped.
pub(crate) struct Mapping {
    /// Start of the region, aligned to its pages.
    start: NonNull<u8>,
    /// Length of the region.
    bytes: usize,
    /// What was mapped: the region, and what lies around it unused.
    mapped: NonNull<u8>,
    mapped_bytes: usize,
}

// SAFETY: 1. A mapping belongs to the process, not to a thread. 2. `Mapping` is the only owner of
// its region, and hands out its address only.
unsafe impl Send for Mapping {}

// SAFETY: 1. All that `&Mapping` allows is reading its fields and making system calls on the region
// that leave its content alone.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes`, a multiple of the pages' unit, on such pages. Nothing is taken from memory
    /// yet; of huge pages as many are reserved.
    pub(crate) fn new(bytes: usize, pages: Pages) -> Result<Self> {
        match pages {
            Pages::Huge => {
                let huge = MapFlags::HUGETLB | MapFlags::HUGE_2MB;
                let start = map(bytes, ProtFlags::READ | ProtFlags::WRITE, huge)?;
                Ok(Self { start, bytes, mapped: start, mapped_bytes: bytes })
            }
            Pages::Transparent => {
                let mapping = Self::guarded(bytes, HUGE_BYTES)?;
                mapping.advise(mapping.bytes, Advice::LinuxHugepage)?;
                Ok(mapping)
            }
            Pages::Small => Self::guarded(bytes, SMALL_BYTES),
        }
    }

    /// Maps `bytes` at a multiple of `align`, between pages that can't be accessed. Those also keep
    /// the kernel from merging the region with a neighbour, so that what it tells of the region is
    /// true of this one.
    fn guarded(bytes: usize, align: usize) -> Result<Self> {
        let mapped_bytes = align.checked_mul(2).and_then(|around| bytes.checked_add(around));
        let mapped_bytes = mapped_bytes.ok_or(Errno::NOMEM)?;
        let mapped = map(mapped_bytes, ProtFlags::empty(), MapFlags::NORESERVE)?;
        // The next multiple, so at least a page and at most `align` bytes lie before the region.
        let skipped_bytes = align - mapped.addr().get() % align;
        // SAFETY: 1. `skipped_bytes <= align < mapped_bytes`: the result lies in the mapping.
        let start = unsafe { mapped.add(skipped_bytes) };
        let mapping = Self { start, bytes, mapped, mapped_bytes };
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: 1. `start..start + bytes` lies in a mapping that nothing else knows of yet.
        unsafe { rustix::mm::mprotect(mapping.start.as_ptr().cast(), bytes, access) }?;
        Ok(mapping)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the region, which is how the kernel names it in `/proc`.
    pub(crate) fn addr(&self) -> NonZero<usize> {
        self.start.addr()
    }

    /// Takes the first `bytes` of the region from memory now.
    pub(crate) fn populate(&self, bytes: usize) -> Result<()> {
        match self.advise(bytes, Advice::LinuxPopulateWrite) {
            // The kernel is older than 5.14.
            Err(Errno::INVAL) => {
                self.touch(bytes);
                Ok(())
            }
            done => done,
        }
    }

    /// Writes to each page of the first `bytes`, which must hold nothing yet: they become 0.
    fn touch(&self, bytes: usize) {
        for offset in (0..bytes.min(self.bytes)).step_by(SMALL_BYTES) {
            // SAFETY: 1. `offset` is below the region's length.
            let byte = unsafe { self.start.add(offset) };
            // SAFETY: 1. The region is writable. 2. Nothing was allocated from it yet: `populate`
            // is called by this crate before the arena is made.
            unsafe { byte.write_volatile(0) };
        }
    }

    fn advise(&self, bytes: usize, advice: Advice) -> Result<()> {
        let bytes = bytes.min(self.bytes);
        // SAFETY: 1. The range lies in this mapping. 2. The advices used here (huge pages, populate)
        // leave what the memory holds as it is.
        unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), bytes, advice) }
    }

    /// Asks that pages of the region that are taken from now on lie on `node`.
    pub(crate) fn prefer_node(&self, node: u32) -> Result<()> {
        const MASK_BITS: usize = 1024;
        const NO_FLAGS: usize = 0;
        let mut mask = [0_u64; MASK_BITS / 64];
        let word = mask.get_mut(node as usize / 64).ok_or(Errno::INVAL)?;
        *word = 1 << (node % 64);
        // SAFETY: mbind(2): 1. The range lies in this mapping; a policy changes where its pages
        // lie, not what they hold. 2. The mask is of `MASK_BITS` bits and outlives the call; the
        // kernel takes one bit less than it is told.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.bytes,
                libc::MPOL_PREFERRED as usize,
                mask.as_ptr(),
                MASK_BITS + 1,
                NO_FLAGS,
            )
        };
        if result == 0 { Ok(()) } else { Err(last_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: 1. It was mapped with this address and length, and is unmapped once. 2. The arena
        // that owns the mapping is gone, and with it all that was allocated from it.
        let unmapped =
            unsafe { rustix::mm::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

fn map(bytes: usize, access: ProtFlags, flags: MapFlags) -> Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | flags;
    // SAFETY: 1. With no address asked for, a new mapping overlaps nothing.
    let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, access, flags) }?;
    NonNull::new(start.cast()).ok_or(Errno::NOMEM)
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
