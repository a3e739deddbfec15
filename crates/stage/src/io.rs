//! Sources and sinks of packets.

use crate::{Burst, Error, Limits};
use std::fmt;
use std::sync::Arc;

/// A source of packets: an RX queue, or memory in tests.
///
/// [`poll`](Self::poll) may not block, allocate, lock or make a system call in steady state.
pub trait Source {
    /// The items that the source yields.
    type Item;

    /// Puts the arrived items into `burst`, at most its [`room`](Burst::room), and returns their
    /// number.
    fn poll(&mut self, burst: &mut Burst<Self::Item>) -> usize;

    /// Called once, after every core has claimed its queues and before the first poll: sizes pools,
    /// starts devices.
    ///
    /// # Errors
    /// If the device can't start; the engine does not run then.
    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        let _ = limits;
        Ok(())
    }

    /// The source's devices. The engine compares their own counters and pools with its counts. A
    /// device with several queues is returned by each of them; the engine identifies it by its
    /// name.
    fn devices(&self) -> Vec<Arc<dyn Device>> {
        Vec::new()
    }

    /// Whether the source can wait, like a file: then it is polled only for packets that find room in
    /// the rings, and each group of cores takes from its rings only packets that find room in the
    /// next group's rings. So nothing is dropped as `ring_full`, unless a stage creates
    /// packets or releases held ones in its `tick` or `finish`, or more in `process` than its
    /// [`growth_max`](crate::BurstStage::growth_max).
    fn lossless(&self) -> bool {
        false
    }

    /// Whether the source creates its packets, like a traffic generator: they count as created, not
    /// as received.
    ///
    /// ```
    /// use hotloop_packet::{build::udp, memory::MemPacket};
    /// use hotloop_stage::{Burst, Source};
    ///
    /// /// Creates this number of packets.
    /// struct Generator(usize);
    ///
    /// impl Source for Generator {
    ///     type Item = MemPacket;
    ///
    ///     fn poll(&mut self, burst: &mut Burst<MemPacket>) -> usize {
    ///         let count = burst.room().min(self.0);
    ///         burst.extend((0..count).map(|_| udp().packet_in_memory()));
    ///         self.0 -= count;
    ///         count
    ///     }
    ///
    ///     fn creates(&self) -> bool {
    ///         true
    ///     }
    ///
    ///     fn finished(&self) -> bool {
    ///         self.0 == 0
    ///     }
    /// }
    ///
    /// let mut burst = Burst::new();
    /// assert_eq!((Generator(100).poll(&mut burst), burst.len()), (64, 64));
    /// ```
    fn creates(&self) -> bool {
        false
    }

    /// Number of packets that wait to be polled; `None` if unknown. The engine asks once in 64
    /// turns, on the thread that polls. Like [`poll`](Self::poll), it may not block, allocate, lock
    /// or make a system call.
    fn waiting_count(&mut self) -> Option<usize> {
        None
    }

    /// Called when the run ends: from then on, nothing is taken from the device. Returns whether
    /// there are items that were taken before and not yielded yet; then the engine goes on to poll
    /// until the source has [finished](Self::finished). Otherwise it polls no more. A source that
    /// wraps another one passes the call on.
    fn stop(&mut self) -> bool {
        false
    }

    /// Whether no packet will ever come again.
    fn finished(&self) -> bool {
        false
    }
}

/// A sink of packets: a TX queue, or memory in tests.
pub trait Sink {
    /// The items that the sink takes.
    type Item;

    /// Sends items from the front of `burst`, leaves the unsent ones there, and returns the number
    /// of items sent.
    fn send(&mut self, burst: &mut Burst<Self::Item>) -> usize;

    /// Number of packets that it has taken and dropped since it was made, because the device can't
    /// send packets of their kind at any time. They are not included in the results of
    /// [`send`](Self::send); the engine counts them as `tx_refused`.
    fn refused_count(&self) -> u64 {
        0
    }

