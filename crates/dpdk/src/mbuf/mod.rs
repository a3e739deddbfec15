//! The mbuf: a packet in DPDK's memory, owned by one.

mod buf;
pub(crate) mod lengths;
mod segment;
mod shared;

use hotloop_dpdk_sys::{self as sys, RawMbuf};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

pub use segment::Segments;
pub(crate) use segment::is_exclusive;
pub use shared::SharedMbuf;
pub(crate) use shared::copy;

/// A packet in an mbuf, or in a chain of them: owned by one, who may write to it, and given back to
/// its mempool when it is dropped, on whatever thread.
///
/// It is eight bytes, a pointer. It may outlive the port that received it and every handle of its
/// mempool. [`PacketBuf`](crate::PacketBuf) is how its bytes are reached.
///
/// It is not `Clone`: [`into_shared`](Self::into_shared) makes a packet that is.
#[repr(transparent)]
pub struct Mbuf {
    /// Invariant: the head of a chain of mbufs of live mempools. The chain is owned by this value
    /// alone: in each segment, refcnt is 1, the buffer is the segment's own or an external one with
    /// a count of 1, `data_off + data_len <= buf_len`, and the last one's `next` is null. `nb_segs`
    /// and `pkt_len` of the head agree with the chain.
    raw: NonNull<RawMbuf>,
}

// SAFETY: 1. The chain is owned by this value alone. 2. rte_mbuf.h and rte_mempool.h: an mbuf may be
// freed on any thread, its pool being multi-producer.
unsafe impl Send for Mbuf {}

const _: () = assert!(size_of::<Mbuf>() == 8);

impl Mbuf {
    /// Takes over an mbuf of DPDK's.
    ///
    /// # Safety
    /// 1. It is the head of a chain of mbufs whose mempools live as long as the process. 2. The
    ///    caller owns the chain and gives it away: nobody else has it, and in each segment the
    ///    refcnt is 1 and the buffer is the segment's own, or an external one with a count of 1.
    /// 3. Its lengths are valid: `data_off + data_len <= buf_len` in each segment, `nb_segs` and
    ///    `pkt_len` agree with the chain.
    #[inline]
    #[must_use]
    pub const unsafe fn from_raw(raw: NonNull<RawMbuf>) -> Self {
        Self { raw }
    }

    /// Gives the mbuf to whoever calls DPDK with it. Who drops the pointer leaks the mbuf.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> NonNull<RawMbuf> {
        ManuallyDrop::new(self).raw
    }

    /// The port that received it, by DPDK's number; `None` for one that was made here.
    ///
    /// Numbers are used again after a port was closed.
    #[inline]
    #[must_use]
    pub fn port_index(&self) -> Option<u16> {
        let port = self.head().port;
        (port != sys::SH_MBUF_PORT_INVALID).then_some(port)
    }

    /// Has it be received by another port: drivers that hand on what was sent leave the number of the
    /// port that received it first.
    pub(crate) fn set_port_index(&mut self, port_index: u16) {
        self.head_mut().port = port_index;
    }

    /// How many segments it has, at least 1.
    #[inline]
    #[must_use]
    pub fn segment_count(&self) -> usize {
        usize::from(self.head().nb_segs)
    }

    /// The bytes of each segment, in order.
    #[inline]
    #[must_use]
    pub fn segments(&self) -> Segments<'_> {
        // SAFETY: 1. The chain is valid and, while `self` is borrowed, changed by nobody.
        unsafe { Segments::new(self.raw) }
    }

    /// Free bytes before the first segment's data.
    #[inline]
    #[must_use]
    pub fn headroom_bytes(&self) -> usize {
        usize::from(self.head().data_off)
    }

    /// Makes it a packet that may be cloned and is read only.
    #[inline]
    #[must_use]
    pub fn into_shared(self) -> SharedMbuf {
        SharedMbuf::new(self)
    }

    /// The first segment's header.
    #[inline(always)]
    const fn head(&self) -> &RawMbuf {
        // SAFETY: 1. The pointer is valid by the type's invariant, and owned by this value alone.
        unsafe { self.raw.as_ref() }
    }

    /// The first segment's header, to be written.
    #[inline(always)]
    const fn head_mut(&mut self) -> &mut RawMbuf {
        // SAFETY: 1. The pointer is valid and owned by this value alone.
        unsafe { self.raw.as_mut() }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: 1. The chain is valid and owned by this value, which ends. 2. rte_mbuf.h:
        // `rte_pktmbuf_free` gives each segment back to its own pool.
        unsafe { sys::sh_mbuf_free(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.head();
        f.debug_struct("Mbuf")
            .field("len_bytes", &head.pkt_len)
            .field("segment_count", &head.nb_segs)
            .field("port_index", &self.port_index())
            .finish_non_exhaustive()
    }
}
