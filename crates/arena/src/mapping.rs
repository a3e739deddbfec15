//! Memory from the kernel: the only place that maps and unmaps.

use std::num::NonZero;
use std::ptr::{self, NonNull};

use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags};

use crate::request::{HUGE_BYTES, Pages, SMALL_BYTES};

/// A readable and writable region of anonymous memory, unmapped when dropped.
pub(crate) struct Mapping {
    /// Start of the region, aligned to its pages. `bytes` from here on lie in the mapped range.
    start: NonNull<u8>,
    /// Length of the region.
    bytes: usize,
    /// The mapped range: the region, and unused space around it.
    mapped: NonNull<u8>,
    mapped_bytes: usize,
}

// SAFETY: 1. A mapping belongs to the process, not to a thread. 2. `Mapping` is the only owner of
// its region, and hands out its address only.
unsafe impl Send for Mapping {}

// SAFETY: 1. `&Mapping` only allows reading its fields and making system calls on the region that
// don't change its content, except `populate`, which this crate calls before it shares the mapping.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes`, a multiple of the pages' unit, on these pages. Populates nothing yet, but sets
    /// reserved pages aside.
    pub(crate) fn new(bytes: usize, pages: Pages) -> Result<Self> {
        match pages {
            Pages::Gigantic => Self::reserved(bytes, MapFlags::HUGE_1GB),
            Pages::Huge => Self::reserved(bytes, MapFlags::HUGE_2MB),
            Pages::Transparent => {
                let mapping = Self::guarded(bytes, HUGE_BYTES)?;
                mapping.advise(0, bytes, Advice::LinuxHugepage)?;
                Ok(mapping)
            }
            Pages::Small => {
                let mapping = Self::guarded(bytes, SMALL_BYTES)?;
                // A kernel that makes huge pages everywhere would make them here; a kernel without
                // huge pages fails this call, which doesn't matter.
                let _ = mapping.advise(0, bytes, Advice::LinuxNoHugepage);
                Ok(mapping)
            }
        }
    }

    fn reserved(bytes: usize, size: MapFlags) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let start = map(bytes, access, MapFlags::HUGETLB | size)?;
        Ok(Self { start, bytes, mapped: start, mapped_bytes: bytes })
    }

    /// Maps `bytes` at a multiple of `align`, between inaccessible pages. Those also keep the
    /// kernel from merging the region with a neighbour, so that its reports about the region cover
    /// nothing else.
    fn guarded(bytes: usize, align: usize) -> Result<Self> {
        let mapped_bytes = align.checked_mul(2).and_then(|around| bytes.checked_add(around));
        let mapped_bytes = mapped_bytes.ok_or(Errno::NOMEM)?;
        let mapped = map(mapped_bytes, ProtFlags::empty(), MapFlags::NORESERVE)?;
        // The next multiple, so that at least a page and at most `align` bytes lie before the
        // region, and at least a page after it.
        let skipped_bytes = align - mapped.addr().get() % align;
        let mapping = Self { start: offset_by(mapped, skipped_bytes), bytes, mapped, mapped_bytes };
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: 1. `start..start + bytes` lies in a mapping that nothing else knows yet.
        unsafe { rustix::mm::mprotect(mapping.start.as_ptr().cast(), bytes, access) }?;
        Ok(mapping)
    }

    /// The address of `offset`, with the right to access the whole region.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.bytes);
        offset_by(self.start, offset)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the region, which identifies it in `/proc`.
    pub(crate) fn addr(&self) -> NonZero<usize> {
        self.start.addr()
    }

    /// Populates `bytes` from `offset` on, the start of a page. Nothing may live there yet.
    pub(crate) fn populate(&self, offset: usize, bytes: usize) -> Result<()> {
        match self.advise(offset, bytes, Advice::LinuxPopulateWrite) {
            // The kernel is older than 5.14.
            Err(Errno::INVAL) => {
                self.touch(offset, bytes);
                Ok(())
            }
            done => done,
        }
    }

    /// Writes 0 to each page of `bytes` from `offset` on.
    fn touch(&self, offset: usize, bytes: usize) {
        let end = offset.saturating_add(bytes).min(self.bytes);
        for offset in (offset..end).step_by(SMALL_BYTES) {
            // SAFETY: 1. `offset` is below the region's length, and the region writable. 2. Nothing
            // was allocated from it yet: `populate` is called before the arena is made.
            unsafe { self.at(offset).write_volatile(0) };
        }
    }

    fn advise(&self, offset: usize, bytes: usize, advice: Advice) -> Result<()> {
        let bytes = bytes.min(self.bytes.saturating_sub(offset));
        let start = self.at(offset.min(self.bytes)).as_ptr().cast();
        // SAFETY: 1. The range lies in this mapping. 2. The advice used here (huge pages or none,
        // populate) doesn't change the memory's content.
        unsafe { rustix::mm::madvise(start, bytes, advice) }
    }

    /// Keeps pages of the region from being swapped out, from the moment each is populated.
    pub(crate) fn lock(&self) -> Result<()> {
        let start = self.start.as_ptr().cast();
        // SAFETY: 1. The range is the one of this mapping, which unlocks it when it is unmapped.
        unsafe { rustix::mm::mlock_with(start, self.bytes, MlockFlags::ONFAULT) }
    }

    /// Asks that pages of the region that are populated from now on lie on `node`.
    pub(crate) fn prefer_node(&self, node: u32) -> Result<()> {
        const MASK_BITS: usize = 1024;
        const NO_FLAGS: usize = 0;
        let mut mask = [0_u64; MASK_BITS / 64];
        let word = mask.get_mut(node as usize / 64).ok_or(Errno::INVAL)?;
        *word = 1 << (node % 64);
        // SAFETY: mbind(2): 1. The range lies in this mapping; a policy changes where its pages
        // lie, not their content. 2. The mask has `MASK_BITS` bits and outlives the call; the
        // kernel reads one bit less than the count passed.
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

    /// The node of the first page, which must have been populated.
    pub(crate) fn first_node(&self) -> Result<u32> {
        // From linux/mempolicy.h: return the node instead of the policy, for the page at an
        // address.
        const MPOL_F_NODE: usize = 1 << 0;
        const MPOL_F_ADDR: usize = 1 << 1;
        const NO_MASK: *mut u64 = ptr::null_mut();
        const NO_MASK_BITS: usize = 0;
        let mut node: libc::c_int = -1;
        // SAFETY: get_mempolicy(2): 1. With these flags it writes one `int`, the node, to its first
        // argument, which outlives the call, and of the region only looks up where its page is.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut node,
                NO_MASK,
                NO_MASK_BITS,
                self.start.as_ptr(),
                MPOL_F_NODE | MPOL_F_ADDR,
            )
        };
        if result == 0 { u32::try_from(node).map_err(|_| Errno::INVAL) } else { Err(last_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: 1. The range was mapped with this address and length, and is unmapped once. 2.
        // The arena that owns the mapping is gone, and with it everything that was allocated from
        // it.
        let unmapped =
            unsafe { rustix::mm::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

fn map(bytes: usize, access: ProtFlags, flags: MapFlags) -> Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | flags;
    // SAFETY: 1. Without a requested address, a new mapping overlaps nothing.
    let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, access, flags) }?;
    NonNull::new(start.cast()).ok_or(Errno::NOMEM)
}

