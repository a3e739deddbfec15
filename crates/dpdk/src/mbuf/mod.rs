//! The mbuf: a packet in DPDK's memory with one owner.

mod buf;
mod free;
pub(crate) mod lengths;
mod segment;
mod shared;

use hotloop_dpdk_sys::{self as sys, RawMbuf};
use hotloop_packet::{PacketBuf, PortId};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

pub(crate) use segment::is_exclusive;
pub use shared::SharedMbuf;
pub(crate) use shared::copy;

/// Free bytes before a packet's data in a fresh mbuf: `RTE_PKTMBUF_HEADROOM`.
pub const HEADROOM_BYTES: u16 = sys::SH_PKTMBUF_HEADROOM as u16;

/// A packet in an mbuf, or in a chain of them, with one owner, which may write to it. On drop, on
/// any thread, the packet returns to its mempool; [`Burst::clear`](hotloop_stage::Burst::clear)
/// returns many together.
///
/// An `Mbuf` is a pointer of eight bytes. It may outlive the port that received it and every handle
/// of its mempool. [`PacketBuf`] has the methods for its bytes.
///
/// An `Mbuf` is not `Clone`: [`into_shared`](Self::into_shared) makes a packet that is.
#[repr(transparent)]
pub struct Mbuf {
    /// Invariant: 1. The head of a chain of mbufs, the last of which has a null `next`, of mempools
    /// that live as long as the process and that any thread may use. 2. Only this value owns the
    /// chain: in each segment, refcnt is 1, and the buffer is the segment's own or an external one
    /// with a count of 1. 3. The lengths agree: in each segment, `data_off + data_len <= buf_len`,
    /// and `nb_segs` and `pkt_len` of the head are those of the chain.
    ///
    /// Established by [`from_raw`](Self::from_raw), whose callers show all three; kept by `buf`,
    /// the only module that writes to headers, which updates `pkt_len` and `nb_segs` with the
    /// segments.
    raw: NonNull<RawMbuf>,
}

// SAFETY: 1. Only this value owns the chain: invariant 2. 2. rte_mbuf.h and rte_mempool.h: an mbuf
// may be freed on any thread that may use its pool, and any thread may: invariant 1.
unsafe impl Send for Mbuf {}

const _: () = assert!(size_of::<Mbuf>() == 8);

impl Mbuf {
    /// Takes ownership of an mbuf of DPDK.
    ///
    /// # Safety
    /// 1. It is the head of a chain of mbufs that ends with a null `next`, and their mempools live
    ///    as long as the process and may be used by any thread. 2. The caller owns the chain and
    ///    gives it away: it has no other owner, and in each segment the refcnt is 1 and the buffer
    ///    is the segment's own, or an external one with a count of 1.
    /// 3. Its lengths agree: `data_off + data_len <= buf_len` in each segment, and `nb_segs` and
    ///    `pkt_len` of the head are those of the chain.
    #[inline]
    #[must_use]
    pub const unsafe fn from_raw(raw: NonNull<RawMbuf>) -> Self {
        Self { raw }
    }

    /// Returns the pointer, for calls into DPDK. Dropping the pointer leaks the mbuf.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> NonNull<RawMbuf> {
        ManuallyDrop::new(self).raw
    }

    /// Sets the port that [received](hotloop_packet::PacketBuf::ingress) the packet. RX queues do
    /// this, because a driver that forwards the mbufs sent to it keeps the number of the port that
    /// received them first.
    #[inline]
    pub fn set_ingress(&mut self, port: PortId) {
        self.head_mut().port = port.number();
    }

    /// The number of segments, at least 1.
    #[inline]
    #[must_use]
    pub fn segment_count(&self) -> usize {
        usize::from(self.head().nb_segs)
    }

    /// Free bytes before the first segment's data.
    #[inline]
    #[must_use]
    pub fn headroom_bytes(&self) -> usize {
        usize::from(self.head().data_off)
    }

    /// Turns the packet into a read-only one that can be cloned.
    #[inline]
    #[must_use]
    pub fn into_shared(self) -> SharedMbuf {
        SharedMbuf::new(self)
    }

    /// The first segment's header.
    #[inline(always)]
    const fn head(&self) -> &RawMbuf {
        // SAFETY: 1. An mbuf: invariant 1. 2. Nobody writes to it while `self` is borrowed:
        // invariant 2.
        unsafe { self.raw.as_ref() }
    }

    /// The first segment's header, mutable.
    #[inline(always)]
    const fn head_mut(&mut self) -> &mut RawMbuf {
        // SAFETY: 1. An mbuf: invariant 1. 2. Nobody else reads or writes it while `self` is
        // borrowed exclusively: invariant 2.
        unsafe { self.raw.as_mut() }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: 1. Only this value owns the chain, and this value ends: invariant 2. 2.
        // rte_mbuf.h: each segment goes back to its own pool, which lives: invariant 1. 3. A single
        // mbuf with its own buffer goes back unchanged: see `free`.
        unsafe { sys::sh_mbuf_free_owned(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.head();
        f.debug_struct("Mbuf")
            .field("len_bytes", &head.pkt_len)
            .field("segment_count", &head.nb_segs)
            .field("ingress", &self.ingress())
            .finish_non_exhaustive()
    }
}
