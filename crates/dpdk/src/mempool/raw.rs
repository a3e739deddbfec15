//! A mempool of DPDK, which is never freed.

use super::{MempoolConfig, MempoolMemory};
use crate::errno::{errno, errno_text};
use crate::lock::Control;
use crate::{Error, Mbuf, lcore_id, log};
use hotloop_dpdk_sys as sys;
use hotloop_stage::Burst;
use std::ffi::{CStr, CString, c_int};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A ring for several producers and several consumers, whatever the default of EAL or a driver is.
const OPERATIONS: &CStr = c"ring_mp_mc";

/// Invariant: points to a mempool of mbufs, fully populated, multi-producer and multi-consumer,
/// which lives as long as the process. Established by [`create`](Self::create): both ways of making
/// a pool use [`OPERATIONS`] and at most `MBUF_COUNT_MAX` mbufs, for which the ring has slots, and
/// nothing frees a pool that was returned.
#[derive(Clone, Copy)]
pub(super) struct RawMempool(
    NonNull<sys::rte_mempool>,
    /// How often the pool had fewer mbufs than requested.
    &'static AtomicU64,
);

// SAFETY: 1. The pool lives as long as the process, by the invariant. 2. It is multi-producer and
// multi-consumer, by the invariant; rte_mempool.h: any thread may then get and put.
unsafe impl Send for RawMempool {}
// SAFETY: 1 and 2. As above.
unsafe impl Sync for RawMempool {}

impl RawMempool {
    pub(super) fn create(_: &mut Control, config: &MempoolConfig) -> Result<Self, Error> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let name = format!("hotloop_{}", CREATED.fetch_add(1, Relaxed));
        let name = CString::new(name).expect("a name of letters and digits");
        let node = config.node.map_or(sys::SH_SOCKET_ID_ANY, |node| node as c_int);
        let (pool, said) = log::capture(|| {
            if config.contiguous {
                create_contiguous(&name, config, node)
            } else {
                create_packed(&name, config, node)
            }
        });
        // Never freed, like the pool itself.
        let counted = |pool| Self(pool, Box::leak(Box::default()));
        pool.map(counted).map_err(|code| Error::MempoolCreate {
            mbuf_count: config.mbuf_count,
            data_room_bytes: config.data_room_bytes,
            error: errno_text(code),
            said,
        })
    }

    #[inline]
    pub(super) fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: 1. The pool is one of mbufs and lives, and any thread may use it, by the type's
        // invariant.
        let mbuf = unsafe { sys::sh_mbuf_alloc(self.0.as_ptr()) };
        // SAFETY: 1. One mbuf of this pool: by its invariant it lives and any thread may use it;
        // rte_mbuf.h: its `next` is null. 2. rte_mbuf.h: it is the caller's, with a refcnt of 1 and
        // its own buffer. 3. rte_mbuf.h: it is reset: one segment, no data, an offset in its buffer.
        let mbuf = NonNull::new(mbuf).map(|mbuf| unsafe { Mbuf::from_raw(mbuf) });
        if mbuf.is_none() {
            self.count_failed();
        }
        mbuf
    }

    #[inline]
    pub(super) fn alloc_burst(&self, burst: &mut Burst<Mbuf>, count: usize) -> bool {
        if count == 0 {
            return true; // DPDK would fail this for an empty pool.
        }
        let Some(slots) = burst.spare_mut().get_mut(..count) else { return false };
        let slots = slots.as_mut_ptr().cast::<*mut sys::RawMbuf>();
        // SAFETY: 1. The pool is one of mbufs and lives, and any thread may use it, by the type's
        // invariant. 2. `slots` has room for `count` pointers, and an `Mbuf` is one.
        let result = unsafe { sys::sh_mbuf_alloc_bulk(self.0.as_ptr(), slots, count as u32) };
        if result != 0 {
            self.count_failed();
            return false;
        }
        // SAFETY: 1. The slots come from `spare_mut` and the burst has not changed since.
        // 2. rte_mbuf.h: `count` of them hold mbufs like those of `alloc`, which are the caller's
        //    and fulfil `Mbuf`'s invariants as shown there.
        unsafe { burst.assume_pushed(count) };
        true
    }

    /// Flushes the calling thread's cache into the pool.
    pub(super) fn flush_own_cache(&self) {
        let Some(lcore) = lcore_id::current() else { return };
        // SAFETY: 1. The pool lives, by the type's invariant. 2. rte_mempool.h: only its lcore's
        // thread may use a cache, and this is that thread: `lcore_id::current`.
        unsafe { sys::sh_mempool_flush_cache(self.0.as_ptr(), lcore) };
    }

    /// Takes one object, bypassing the caches.
    pub(super) fn take(&self) -> Option<NonNull<sys::RawMbuf>> {
        let mut object = ptr::null_mut();
        // SAFETY: 1. The pool lives and any thread may use it, by the type's invariant. 2. `object`
        // has room for one pointer.
        let result = unsafe { sys::sh_mempool_take(self.0.as_ptr(), &mut object) };
        if result == 0 { NonNull::new(object.cast()) } else { None }
    }

    /// Puts back an object that [`take`](Self::take) returned.
    ///
    /// # Safety
    /// 1. It was taken from this pool. 2. It is put back once, and not used afterwards.
    pub(super) unsafe fn put(&self, object: NonNull<sys::RawMbuf>) {
        // SAFETY: 1. The pool lives and any thread may use it, by the type's invariant. 2. The
        // object belongs to the pool and was taken out, by contract.
        unsafe { sys::sh_mempool_put(self.0.as_ptr(), object.as_ptr().cast()) };
    }

    #[cold]
    fn count_failed(&self) {
        self.1.fetch_add(1, Relaxed);
    }

    /// How often the pool had fewer mbufs than requested.
    pub(super) fn failed_count(&self) -> u64 {
        self.1.load(Relaxed)
    }

    /// The mbufs in the pool and in the caches of its lcores.
    pub(super) fn free_count(&self) -> u32 {
        // SAFETY: 1. The pool lives, by the type's invariant. 2. rte_mempool.h: any thread may
        // count, and others may get and put meanwhile: the count then mixes several moments. It
        // only reads counts in C, and reads each at once: they are of the size of a register or
        // less.
        unsafe { sys::rte_mempool_avail_count(self.0.as_ptr()) }
    }

    /// The pool's memory.
    pub(super) fn memory(&self) -> MempoolMemory {
        // SAFETY: 1. The pool lives, by the type's invariant. 2. rte_mempool.h: its chunks are
        // those that it was populated with, which is finished, by the type's invariant: nobody
        // changes them.
        // 3. rte_memory.h: any address may be looked up, and the list that contains it stays while
        //    its memory is in use.
        let found = unsafe { sys::sh_mempool_memory(self.0.as_ptr()) };
        MempoolMemory {
            bytes: found.bytes,
            page_bytes: Some(found.page_bytes).filter(|&bytes| bytes > 0),
            node: u32::try_from(found.node).ok(),
        }
    }

    pub(super) const fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.0.as_ptr()
    }
}

