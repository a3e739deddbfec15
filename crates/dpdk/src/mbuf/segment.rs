//! Chains of segments.

use hotloop_dpdk_sys::{self as sys, RawMbuf};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// The bytes of each segment of a packet, in order.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    /// Invariant: null, or a segment whose chain lives and is not written to for `'a`.
    next: *const RawMbuf,
    packet: PhantomData<&'a [u8]>,
}

impl Segments<'_> {
    /// # Safety
    /// The chain from `head` is valid and nobody writes to it for the lifetime that is chosen.
    #[inline]
    pub(super) const unsafe fn new(head: NonNull<RawMbuf>) -> Self {
        Self { next: head.as_ptr(), packet: PhantomData }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        // SAFETY: 1. The pointer is null or valid, by the invariant.
        let segment: &'a RawMbuf = unsafe { self.next.as_ref() }?;
        self.next = segment.next;
        Some(data(segment))
    }
}

/// A segment's data. Every reference to a `RawMbuf` in this module is one to a valid segment.
#[inline(always)]
pub(super) const fn data(segment: &RawMbuf) -> &[u8] {
    // SAFETY: 1. In a valid segment `data_off + data_len <= buf_len`, and the buffer is one object.
    let start = unsafe { segment.buf_addr.add(segment.data_off as usize) };
    // SAFETY: 1. As above. 2. Who has a shared reference to the segment may read its data.
    unsafe { std::slice::from_raw_parts(start, segment.data_len as usize) }
}

/// A segment's data, to be written.
#[inline(always)]
pub(super) const fn data_mut(segment: &mut RawMbuf) -> &mut [u8] {
    // SAFETY: 1. In a valid segment `data_off + data_len <= buf_len`, and the buffer is one object.
    let start = unsafe { segment.buf_addr.add(segment.data_off as usize) };
    // SAFETY: 1. As above. 2. Who has the only reference to an exclusive segment may write its
    // data: the buffer is the segment's own, or an external one that nobody else counts on.
    unsafe { std::slice::from_raw_parts_mut(start, segment.data_len as usize) }
}

/// Free bytes behind a segment's data.
#[inline(always)]
pub(super) const fn tailroom(segment: &RawMbuf) -> usize {
    (segment.buf_len - segment.data_off - segment.data_len) as usize
}

/// The last segment of a chain.
#[inline]
pub(super) fn last(head: &mut RawMbuf) -> &mut RawMbuf {
    let mut segment = head;
    while !segment.next.is_null() {
        // SAFETY: 1. The pointer is not null, so it is the next segment of a valid chain, which the
        // one reference to the head stands for.
        segment = unsafe { &mut *segment.next };
    }
    segment
}

/// Whether whoever owns one reference to this chain owns it alone: no segment is counted twice or
/// borrows the buffer of another, and an external buffer is counted once.
///
/// If so, what others did with it before they gave it up comes before what is done with it now;
/// DPDK's own reading of the counts is relaxed.
///
/// # Safety
/// The chain is valid, and the caller owns a reference to each segment of it.
pub(crate) unsafe fn is_exclusive(head: NonNull<RawMbuf>) -> bool {
    let mut next = head.as_ptr();
    // SAFETY: 1. The pointer is null or a segment of a valid chain. 2. Of an mbuf that several own,
    // only the count changes, and that is an atomic.
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
