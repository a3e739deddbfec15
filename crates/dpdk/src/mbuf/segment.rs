//! Chains of segments.

use hotloop_dpdk_sys::{self as sys, RawMbuf};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// The bytes of each segment of a packet, in order.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    /// Invariant: null, or a segment of a valid chain that lives and is not written to for `'a`.
    /// Established by the callers of [`new`](Self::new).
    next: *const RawMbuf,
    packet: PhantomData<&'a [u8]>,
}

impl Segments<'_> {
    /// # Safety
    /// 1. The chain from `head` is valid, as `Mbuf`'s is: its invariants 1 and 3. 2. Nobody writes
    ///    to it for the chosen lifetime, except to its refcnts.
    #[inline]
    pub(super) const unsafe fn new(head: NonNull<RawMbuf>) -> Self {
        Self { next: head.as_ptr(), packet: PhantomData }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        // SAFETY: 1. The pointer is null or valid, and nobody writes to its target for `'a`, by the
        // field's invariant.
        let segment: &'a RawMbuf = unsafe { self.next.as_ref() }?;
        self.next = segment.next;
        Some(data(segment))
    }
}

/// A segment's data. Every reference to a `RawMbuf` passed to this module refers to a segment of a
/// valid chain, as in `Mbuf`'s invariants: `Mbuf::head`, `Mbuf::head_mut`, `last`, `truncate_chain`
/// and `Segments::next` make them.
#[inline(always)]
pub(super) const fn data(segment: &RawMbuf) -> &[u8] {
    // SAFETY: 1. In a valid segment `data_off + data_len <= buf_len`: `Mbuf`'s invariant 3. 2. The
    // buffer is one object of `buf_len` bytes from `buf_addr`: rte_mbuf.h.
    let start = unsafe { segment.buf_addr.add(segment.data_off as usize) };
    // SAFETY: 1. As above. 2. The pool's memory was zeroed by the kernel or written since: it is
    // initialised. 3. A shared reference to the segment allows reading its data: nothing writes
    // to it, by `Mbuf`'s and `SharedMbuf`'s invariants.
    unsafe { std::slice::from_raw_parts(start, segment.data_len as usize) }
}

/// A segment's data, mutable.
#[inline(always)]
pub(super) const fn data_mut(segment: &mut RawMbuf) -> &mut [u8] {
    // SAFETY: 1 and 2. As in `data`.
    let start = unsafe { segment.buf_addr.add(segment.data_off as usize) };
    // SAFETY: 1 and 2. As in `data`. 3. The only reference to an exclusive segment allows writing
    // its data: the buffer is the segment's own, or an external one without other users, by
    // `Mbuf`'s invariant 2.
    unsafe { std::slice::from_raw_parts_mut(start, segment.data_len as usize) }
}

/// Free bytes after a segment's data.
#[inline(always)]
pub(super) const fn tailroom(segment: &RawMbuf) -> usize {
    (segment.buf_len - segment.data_off - segment.data_len) as usize
}

/// The last segment of a chain.
#[inline]
pub(super) fn last(head: &mut RawMbuf) -> &mut RawMbuf {
    let mut segment = head;
    while !segment.next.is_null() {
        // SAFETY: 1. The pointer is not null, so it is the next segment of a valid chain: `Mbuf`'s
        // invariant 1. 2. The one reference to the head stands for the whole chain, which has one
        // owner: invariant 2.
        segment = unsafe { &mut *segment.next };
    }
    segment
}

/// Whether the owner of one reference to this chain is its only owner: no segment has a higher
/// refcnt or borrows the buffer of another, and an external buffer is counted once.
///
/// If so, everything that others did with the chain before they gave it up happens before the
/// caller's next use; DPDK's own reading of the counts is relaxed.
///
/// # Safety
/// 1. The chain from `head` ends with a null pointer. 2. The caller owns a reference to each
///    segment of it, and nobody writes to one except to its refcnt.
pub(crate) unsafe fn is_exclusive(head: NonNull<RawMbuf>) -> bool {
    let mut next = head.as_ptr();
    // SAFETY: 1. The pointer is null or a segment that the caller owns a reference to, by contract.
    // 2. Only the refcnt changes, by contract, and it is an atomic.
    while let Some(segment) = unsafe { next.as_ref() } {
        let counted_once = segment.refcnt.load(Ordering::Relaxed) == 1;
        if !counted_once || segment.ol_flags & sys::SH_MBUF_INDIRECT != 0 {
            return false;
        }
        let external = segment.ol_flags & sys::SH_MBUF_EXTERNAL != 0;
        // SAFETY: 1. rte_mbuf.h: an EXTERNAL mbuf has shared information with a count.
        if external && unsafe { sys::sh_ext_refcnt(segment) } != 1 {
            return false;
        }
        next = segment.next;
    }
    fence(Ordering::Acquire);
    true
}