/// DPDK's default: each mbuf in contiguous memory.
fn create_contiguous(
    name: &CString,
    config: &MempoolConfig,
    node: c_int,
) -> Result<NonNull<sys::rte_mempool>, c_int> {
    // SAFETY: 1. EAL is initialised: `Mempool::new` takes an `Eal`, and `Mempool::at_least` is called
    // by a port, which was opened with one. 2. `name` is a C string, and so is the operations' name.
    let pool = unsafe {
        sys::rte_pktmbuf_pool_create_by_ops(
            name.as_ptr(),
            config.mbuf_count,
            config.cache_count,
            0,
            config.data_room_bytes,
            node,
            OPERATIONS.as_ptr(),
        )
    };
    NonNull::new(pool).ok_or_else(errno)
}

/// Without the flag that makes DPDK put one mbuf in each 4 KiB page if there are no hugepages: all
/// of them would be at the same offset in their pages, and so in the same few sets of the L1 cache.
fn create_packed(
    name: &CString,
    config: &MempoolConfig,
    node: c_int,
) -> Result<NonNull<sys::rte_mempool>, c_int> {
    // SAFETY: 1. EAL is initialised, as in `create_contiguous`. 2. `name` is a C string, and so is the
    // operations' name.
    let pool = unsafe {
        sys::sh_mempool_packed(
            name.as_ptr(),
            config.mbuf_count,
            config.cache_count,
            config.data_room_bytes,
            node,
            OPERATIONS.as_ptr(),
        )
    };
    NonNull::new(pool).ok_or_else(errno)
}
