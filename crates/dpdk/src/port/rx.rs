//! RX queues.

use super::gate::PortLease;
use super::inner::Inner;
use super::stats;
use crate::error::Direction;
use crate::mbuf::{self, Mbuf, lengths};
use crate::stack;
use hotloop_dpdk_sys::{self as sys, RawMbuf};
use hotloop_packet::PortId;
use hotloop_stage::{Burst, Device, Error, Limits, Source};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

/// A port's RX queue. It is claimed once, and polled by one thread at a time; it may move to
/// another thread.
///
/// A received packet has one owner. A driver may pass on mbufs that were sent to it (net_ring): a
/// packet that has other owners is then copied, and counted as `rx_nombuf` if the pool has no mbuf for
/// the copy.
///
/// The lengths of a received packet agree. A driver may read them from what another program wrote: a
/// packet with lengths that disagree is then freed and counted as `rx_malformed`. From net_pcap, this
/// is a record of more than 65,535 bytes.
pub struct RxQueue {
    port: Arc<Inner>,
    /// Entry to the port's gate. While inside, the port of its `port_id` runs with this queue, and
    /// with the spare ones: `PortLease`; `Inner::reopen` opens with the same queues as before.
    lease: PortLease,
    /// Invariant: only this value has claimed it. `Inner::claim` hands out each once, `drop` gives
    /// it back.
    index: u16,
    /// Whether received mbufs may have other owners. Invariant: if false, they come fresh from the
    /// port's pool: `new`, according to `driver`.
    may_be_shared: bool,
    /// The size of receive buffers, if lengths must be checked. Invariant: set once `lease` is
    /// valid, unless lengths agree whatever is received: `start`, according to `driver`.
    checked_bytes: Option<u32>,
    /// Whether received packets are counted here, because the driver forgets its counts.
    counts: bool,
    /// Whether received packets are passed on without any check. Invariant: true only if `may_be_shared`,
    /// `checked_bytes` and `counts` require none.
    is_plain: bool,
    /// Whether the device reads a file, which ends.
    reads_file: bool,
    finished: bool,
    /// Packets that the file's reader had lost by the last empty poll.
    lost: u64,
    /// Unclaimed queues that are polled with this one. Invariant: empty, or the port runs with them
    /// while `lease` is inside, and only this value polls them: `start`, for the port's first RX
    /// queue.
    spare: Range<u16>,
    /// The queue, this or a spare one, to poll first next time.
    first: u16,
    /// `Send`, but not `Sync`.
    unshared: PhantomData<Cell<()>>,
}

