//! TX queues.

use super::gate::PortLease;
use super::inner::Inner;
use super::spare;
use crate::error::Direction;
use crate::{Mbuf, stack};
use hotloop_dpdk_sys::{self as sys, RawMbuf};
use hotloop_packet::PacketBuf;
use hotloop_stage::{Burst, Device, Error, Limits, Sink};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A port's TX queue: claimed once, used by one thread at a time; it may move to another thread.
///
/// If a driver sends no chains, or trusts a packet's length, chains are joined into their first
/// segment. A packet for which that fails, or that is longer than the device's frames, is freed and
/// counted as `tx_refused`.
pub struct TxQueue {
    port: Arc<Inner>,
    /// As `RxQueue`'s.
    lease: PortLease,
    /// Invariant: as `RxQueue`'s.
    index: u16,
    /// Whether packets must be checked before sending.
    looks: bool,
    /// Packets taken and freed, since the device can't send packets of their kind.
    refused_count: u64,
    /// Whether sent packets are counted here, because the driver forgets its counts.
    counts: bool,
    /// The port's RX queues if none is claimed, emptied here. Invariant: empty, or the port runs
    /// with them while `lease` is inside, and only this value polls them: `start`, for the port's
    /// first TX queue.
    drained: Range<u16>,
    /// `Send`, but not `Sync`.
    unshared: PhantomData<Cell<()>>,
}

impl TxQueue {
    pub(super) fn new(port: Arc<Inner>, index: u16) -> Self {
        let looks = !port.driver.sends_chains && !port.capabilities.gathers;
        let counts = port.driver.forgets_counts;
        Self {
            port,
            lease: PortLease::new(),
            index,
            looks,
            refused_count: 0,
            counts,
            drained: 0..0,
            unshared: PhantomData,
        }
    }

    /// The queue's number on its port, from 0.
    #[must_use]
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// Frees packets that the device can't send.
    #[cold]
    fn refuse(&mut self, burst: &mut Burst<Mbuf>) {
        let len_bytes_max = self.port.capabilities.frame_bytes_max as usize;
        let before = burst.len();
        let mut sendable = Burst::new();
        while let Some(mut mbuf) = burst.pop() {
            if mbuf.len_bytes() <= len_bytes_max && mbuf.linearize().is_ok() {
                sendable.push(mbuf);
            }
        }
        while let Some(mbuf) = sendable.pop() {
            burst.push(mbuf);
        }
        let refused = (before - burst.len()) as u64;
        self.refused_count += refused;
        self.port.refused.fetch_add(refused, Relaxed);
    }
}

impl Sink for TxQueue {
    type Item = Mbuf;

    /// # Panics
    /// If less than 256 KiB of the thread's stack are left, or if its stack pointer is outside the
    /// stack that the system gave it. The burst keeps its packets then.
    #[inline(always)]
    fn send(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        if !self.lease.is_inside(&self.port.gate) || burst.is_empty() {
            return 0;
        }
        stack::require();
        if self.looks {
            self.refuse(burst);
        }
        let packets = burst.as_mut_slice();
        let wanted = packets.len() as u16;
        let pointers = packets.as_mut_ptr().cast::<*mut RawMbuf>();
        // SAFETY: 1. The port runs with this queue, which is this value's only and is borrowed
        // exclusively: the invariants of `lease`, which is inside, and `index`. 2. There are
        // `wanted` pointers: an `Mbuf` is one. 3. Each is an exclusive chain with lengths that
        // agree, by `Mbuf`'s invariants. 4. The stack has room for the driver's frames: `require`
        // has returned.
        let sent = unsafe { sys::sh_tx_burst(self.lease.port_id(), self.index, pointers, wanted) };
        // rte_ethdev.h: the first `sent` now belong to the driver.
        burst.forget_front(usize::from(sent));
        if self.counts {
            self.port.taken.fetch_add(u64::from(sent), Relaxed);
        }
        usize::from(sent)
    }

    fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// Leaves the gate if the port must be reopened, and frees a burst from each unclaimed RX
    /// queue.
    ///
    /// # Panics
    /// As for [`send`](Sink::send).
    fn maintain(&mut self) {
        if self.lease.is_inside(&self.port.gate) && !self.drained.is_empty() {
            stack::require();
            // SAFETY: 1. The port runs with these queues, by the invariant of `drained`: `lease` is
            // inside. 2. Only this value polls them, and it is borrowed exclusively. 3. The stack
            // has room: `require` has returned.
            unsafe { spare::drain(self.lease.port_id(), self.drained.clone()) };
        }
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.port.start(limits)?;
        self.lease.validate();
        if self.index == 0 && self.port.is_rx_unclaimed() {
            self.drained = self.port.spare_rx();
        }
        Ok(())
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.port) as Arc<dyn Device>]
    }
}

impl Drop for TxQueue {
    fn drop(&mut self) {
        self.lease.leave(&self.port.gate);
        self.port.release(Direction::Tx, self.index);
    }
}

impl fmt::Debug for TxQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxQueue")
            .field("device", &self.port.device.text())
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Eal, Mbuf, Mempool, MempoolConfig, Port};
    use hotloop_packet::PacketBuf;
    use hotloop_stage::{Burst, Core, Limits, Sink};

    /// A chain of two segments, the first of which has room for `room` bytes more.
    fn chain(pool: &Mempool, room: usize) -> Mbuf {
        let mut mbuf = pool.alloc().unwrap();
        mbuf.append(2048 - room).unwrap();
        let mut rest = pool.alloc().unwrap();
        rest.append(100).unwrap();
        let mut head = mbuf.into_raw();
        // SAFETY: a fresh mbuf with no other owner.
        let fields = unsafe { head.as_mut() };
        fields.next = rest.into_raw().as_ptr();
        (fields.nb_segs, fields.pkt_len) = (2, fields.pkt_len + 100);
        // SAFETY: the chain is valid, exclusive, and given away.
        unsafe { Mbuf::from_raw(head) }
    }

    #[test]
    fn chains_that_a_driver_does_not_send_are_joined_or_refused() {
        let eal = Eal::embedded_or_current().unwrap();
        let port = Port::open(eal, "net_null_tx").unwrap();
        let pool = Mempool::new(eal, &MempoolConfig::default()).unwrap();
        let core = Core::new(0, 1);
        let mut tx = port.tx_queue(&core).unwrap();
        tx.start(&Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false }).unwrap();
        tx.looks = true;

        let mut burst = Burst::new();
        burst.push(chain(&pool, 0));
        burst.push(chain(&pool, 100));
        burst.push(pool.alloc().unwrap());
        burst.push(chain(&pool, 99));
        assert_eq!((tx.send(&mut burst), tx.refused_count()), (2, 2));
        assert!(burst.is_empty());
        let stats = port.stats().unwrap();
        assert_eq!((stats.sent, stats.tx_refused), (2, 2));
        let counters = tx.devices()[0].counters();
        assert_eq!(counters.sent, 2);
        drop(tx);
        port.stop().unwrap();
        assert!(pool.report().is_whole());
    }
}
