//! testpmd's forwarding loops and a UDP sink, in C, over ports of this process.

use hotloop::dpdk::{Port, RxQueue, TxQueue};
use hotloop::stage::{BURST_CAPACITY, Core, Error, Limits, Sink, Source};

/// Maximum burst of the loop in C.
const BURST_MAX: u16 = 64;

unsafe extern "C" {
    fn peer_forward(from: u16, to: u16, count: u64, burst: u16, swaps: i32) -> u64;
    fn peer_receive(from: u16, count: u64, burst: u16) -> u64;
    fn peer_sink(from: u16, burst: u16, port: u16, bytes: &mut u64) -> u64;
}

/// The first RX queue of a port, which runs until this is dropped: nothing else polls the queue.
#[derive(Debug)]
pub struct From {
    pub(super) port: u16,
    _queue: RxQueue,
}

/// The first TX queue of a port, likewise.
#[derive(Debug)]
pub struct To {
    pub(super) port: u16,
    _queue: TxQueue,
}

const LIMITS: Limits =
    Limits { in_flight_max: 4 * BURST_CAPACITY, thread_count: 2, is_pipeline: false };

impl From {
    /// Claims the queue for the calling thread, and starts the port.
    ///
    /// # Errors
    /// If the queue is already claimed, or if the port does not start.
    pub fn claim(port: &Port) -> Result<Self, Error> {
        Self::claim_with(port, &LIMITS)
    }

    /// Claims the queue for the calling thread, and starts the port with these limits.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    pub fn claim_with(port: &Port, limits: &Limits) -> Result<Self, Error> {
        let mut queue = port.rx_queue(&Core::new(0, 1))?;
        queue.start(limits)?;
        Ok(Self { port: port.id()?.number(), _queue: queue })
    }
}

impl To {
    /// Claims the queue for the calling thread, and starts the port.
    ///
    /// # Errors
    /// If the queue is already claimed, or if the port does not start.
    pub fn claim(port: &Port) -> Result<Self, Error> {
        let mut queue = port.tx_queue(&Core::new(0, 1))?;
        queue.start(&LIMITS)?;
        Ok(Self { port: port.id()?.number(), _queue: queue })
    }
}

/// Forwards from one port to another.
#[derive(Debug)]
pub struct OneWay {
    from: From,
    to: To,
}

impl OneWay {
    /// Claims the first queue of each port, and starts both ports.
    ///
    /// # Errors
    /// If a queue is already claimed, or if a port does not start.
    pub fn new(from: &Port, to: &Port) -> Result<Self, Error> {
        Ok(Self { from: From::claim(from)?, to: To::claim(to)? })
    }

    /// Forwards at least `count` packets in bursts of `burst`, and swaps their Ethernet addresses
    /// if `swaps`. Returns their number.
    ///
    /// # Panics
    /// If `burst` is 0 or above 64.
    pub fn forward(&mut self, count: u64, burst: u16, swaps: bool) -> u64 {
        assert!((1..=BURST_MAX).contains(&burst));
        // SAFETY: 1. Both ports run, with a queue 0, as long as `from` and `to` are held. 2. Only
        // this value holds these, and it is borrowed mutably: no other thread polls them. 3.
        // `burst` fits the loop.
        unsafe { peer_forward(self.from.port, self.to.port, count, burst, i32::from(swaps)) }
    }
}

impl From {
    /// Receives at least `count` packets in full bursts, and frees them. Returns their number.
    pub fn receive(&mut self, count: u64) -> u64 {
        // SAFETY: 1. The port runs, with a queue 0, as long as this is held. 2. It is borrowed mutably: no other thread
        // polls the queue. 3. The burst fits the loop.
        unsafe { peer_receive(self.port, count, BURST_MAX) }
    }

    /// Receives a burst and frees it. Returns the number of datagrams to UDP port `port`, and adds
    /// the bytes of their payloads to `payload_bytes`.
    pub fn sink(&mut self, port: u16, payload_bytes: &mut u64) -> u64 {
        // SAFETY: 1. The port runs, with a queue 0, as long as this is held. 2. It is borrowed mutably: no other thread
        // polls the queue. 3. The burst fits the loop.
        unsafe { peer_sink(self.port, BURST_MAX, port, payload_bytes) }
    }
}