impl RxQueue {
    pub(super) fn new(port: Arc<Inner>, index: u16) -> Self {
        let (may_be_shared, checked_bytes) = (!port.driver.fresh_mbufs, None);
        let (counts, reads_file) = (port.driver.forgets_counts, port.device.reads_file());
        let (finished, lost) = (false, 0);
        Self {
            port,
            lease: PortLease::new(),
            index,
            may_be_shared,
            checked_bytes,
            counts,
            is_plain: false,
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

    /// Number of packets waiting in the queue. `None` if its driver does not know.
    ///
    /// # Panics
    /// As for [`poll`](Source::poll).
    #[must_use]
    pub fn rx_queue_count(&mut self) -> Option<usize> {
        if !self.lease.is_inside(&self.port.gate) {
            return None;
        }
        stack::require();
        // SAFETY: 1. The port runs with this queue, by the invariants of `lease` and `index`: it is
        // inside. 2. rte_ethdev.h: not to be called while another thread polls the queue; only this
        // value can, by the invariant of `index`, and it is borrowed exclusively. 3. The stack has
        // room for the driver's frames: `require` has returned.
        let count = unsafe { sys::sh_rx_queue_count(self.lease.port_id(), self.index) };
        usize::try_from(count).ok()
    }

    /// Checks a file for its end: the reader blocks, so an empty poll is the end, unless there was
    /// no mbuf.
    #[cold]
    fn look_for_end(&mut self) {
        // SAFETY: 1. The port exists, by the invariant of `lease`: `poll` has checked that it is
        // inside, and that the stack has room.
        let Ok(stats) = (unsafe { stats::read(self.lease.port_id()) }) else { return };
        self.finished = stats.rx_nombuf == self.lost;
        self.lost = stats.rx_nombuf;
    }

    /// Counts the first `count` mbufs if the driver does not, and removes those that may not be
    /// passed on. Returns the number of mbufs left, at the front.
    #[inline(never)]
    fn look(&self, slots: &mut [MaybeUninit<Mbuf>], count: usize) -> usize {
        if self.counts {
            self.port.polled.fetch_add(count as u64, Relaxed);
        }
        // SAFETY: 1. rte_ethdev.h: the driver has written `count` slots, with pointers to mbufs,
        // which are not null.
        let heads = unsafe { slice::from_raw_parts(slots.as_ptr().cast(), count) };
        if self.all_valid(heads) { count } else { self.check_each(slots, count) }
    }

    /// Whether a single check of the burst shows that every packet may be passed on.
    #[inline(always)]
    fn all_valid(&self, received: &[NonNull<RawMbuf>]) -> bool {
        let Some(buffer_bytes) = self.checked_bytes else {
            return !self.may_be_shared || self.are_single::<false>(received);
        };
        if self.may_be_shared {
            return self.are_single::<true>(received);
        }
        // SAFETY: 1. The driver takes mbufs fresh from the port's pool, by the invariant of
        // `may_be_shared`, and counts the segments it links: `driver`. 2. `start` read the buffers' size
        // from the pool. 3. The mbufs are this thread's now.
        unsafe { lengths::agree_in_burst(received, buffer_bytes) }
    }

    /// Whether all are single mbufs with their own buffers and no other owner, judged by one cache
    /// line of each, and, if lengths must be checked, have lengths that agree. If so, sets their
    /// port.
    #[inline(always)]
    fn are_single<const CHECKED: bool>(&self, received: &[NonNull<RawMbuf>]) -> bool {
        let (mut differing, mut flags) = (0, 0);
        for head in received {
            // SAFETY: 1. A reference to it came with it. 2. Nobody writes to an mbuf with several
            // owners, except to its refcnt, which is an atomic.
            let head = unsafe { head.as_ref() };
            differing |= u32::from((head.refcnt.load(Relaxed) ^ 1) | (head.nb_segs ^ 1));
            flags |= head.ol_flags;
            if CHECKED {
                let end = u32::from(head.data_off) + u32::from(head.data_len);
                differing |= head.pkt_len ^ u32::from(head.data_len);
                differing |= u32::from(end > u32::from(head.buf_len));
            }
        }
        if differing != 0 || flags & (sys::SH_MBUF_INDIRECT | sys::SH_MBUF_EXTERNAL) != 0 {
            return false;
        }
        // Orders everything that others did with it before they gave it up before its use here.
        fence(Acquire);
        for head in received {
            // SAFETY: 1. This thread is its only owner, as was checked.
            unsafe { (*head.as_ptr()).port = self.lease.port_id() };
        }
        true
    }

    /// Checks each of the first `count` mbufs: frees those with lengths that do not agree, and
    /// replaces those with other owners by copies. Returns the number of mbufs left, at the front.
    #[inline(never)]
    fn check_each(&self, slots: &mut [MaybeUninit<Mbuf>], count: usize) -> usize {
        let (mut kept, mut malformed) = (0, 0);
        for index in 0..count {
            // SAFETY: 1. rte_ethdev.h: the driver has written `count` slots, with pointers to
            // mbufs, which are not null; an `Mbuf` is one.
            let raw = unsafe { slots[index].as_ptr().cast::<NonNull<RawMbuf>>().read() };
            // SAFETY: 1. rte_mbuf.h: mbufs are linked to mbufs only, the last to a null pointer. 2.
            // Nobody writes to mbufs with several owners, and those with a single one came to this
            // thread.
            if self.checked_bytes.is_some() && !unsafe { lengths::agree(raw) } {
                // SAFETY: 1. The reference that came with it ends here. 2. rte_mbuf.h: frees each
                // linked segment, whatever count the head has.
                unsafe { sys::sh_mbuf_free(raw.as_ptr()) };
                malformed += 1;
                continue;
            }
            if let Some(mut mbuf) = self.exclusive(raw) {
                mbuf.set_ingress(PortId::new(self.lease.port_id()));
                slots[kept].write(mbuf);
                kept += 1;
            }
        }
        self.port.malformed.fetch_add(malformed, Relaxed);
        self.port.uncopied.fetch_add((count - kept) as u64 - malformed, Relaxed);
        kept
    }

    /// A received packet, or a copy if it has other owners and the pool has room for one.
    fn exclusive(&self, raw: NonNull<RawMbuf>) -> Option<Mbuf> {
        // SAFETY: 1. rte_mbuf.h: the chain ends with a null pointer. 2. A reference to it came with
        // it, and nobody writes to mbufs with several owners.
        if !self.may_be_shared || unsafe { mbuf::is_exclusive(raw) } {
            // SAFETY: 1. A chain, as above. Its mbufs are of the port's pool, or of the pool of a
            // packet that was sent; both live, and any thread may use them: `RawMempool`, `Mbuf`.
            // 2. It is owned by this thread only: fresh, by the invariant of `may_be_shared`, or as was
            // checked. 3. Its lengths agree: `check_each` has checked that, or the driver's always
            // do, by the invariant of `checked_bytes`.
            return Some(unsafe { Mbuf::from_raw(raw) });
        }
        // SAFETY: 1. The chain is valid: 1 and 3 as above. 2. Nobody writes to mbufs with several
        // owners.
        let copy = unsafe { mbuf::copy(raw) };
        // SAFETY: 1. The reference that came with it ends here.
        unsafe { sys::sh_mbuf_free(raw.as_ptr()) };
        copy
    }

    /// Polls a queue that only this value polls.
    #[inline(always)]
    fn poll_queue(&mut self, index: u16, burst: &mut Burst<Mbuf>) -> usize {
        let slots = burst.spare_mut();
        let wanted = slots.len() as u16;
        if wanted == 0 {
            return 0;
        }
        let pointers = slots.as_mut_ptr().cast::<*mut RawMbuf>();
        // SAFETY: 1. The port runs with this queue, or this spare one, which only this value polls,
        // and this value is borrowed exclusively: the invariants of `lease`, `index` and `spare`;
        // `poll` has checked that it is inside. 2. There is room for `wanted` pointers, and an
        // `Mbuf` is one. 3. The stack has room for the driver's frames, as `poll` has checked, too.
        let received = unsafe { sys::sh_rx_burst(self.lease.port_id(), index, pointers, wanted) };
        if received == 0 {
            if self.reads_file {
                self.look_for_end();
            }
            return 0;
        }
        let mut count = usize::from(received);
        if !self.is_plain {
            count = self.look(slots, count);
        }
        // SAFETY: 1. The slots come from `spare_mut`, and the burst has not changed since.
        // 2. rte_ethdev.h: the first `count` hold mbufs that are the caller's. They fulfil `Mbuf`'s
        //    invariants: 1. they are of the port's pool, or of the pool of a packet that was sent;
        //    2. they are exclusive, since the driver takes them fresh, by the invariants of `may_be_shared`
        //    and `is_plain`, or as `are_single` has checked; 3. their lengths agree, as `all_valid`
        //    has checked, or as they always do, by the invariants of `checked_bytes` and
        //    `is_plain`; or `check_each` has shown all three. rte_mbuf_check of DPDK: no segment
        //    follows if `nb_segs` is 1.
        unsafe { burst.assume_pushed(count) };
        count
    }

    /// Polls this and the spare queues, beginning with another one each time, so that none starves.
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

    /// # Panics
    /// If less than 256 KiB of the thread's stack are left, or if its stack pointer is outside the
    /// stack that the system gave it. Nothing was received then.
    #[inline(always)]
    fn poll(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        if !self.lease.is_inside(&self.port.gate) {
            return 0;
        }
        stack::require();
        if self.spare.is_empty() {
            return self.poll_queue(self.index, burst);
        }
        self.poll_with_spare(burst)
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.port.start(limits)?;
        self.checked_bytes = self.port.checked_bytes();
        self.is_plain = !self.may_be_shared && self.checked_bytes.is_none() && !self.counts;
        self.lease.validate();
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

    fn waiting_count(&mut self) -> Option<usize> {
        self.rx_queue_count()
    }

    fn finished(&self) -> bool {
        self.finished
    }
}

impl Drop for RxQueue {
    fn drop(&mut self) {
        self.lease.leave(&self.port.gate);
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

#[cfg(test)]
mod tests {
    use crate::{Eal, Mbuf, Mempool, Port};
    use hotloop_dpdk_sys::RawMbuf;
    use hotloop_packet::PacketBuf;
    use hotloop_stage::{Burst, Core, Limits, Sink, Source};

    /// A packet of two segments, of 1,000 bytes and of 500.
    fn chain(pool: &Mempool) -> Mbuf {
        let (mut head, mut rest) = (pool.alloc().unwrap(), pool.alloc().unwrap());
        head.append(1000).unwrap();
        rest.append(500).unwrap();
        let mut head = head.into_raw();
        // SAFETY: a fresh mbuf with no other owner.
        let fields = unsafe { head.as_mut() };
        (fields.nb_segs, fields.pkt_len) = (2, 1500);
        fields.next = rest.into_raw().as_ptr();
        // SAFETY: the chain is valid, exclusive, and given away.
        unsafe { Mbuf::from_raw(head) }
    }

    fn single(pool: &Mempool) -> Mbuf {
        let mut mbuf = pool.alloc().unwrap();
        mbuf.append(1000).unwrap();
        mbuf
    }

    type Plant = fn(&mut RawMbuf);

    /// Errors that a driver may make in the head of a single segment.
    const OF_SINGLES: [(&str, Plant); 9] = [
        ("a longer packet", |head| head.pkt_len += 1),
        ("a packet longer by 65,536", |head| head.pkt_len += 65_536),
        ("a shorter packet", |head| head.pkt_len = 0),
        ("more data than the packet", |head| head.data_len += 1),
        ("data past the buffer", |head| (head.data_len, head.pkt_len) = (2049, 2049)),
        ("data far past the buffer", |head| (head.data_len, head.pkt_len) = (65_535, 65_535)),
        ("an offset past the buffer", |head| head.data_off = 1177),
        ("an offset far past the buffer", |head| head.data_off = u16::MAX),
        ("two segments that are one", |head| head.nb_segs = 2),
    ];

    /// Errors that a driver may make in a chain.
    const OF_CHAINS: [(&str, Plant); 7] = [
        ("more segments", |head| head.nb_segs = 3),
        ("65,535 segments", |head| head.nb_segs = u16::MAX),
        ("a longer packet", |head| head.pkt_len = 1501),
        ("the packet of the first segment", |head| head.pkt_len = 1000),
        ("one segment that is two", |head| head.nb_segs = 1),
        // SAFETY: the chain of `chain`, which has no other owner.
        ("data past the second buffer", |head| unsafe { (*head.next).data_len = 2049 }),
        // SAFETY: as above.
        ("a second offset past its buffer", |head| unsafe { (*head.next).data_off = 2000 }),
    ];

    /// Errors that are only possible in drivers whose mbufs aren't fresh from a pool.
    const OF_OTHERS: [(&str, bool, Plant); 2] = [
        ("no segment", false, |head| head.nb_segs = 0),
        ("an uncounted segment", true, |head| (head.nb_segs, head.pkt_len) = (1, 1000)),
    ];

    #[test]
    fn packets_whose_lengths_do_not_agree_are_freed_and_counted() {
        let eal = Eal::embedded_or_current().unwrap();
        let port = Port::open(eal, "net_ring_rx").unwrap();
        let core = Core::new(0, 1);
        let (mut rx, mut tx) = (port.rx_queue(&core).unwrap(), port.tx_queue(&core).unwrap());
        let limits = Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false };
        rx.start(&limits).unwrap();
        tx.start(&limits).unwrap();
        let pool = port.mempool().unwrap();
        assert_eq!(rx.checked_bytes, None);
        rx.checked_bytes = Some(u32::from(pool.config().data_room_bytes));
        rx.is_plain = false;

        let singles = OF_SINGLES.map(|(what, plant)| (what, false, plant));
        let chains = OF_CHAINS.map(|(what, plant)| (what, true, plant));
        let (mut received, mut malformed) = (0, 0);
        // Beside a chain, each mbuf is checked separately; beside single segments, all are first
        // checked in one pass.
        for (may_be_shared, beside) in
            [(false, single as fn(&_) -> _), (false, chain), (true, single), (true, chain)]
        {
            rx.may_be_shared = may_be_shared;
            let beside_chain = beside(&pool).segments().count() == 2;
            let others = OF_OTHERS.iter().filter(|_| may_be_shared && beside_chain);
            for (what, is_chain, plant) in singles.iter().chain(&chains).chain(others) {
                let mut sent = Burst::new();
                sent.extend([single(&pool), beside(&pool), single(&pool)]);
                sent.extend((0..5).map(|_| single(&pool)));
                let planted = if *is_chain { chain(&pool) } else { single(&pool) };
                let mut raw = planted.into_raw();
                // SAFETY: an exclusive mbuf, as a driver has it.
                plant(unsafe { raw.as_mut() });
                // SAFETY: none: the mbuf is as a driver would pass it on, and net_ring reads none
                // of it.
                sent.push(unsafe { Mbuf::from_raw(raw) });
                sent.push(single(&pool));
                assert_eq!(tx.send(&mut sent), 10);

                let mut burst = Burst::new();
                assert_eq!(rx.poll(&mut burst), 9, "{what}, may be shared: {may_be_shared}");
                for mbuf in burst.as_slice() {
                    let len_bytes = mbuf.segments().map(<[u8]>::len).sum::<usize>();
                    assert_eq!(mbuf.len_bytes(), len_bytes, "{what}");
                }
                (received, malformed) = (received + 9, malformed + 1);
                let stats = port.stats().unwrap();
                assert_eq!((stats.received, stats.rx_malformed), (received, malformed), "{what}");
            }
        }
        drop((rx, tx));
        port.stop().unwrap();
        assert!(pool.report().is_whole(), "{}", pool.report());
    }

    #[test]
    fn one_look_at_a_burst_of_single_segments_is_enough() {
        let eal = Eal::embedded_or_current().unwrap();
        let pool = Mempool::new(eal, &crate::MempoolConfig::default()).unwrap();
        let mut raws = Vec::new();
        for count in 1..=64 {
            let mut mbuf = pool.alloc().unwrap();
            mbuf.append(32 * count % 2048).unwrap();
            raws.push(mbuf.into_raw());
            // SAFETY: 1 and 2. Fresh mbufs of the pool, with data appended. 3. Nobody else has them.
            assert!(unsafe { super::lengths::agree_in_burst(&raws, 2176) });
        }
        // SAFETY: each was given up above.
        raws.into_iter().for_each(|raw| drop(unsafe { Mbuf::from_raw(raw) }));
        assert!(pool.report().is_whole());
    }
}
