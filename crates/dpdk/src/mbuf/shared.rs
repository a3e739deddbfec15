//! A packet with several owners.

use super::segment::Segments;
use super::{Mbuf, lengths};
use crate::Error;
use hotloop_dpdk_sys::{self as sys, RawMbuf};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering, fence};

/// Maximum number of clones of one packet: far below the wrap of its 16-bit count.
const CLONES_MAX: u16 = 1 << 15;

/// A read-only packet with several owners. Cloning copies no bytes.
///
/// Queues don't take it: [`into_exclusive`](Self::into_exclusive) turns the last clone into an
/// [`Mbuf`] again, and [`to_mut`](Self::to_mut) copies the packet if there are others.
///
/// ```
/// use hotloop_dpdk::{Eal, Mempool, MempoolConfig};
/// use hotloop_packet::PacketBuf;
///
/// let pool = Mempool::new(Eal::embedded()?, &MempoolConfig::default())?;
/// let mut mbuf = pool.alloc().expect("a fresh pool is full");
/// mbuf.append(2)?.copy_from_slice(b"ab");
///
/// let first = mbuf.into_shared();
/// let mut second = first.clone();
/// second.to_mut()?.data_mut()[0] = b'x'; // copies: `first` is there
/// assert_eq!((first.data(), second.data()), (&b"ab"[..], &b"xb"[..]));
/// assert!(first.into_exclusive().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(transparent)]
pub struct SharedMbuf {
    /// Invariant: 1 and 3. As [`Mbuf`]'s. 2. The head's refcnt is the number of `SharedMbuf`s that
    /// own the chain, and nobody writes to it while there is more than one. The refcnt of the
    /// segments after the head stays 1.
    ///
    /// Established by [`new`](Self::new), from an `Mbuf`; kept by `clone` and `drop`, which count,
    /// and by `to_mut`, which writes if the count is 1.
    raw: NonNull<RawMbuf>,
}

// SAFETY: 1. The packet is only read while it is shared: invariant 2; the count is atomic. 2. The
// last owner frees it, on any thread, as is allowed for `Mbuf`, after a fence that orders this
// after everything the others did: `drop`.
unsafe impl Send for SharedMbuf {}
// SAFETY: 1. A shared reference reads the packet, and nobody writes to it while `self` is borrowed:
// invariant 2. 2. It raises the count atomically: `clone`.
unsafe impl Sync for SharedMbuf {}

impl SharedMbuf {
    /// An `Mbuf` is a `SharedMbuf` with one owner.
    #[inline]
    pub(super) fn new(mbuf: Mbuf) -> Self {
        Self { raw: mbuf.into_raw() }
    }

    /// The bytes of the first segment.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.segments().next().unwrap_or_default()
    }

    /// The bytes of each segment, in order.
    #[inline]
    pub const fn segments(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: 1. The chain is valid: invariants 1 and 3. 2. Nobody writes to it while `self` is
        // borrowed: invariant 2; only the head's count changes.
        unsafe { Segments::new(self.raw) }
    }

    /// Length of the whole packet in bytes, over all segments.
    #[inline]
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.segments().map(<[u8]>::len).sum()
    }

    /// Number of owners. Others may clone or drop theirs meanwhile.
    #[inline]
    #[must_use]
    pub fn owner_count(&self) -> usize {
        usize::from(self.count().load(Ordering::Relaxed))
    }

    /// The packet, to be written and sent, if this is its last owner.
    ///
    /// # Errors
    /// The unchanged packet if it has other owners.
    #[inline]
    pub fn into_exclusive(self) -> Result<Mbuf, Self> {
        if !self.is_last() {
            return Err(self);
        }
        // SAFETY: 1 and 3. As invariants 1 and 3. 2. This is the only owner, by `is_last` and
        // invariant 2, and ends here.
        Ok(unsafe { Mbuf::from_raw(ManuallyDrop::new(self).raw) })
    }

    /// The packet, mutable. If there are other owners, `self` becomes a copy first.
    ///
    /// # Errors
    /// [`Error::MempoolEmpty`] if the packet's own mempool lacks the mbufs for a copy, or if its
    /// buffers are so small that a copy would take more than 65,535 of them; the packet is
    /// unchanged.
    pub fn to_mut(&mut self) -> Result<&mut Mbuf, Error> {
        if !self.is_last() {
            // SAFETY: 1. The chain is valid: invariants 1 and 3. 2. Nobody writes to it while this
            // owns a share of it: invariant 2.
            let copy = unsafe { copy(self.raw) }.ok_or(Error::MempoolEmpty)?;
            *self = Self::new(copy);
        }
        // SAFETY: 1. Both types are `repr(transparent)` over the same pointer. 2. It is a valid
        // `Mbuf`: this is the only owner, by `is_last` or because the copy was just made, and the
        // borrow of `self` keeps it so. 3. Whatever `Mbuf` is left there is a `SharedMbuf` with one
        // owner.
        Ok(unsafe { &mut *ptr::from_mut(self).cast::<Mbuf>() })
    }

    /// Whether there is no other owner. If so, everything that the others did with the packet
    /// happens before this call returns.
    #[inline]
    fn is_last(&self) -> bool {
        let last = self.count().load(Ordering::Relaxed) == 1;
        if last {
            fence(Ordering::Acquire);
        }
        last
    }

    #[inline]
    const fn count(&self) -> &AtomicU16 {
        // SAFETY: 1. An mbuf, for as long as `self`: invariants 1 and 2. 2. While there are several
        // owners only the count changes: invariant 2; and that is an atomic.
        unsafe { &self.raw.as_ref().refcnt }
    }
}

