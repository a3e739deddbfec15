//! testpmd's forwarding loops, in C, over ports of this process.

use hotloop::dpdk::{Port, RxQueue, TxQueue};
use hotloop::stage::{BURST_CAPACITY, Core, Error, Limits, Sink, Source};

/// The most packets of a burst that the loop in C has room for.
const BURST_MAX: u16 = 64;

unsafe extern "C" {
    fn peer_forward(from: u16, to: u16, count: u64, burst: u16, swaps: i32) -> u64;
}

/// From one port to another.
#[derive(Debug)]
pub struct Loop {
    from: u16,
    to: u16,
    /// The queues: nothing else polls them, and their ports run as long as they are claimed.
    _queues: (RxQueue, TxQueue),
}

impl Loop {
    /// Claims the first queue of each port, and starts both ports.
    ///
    /// # Errors
    /// Where a queue is claimed already, or a port does not start.
    pub fn new(from: &Port, to: &Port) -> Result<Self, Error> {
        let core = Core::new(0, 1);
        let (mut rx, mut tx) = (from.rx_queue(&core)?, to.tx_queue(&core)?);
        let limits = Limits { in_flight_max: BURST_CAPACITY, thread_count: 1 };
        rx.start(&limits)?;
        tx.start(&limits)?;
        Ok(Self { from: from.id()?.number(), to: to.id()?.number(), _queues: (rx, tx) })
    }

    /// Forwards at least `count` packets in bursts of `burst`, and swaps their Ethernet addresses where
    /// `swaps`. Returns how many.
    ///
    /// # Panics
    /// When `burst` is 0 or above 64.
    pub fn forward(&mut self, count: u64, burst: u16, swaps: bool) -> u64 {
        assert!((1..=BURST_MAX).contains(&burst));
        // SAFETY: 1. Both ports run, with a queue 0, as long as `_queues` are held. 2. These are held
        // by this value alone, which is borrowed mutably: no other thread polls them. 3. `burst` fits
        // the loop.
        unsafe { peer_forward(self.from, self.to, count, burst, i32::from(swaps)) }
    }
}