/// The address `bytes` after `start`, in the same mapping.
fn offset_by(start: NonNull<u8>, bytes: usize) -> NonNull<u8> {
    start.map_addr(|addr| addr.checked_add(bytes).expect("a mapping ends within the addresses"))
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc;

    #[test]
    fn both_ways_to_take_memory_take_it() {
        const BYTES: usize = 64 * SMALL_BYTES;
        let resident_bytes =
            |mapping: &Mapping| proc::smap(mapping.addr().get()).unwrap().resident_bytes;
        let mapping = Mapping::new(BYTES, Pages::Small).unwrap();
        assert_eq!(resident_bytes(&mapping), 0);
        mapping.touch(SMALL_BYTES, 2 * SMALL_BYTES);
        assert_eq!(resident_bytes(&mapping), 2 * SMALL_BYTES);
        mapping.populate(0, 16 * SMALL_BYTES).unwrap();
        assert_eq!(resident_bytes(&mapping), 16 * SMALL_BYTES);
        mapping.touch(BYTES - SMALL_BYTES, BYTES);
        assert_eq!(resident_bytes(&mapping), 17 * SMALL_BYTES);
    }

    #[test]
    fn both_ways_to_ask_for_the_node_agree() {
        let mapping = Mapping::new(4 * SMALL_BYTES, Pages::Small).unwrap();
        mapping.populate(0, SMALL_BYTES).unwrap();
        match (mapping.first_node(), proc::nodes(mapping.addr().get())) {
            (Ok(node), Some(nodes)) => {
                assert_eq!(nodes, proc::Nodes { node, off_node_bytes: 0 });
            }
            (asked, read) => println!("skipped: get_mempolicy {asked:?}, numa_maps {read:?}"),
        }
    }
}