impl Clone for SharedMbuf {
    /// Another owner of the same bytes.
    ///
    /// # Panics
    /// With the 32,768th owner.
    #[inline]
    fn clone(&self) -> Self {
        // As in `Arc`: the new owner is made from one that keeps the packet alive.
        let before = self.count().fetch_add(1, Ordering::Relaxed);
        if before >= CLONES_MAX {
            self.count().fetch_sub(1, Ordering::Relaxed);
            panic!("a packet has {CLONES_MAX} owners already");
        }
        Self { raw: self.raw }
    }
}

impl Drop for SharedMbuf {
    #[inline]
    fn drop(&mut self) {
        // As in `Arc`: orders everything this owner did before what the last one does.
        if self.count().fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        self.count().store(1, Ordering::Relaxed);
        // SAFETY: 1 and 3. As invariants 1 and 3. 2. The count was 1, so this was the only owner, by
        // invariant 2, and it ends here; the head's refcnt is 1 again.
        drop(unsafe { Mbuf::from_raw(self.raw) });
    }
}

impl fmt::Debug for SharedMbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMbuf")
            .field("len_bytes", &self.len_bytes())
            .field("owner_count", &self.owner_count())
            .finish_non_exhaustive()
    }
}

/// A copy of a packet, with its metadata and time of arrival, from the packet's own pool.
///
/// # Safety
/// 1. The chain is valid, as `Mbuf`'s is: its invariants 1 and 3. 2. Nobody writes to it meanwhile,
///    except to its refcnts.
pub(crate) unsafe fn copy(head: NonNull<RawMbuf>) -> Option<Mbuf> {
    // SAFETY: 1 and 2. By contract.
    unsafe { copy_part(head, 0, u32::MAX) }
}

/// [`copy`] of at most `len_bytes` bytes from `offset_bytes` on, as far as the packet has them.
///
/// # Safety
/// As for [`copy`].
pub(super) unsafe fn copy_part(
    head: NonNull<RawMbuf>,
    offset_bytes: u32,
    len_bytes: u32,
) -> Option<Mbuf> {
    // SAFETY: 1. The head is an mbuf, by contract.
    let pool = unsafe { (*head.as_ptr()).pool };
    // SAFETY: 1. The chain is valid, by contract, and so are its lengths, which DPDK walks it by.
    // 2. Its pool lives as long as the process, by contract. 3. rte_mbuf.h: copies the existing
    //    part of these bytes into fresh mbufs, which are direct ones whatever the original's were.
    let copy = unsafe { sys::rte_pktmbuf_copy(head.as_ptr(), pool, offset_bytes, len_bytes) };
    let copy = NonNull::new(copy)?;
    // SAFETY: 1. rte_mbuf.h: a chain of fresh mbufs that ends with a null pointer. 2. Nobody else
    // has it.
    if !unsafe { lengths::agree(copy) } {
        // More than 65,535 segments, which overflows DPDK's count. SAFETY: 1. The caller of
        // `rte_pktmbuf_copy` owns the chain, and does not use it after this.
        unsafe { sys::sh_mbuf_free(copy.as_ptr()) };
        return None;
    }
    // SAFETY: 1. The mbufs are of `pool`, which lives and which any thread may use, by contract.
    // 2. They are fresh and direct, and owned by the caller of `rte_pktmbuf_copy`. 3. Their lengths
    // agree, as was checked.
    Some(unsafe { Mbuf::from_raw(copy) })
}
