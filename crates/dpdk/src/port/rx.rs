//! RX queues.

use super::inner::Inner;
use super::stats;
use crate::error::Direction;
use crate::mbuf::{self, Mbuf};
use hotloop_dpdk_sys::{self as sys, RawMbuf};
use hotloop_stage::{Burst, Device, Error, Facts, Source};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A port's RX queue: claimed once, polled by one thread at a time, which may hand it to another.
///
/// A packet is exclusive. Where a driver hands on mbufs that were sent to it (net_ring), each is
/// looked at, and one that others own too is copied; it is counted as `rx_nombuf` where the pool has
/// no room for that.
pub struct RxQueue {
    port: Arc<Inner>,
    /// Invariant: the number of `port` for as long as this queue is held.
    port_id: u16,
    /// Invariant: claimed for this value alone.
    index: u16,
    /// Invariant: set only once the port runs with this queue; it runs until the queue is dropped.
    started: bool,
    /// Whether received mbufs must be looked at.
    looks: bool,
    /// Whether received packets are counted here, since the driver forgets how many.
    counts: bool,
    /// Whether the device reads a file, which ends.
    reads_file: bool,
    finished: bool,
    /// Packets that the file's reader had lost by the last empty poll.
    lost: u64,
    /// Queues that nobody claimed and that are polled with this one.
    /// Invariant: empty, or the port runs with them, and they are polled through this value alone.
    spare: Range<u16>,
    /// Which of this and the spare queues is polled first next time.
    first: u16,
    /// `Send`, but not `Sync`.
    unshared: PhantomData<Cell<()>>,
}

impl RxQueue {
    pub(super) fn new(port: Arc<Inner>, port_id: u16, index: u16) -> Self {
        let looks = !port.driver.fresh_mbufs;
        let (counts, reads_file) = (port.driver.forgets_counts, port.device.reads_file());
        let (started, finished, lost) = (false, false, 0);
        Self {
            port,
            port_id,
            index,
            started,
            looks,
            counts,
            reads_file,
            finished,
            lost,
            spare: 0..0,
            first: 0,
            unshared: PhantomData,
        }
    }

    /// The queue's number on its port, from 0.
    #[must_use]
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// How many packets wait in it, where its driver can tell.
    #[must_use]
    pub fn rx_queue_count(&mut self) -> Option<usize> {
        if !self.started {
            return None;
        }
        // SAFETY: 1. The port runs with this queue. 2. rte_ethdev.h: not to be called while another
        // thread polls the queue; it is borrowed exclusively.
        let count = unsafe { sys::sh_rx_queue_count(self.port_id, self.index) };
        usize::try_from(count).ok()
    }

    /// Of a file, whether its end was seen: the reader blocks, so an empty poll is the end, unless
    /// it was empty for want of an mbuf.
    #[cold]
    fn look_for_end(&mut self) {
        // SAFETY: 1. The port exists for as long as this queue is held.
        let Ok(stats) = (unsafe { stats::read(self.port_id) }) else { return };
        self.finished = stats.rx_nombuf == self.lost;
        self.lost = stats.rx_nombuf;
    }

    /// Replaces the mbufs among the first `count` that others own too by copies, and returns how
    /// many of them there are then, at the front.
    #[inline(never)]
    fn make_exclusive(&self, slots: &mut [MaybeUninit<Mbuf>], count: usize) -> usize {
        let mut kept = 0;
        for index in 0..count {
            // SAFETY: 1. The driver has written the slot; an `Mbuf` is a pointer that is not null.
            let raw = unsafe { slots[index].as_ptr().cast::<NonNull<RawMbuf>>().read() };
            // SAFETY: 1. A received mbuf is a valid chain, and a reference to it came with it.
            let exclusive = unsafe { mbuf::is_exclusive(raw) };
            let mbuf = if exclusive {
                // SAFETY: 1. The chain is valid, and owned here alone.
                Some(unsafe { Mbuf::from_raw(raw) })
            } else {
                // SAFETY: 1. The chain is valid, and nobody writes to what several own.
                let copy = unsafe { mbuf::copy(raw) };
                // SAFETY: 1. The reference that came with it ends here.
                unsafe { sys::sh_mbuf_free(raw.as_ptr()) };
                copy
            };
            if let Some(mbuf) = mbuf {
                slots[kept].write(mbuf);
                kept += 1;
            }
        }
        self.port.uncopied.fetch_add((count - kept) as u64, Relaxed);
        kept
    }

    /// Polls one queue that this value polls alone.
    #[inline(always)]
    fn poll_queue(&mut self, index: u16, burst: &mut Burst<Mbuf>) -> usize {
        let slots = burst.spare_mut();
        let wanted = slots.len() as u16;
        if wanted == 0 {
            return 0;
        }
        let pointers = slots.as_mut_ptr().cast::<*mut RawMbuf>();
        // SAFETY: 1. The port runs with this queue, or this spare one, and this value, by which alone
        // it is polled, is borrowed exclusively. 2. There is room for `wanted` pointers, and an
        // `Mbuf` is one.
        let received = unsafe { sys::sh_rx_burst(self.port_id, index, pointers, wanted) };
        if self.counts {
            self.port.polled.fetch_add(u64::from(received), Relaxed);
        }
        let mut count = usize::from(received);
        if self.looks && count > 0 {
            count = self.make_exclusive(slots, count);
        }
        if self.reads_file && count == 0 {
            self.look_for_end();
            return 0;
        }
        // SAFETY: 1. The slots come from `spare_mut`, and nothing was done to the burst since.
        // 2. rte_ethdev.h: the first `count` hold mbufs that are the caller's; exclusive, since the
        // driver takes them fresh from the pool, or by `make_exclusive`.
        unsafe { burst.assume_pushed(count) };
        count
    }

    /// Polls this and the spare queues, another one first each time, so that none waits for ever.
    #[inline(never)]
    fn poll_with_spare(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        let count = 1 + self.spare.len() as u16;
        let mut polled = 0;
        for step in 0..count {
            if burst.room() == 0 {
                break;
            }
            let index = match (self.first + step) % count {
                0 => self.index,
                spare => self.spare.start + spare - 1,
            };
            polled += self.poll_queue(index, burst);
        }
        self.first = (self.first + 1) % count;
        polled
    }
}

impl Source for RxQueue {
    type Item = Mbuf;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        if !self.started {
            return 0;
        }
        if self.spare.is_empty() {
            return self.poll_queue(self.index, burst);
        }
        self.poll_with_spare(burst)
    }

    fn start(&mut self, facts: &Facts) -> Result<(), Error> {
        self.port.start(facts)?;
        self.started = true;
        if self.index == 0 {
            self.spare = self.port.spare_rx();
        }
        Ok(())
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.port) as Arc<dyn Device>]
    }

    /// A capture file can wait.
    fn lossless(&self) -> bool {
        self.reads_file
    }

    fn finished(&self) -> bool {
        self.finished
    }
}

impl Drop for RxQueue {
    fn drop(&mut self) {
        self.port.release(Direction::Rx, self.index);
    }
}

impl fmt::Debug for RxQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxQueue")
            .field("device", &self.port.device.text())
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