    /// Called by the engine every 64 turns of the sink's core, even if it has no packets to send: does the sink's other work. Like [`send`](Self::send), it may not block, allocate,
    /// lock or make a system call.
    fn maintain(&mut self) {}

    /// Like [`Source::start`].
    ///
    /// # Errors
    /// If the device can't start; the engine does not run then.
    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        let _ = limits;
        Ok(())
    }

    /// Like [`Source::devices`].
    fn devices(&self) -> Vec<Arc<dyn Device>> {
        Vec::new()
    }
}

/// A device with its own counters and pools, which outlives its queues.
pub trait Device: Send + Sync {
    /// The device's name, the same for all of its queues.
    fn name(&self) -> String;

    /// The device's counts since it was started. Also valid after [`stop`](Self::stop).
    fn counters(&self) -> DeviceCounters;

    /// Whether packets can pass; `None` if the device has no link, or does not report it. For the
    /// control thread: it makes system calls.
    fn link_state(&self) -> Option<LinkState> {
        None
    }

    /// Every figure of the device, by its own name, such as DPDK's xstats; empty without figures.
    /// For the control thread: it makes system calls.
    fn xstats(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Opens the device again, if its interface has gone and another one with the same name exists.
    /// For the control thread, which calls this until it returns [`Reopening::Done`]: queues that
    /// are being polled must let go of the device first.
    ///
    /// # Errors
    /// If it could not be opened; the caller may try again.
    fn reopen(&self) -> Result<Reopening, Error> {
        Ok(Reopening::Impossible)
    }

    /// Stops the device, if it needs that. Called after every queue was dropped and the threads that polled them were
    /// joined, so that the packets in its descriptors go back to the pools.
    ///
    /// # Errors
    /// The device's error; the engine reports it and fails the run.
    fn stop(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Checks that every packet of its pools, if any, is back, each exactly once. Called after every device
    /// of the run was stopped. The error names the pool and its missing packets.
    ///
    /// # Errors
    /// If a pool is not whole.
    fn check_pools(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// The state of a device's link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkState {
    /// Packets can pass.
    Up,
    /// The other end, or an administrator, has taken the link down; it may come up again.
    Down,
    /// The device's interface has gone. If one comes back, also under the same name, it is another
    /// interface: [`Device::reopen`].
    Gone,
}

/// The progress of opening a device again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reopening {
    /// This device can't be opened again.
    Impossible,
    /// There is no interface with its name yet, or its queues have not let go of the device.
    Waiting,
    /// Packets can pass again, or could all the time.
    Done,
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Gone => "gone",
        })
    }
}

/// A device's own counters, in packets unless the field states another unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceCounters {
    /// Packets delivered by its RX queues.
    pub received: u64,
    /// Packets accepted by its TX queues.
    pub sent: u64,
    /// The part of `sent` that it then could not send.
    pub tx_failed: u64,
    /// Bytes of the received packets; `None` if the device does not count bytes.
    pub received_bytes: Option<u64>,
    /// Bytes of the sent packets, likewise.
    pub sent_bytes: Option<u64>,
    /// Packets lost because no RX descriptor was free; `None` if the device does not count them.
    pub imissed: Option<u64>,
    /// Packets lost because no mbuf was free.
    pub rx_nombuf: u64,
    /// Packets that arrived on queues without an owner, and were freed.
    pub rx_unclaimed: u64,
    /// Packets dropped because the lengths written by their driver do not agree.
    pub rx_malformed: u64,
    /// Number of times that it was opened again: [`Device::reopen`].
    pub reopened: u64,
}

impl Default for DeviceCounters {
    /// All counts are zero.
    fn default() -> Self {
        Self {
            received: 0,
            sent: 0,
            tx_failed: 0,
            received_bytes: None,
            sent_bytes: None,
            imissed: Some(0),
            rx_nombuf: 0,
            rx_unclaimed: 0,
            rx_malformed: 0,
            reopened: 0,
        }
    }
}
