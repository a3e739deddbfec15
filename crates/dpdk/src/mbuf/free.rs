//! Freeing many mbufs to their mempools.
//!
//! A pool stores single mbufs with a refcnt of 1 and no link (rte_mbuf.h: `rte_mbuf_raw_free`). An
//! [`Mbuf`] with an `nb_segs` of 1 has no link and a refcnt of 1, by its invariants. If its buffer
//! is its own, which two flags show, it can go to the pool unchanged. All fields read are in the
//! first cache line of its header. `rte_pktmbuf_free`, which can't rely on these invariants, reads
//! the second one, too.

use super::Mbuf;
use hotloop_dpdk_sys::{self as sys, RawMbuf};
use hotloop_stage::BURST_CAPACITY;
use std::mem::MaybeUninit;

/// Flags of a buffer that is external or another mbuf's.
const FOREIGN_BUFFER: u64 = sys::SH_MBUF_INDIRECT | sys::SH_MBUF_EXTERNAL;

/// Drops mbufs. Consecutive mbufs of the same pool are returned together.
#[inline]
pub(super) fn all(mbufs: impl Iterator<Item = Mbuf> + AsRef<[Mbuf]>) {
    match pool_of_all(mbufs.as_ref()) {
        Some(pool) => {
            // An `Mbuf` is a pointer to a `RawMbuf`.
            let (first, count) =
                (mbufs.as_ref().as_ptr().cast_mut().cast(), mbufs.as_ref().len() as u32);
            // SAFETY: 1. All are single mbufs of this pool with their own buffers, as was checked,
            // and each was the only owner of its mbuf. 2. They are given up: `mbufs` is forgotten.
            // 3. The pool lives, and any thread may use it: `Mbuf`'s invariant 1.
            unsafe { sys::sh_mbuf_free_singles(pool, first, count) };
            std::mem::forget(mbufs);
        }
        None => one_by_one(mbufs),
    }
}

/// The pool of all these mbufs, if they share one, are single and have buffers of their own.
#[inline(always)]
fn pool_of_all(mbufs: &[Mbuf]) -> Option<*mut sys::rte_mempool> {
    let pool = mbufs.first()?.head().pool;
    let (mut differing, mut flags) = (0, 0);
    for head in mbufs.iter().map(Mbuf::head) {
        differing |= (head.pool as usize ^ pool as usize) | usize::from(head.nb_segs ^ 1);
        flags |= head.ol_flags;
    }
    (differing == 0 && flags & FOREIGN_BUFFER == 0).then_some(pool)
}

#[inline(never)]
fn one_by_one(mbufs: impl Iterator<Item = Mbuf>) {
    let mut returning = Returning::new();
    mbufs.for_each(|mbuf| returning.add(mbuf));
}

/// Mbufs that go back to one pool.
struct Returning {
    pool: *mut sys::rte_mempool,
    /// Invariant: at most `BURST_CAPACITY`.
    count: usize,
    /// Invariant: the first `count` were `Mbuf`s of `pool`, single and with their own buffers, and are this value's.
    mbufs: [MaybeUninit<*mut RawMbuf>; BURST_CAPACITY],
}

impl Returning {
    #[inline(always)]
    const fn new() -> Self {
        let mbufs = [const { MaybeUninit::uninit() }; BURST_CAPACITY];
        Self { pool: std::ptr::null_mut(), count: 0, mbufs }
    }

    #[inline(always)]
    fn add(&mut self, mbuf: Mbuf) {
        let head = mbuf.head();
        if head.nb_segs != 1 || head.ol_flags & FOREIGN_BUFFER != 0 {
            return drop(mbuf);
        }
        if head.pool != self.pool || self.count == BURST_CAPACITY {
            self.flush();
            self.pool = head.pool;
        }
        self.mbufs[self.count].write(mbuf.into_raw().as_ptr());
        self.count += 1;
    }

    #[inline(always)]
    fn flush(&mut self) {
        let count = std::mem::take(&mut self.count);
        if count > 0 {
            let mbufs = self.mbufs.as_mut_ptr().cast::<*mut RawMbuf>();
            // SAFETY: 1. The first `count` are initialised, and single mbufs of this pool with
            // their own buffers, by the invariant of `mbufs`; each was an `Mbuf`, its only owner,
            // and is given up here. 2. The pool lives, and any thread may use it: `Mbuf`'s
            // invariant 1.
            unsafe { sys::sh_mbuf_free_singles(self.pool, mbufs, count as u32) };
        }
    }
}

impl Drop for Returning {
    #[inline(always)]
    fn drop(&mut self) {
        self.flush();
    }
}
