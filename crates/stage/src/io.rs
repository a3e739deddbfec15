//! Where packets come from and where they go.

use crate::{Burst, Error, Limits};
use std::fmt;
use std::sync::Arc;

/// Where packets come from: an RX queue, memory in tests.
///
/// [`poll`](Self::poll) may not block, allocate, lock or make a system call in steady state.
pub trait Source {
    /// What it yields.
    type Item;

    /// Puts what has arrived into `burst`, at most as many as its [`room`](Burst::room), and says
    /// how many.
    fn poll(&mut self, burst: &mut Burst<Self::Item>) -> usize;

    /// Called once, after every core has claimed its queues and before the first poll: sizes pools,
    /// starts devices.
    ///
    /// # Errors
    /// Whatever keeps the device from starting; the engine does not run then.
    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        let _ = limits;
        Ok(())
    }

    /// Its devices, whose own counters and pools the engine compares with what it counted.
    /// A device with several queues is returned by each; the engine knows it by its name.
    fn devices(&self) -> Vec<Arc<dyn Device>> {
        Vec::new()
    }

    /// Whether it can wait, as a file can: then it is polled only for what the rings have room for,
    /// and each group of cores takes from its rings only what the rings of the next have room for. So
    /// nothing is dropped as `ring_full`, unless a stage creates packets or gives up held ones in its
    /// `tick` or `finish`, or more in `process` than its [`growth_max`](crate::BurstStage::growth_max).
    fn lossless(&self) -> bool {
        false
    }

    /// Whether it creates its packets, as a traffic generator does: they count as created, not as
    /// received.
    ///
    /// ```
    /// use hotloop_packet::{build::udp, memory::MemPacket};
    /// use hotloop_stage::{Burst, Source};
    ///
    /// /// Creates so many packets.
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

    /// The number of packets that wait in it to be polled; nothing where it does not know. The engine
    /// asks once in 64 turns, on the thread that polls. As [`poll`](Self::poll), it may not block,
    /// allocate, lock or make a system call.
    fn waiting_count(&mut self) -> Option<usize> {
        None
    }

    /// Whether nothing will ever come again.
    fn finished(&self) -> bool {
        false
    }
}

/// Where packets go: a TX queue, memory in tests.
pub trait Sink {
    /// What it takes.
    type Item;

    /// Sends from the front of `burst` what it can, leaves the unsent in it, and says how many went.
    fn send(&mut self, burst: &mut Burst<Self::Item>) -> usize;

    /// How many packets it has taken and dropped since it was made, because the device can't send
    /// packets of their kind, whenever that may be. They are not among those that
    /// [`send`](Self::send) says went; the engine counts them as `tx_refused`.
    fn refused_count(&self) -> u64 {
        0
    }

    /// Called by the engine every 64 turns of the sink's core, whether or not there is something to
    /// send: looks after whatever is to be done meanwhile. As [`send`](Self::send), it may not block,
    /// allocate, lock or make a system call.
    fn maintain(&mut self) {}

    /// As [`Source::start`].
    ///
    /// # Errors
    /// Whatever keeps the device from starting; the engine does not run then.
    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        let _ = limits;
        Ok(())
    }

    /// As [`Source::devices`].
    fn devices(&self) -> Vec<Arc<dyn Device>> {
        Vec::new()
    }
}

/// A device with counters and pools of its own, which outlives the queues taken from it.
pub trait Device: Send + Sync {
    /// Its name, the same for every queue of it.
    fn name(&self) -> String;

    /// What it counted since it was started. It goes on answering after [`stop`](Self::stop).
    fn counters(&self) -> DeviceCounters;

    /// Whether packets can pass; nothing where the device has no link, or does not say. For the
    /// control thread: it makes system calls.
    fn link_state(&self) -> Option<LinkState> {
        None
    }

    /// Every figure that the device has, by its own name, such as DPDK's xstats; empty where it has
    /// none. For the control thread: it makes system calls.
    fn xstats(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Opens it again, where its interface has gone and one of the same name is there. For the control
    /// thread, which calls it until it is [`Reopening::Done`]: queues that are being polled have to
    /// let go of the device first.
    ///
    /// # Errors
    /// Why it could not be opened; it may be tried again.
    fn reopen(&self) -> Result<Reopening, Error> {
        Ok(Reopening::Impossible)
    }

    /// Stops it. Called after every queue of it was dropped and the threads that polled them were
    /// joined, so that what its descriptors hold goes back to the pools.
    ///
    /// # Errors
    /// What the device says; the engine reports it and fails the run.
    fn stop(&self) -> Result<(), Error>;

    /// Looks whether every packet of its pools is back, each exactly once. Called after every
    /// device of the run was stopped. The error says which pool lacks what.
    ///
    /// # Errors
    /// A pool that is not whole.
    fn check_pools(&self) -> Result<(), Error>;
}

/// The state of a device's link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkState {
    /// Packets can pass.
    Up,
    /// The other end, or an administrator, has taken it down; it may come up again.
    Down,
    /// The interface that the device is on has gone. One that comes back, under the same name too, is
    /// another one: [`Device::reopen`].
    Gone,
}

/// How far a device has come that is to be opened again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reopening {
    /// It is not possible with this device.
    Impossible,
    /// There is no interface of its name yet, or its queues have not let go of the device.
    Waiting,
    /// Packets can pass again, or always could.
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

/// A device's own counters, in packets where nothing else is said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceCounters {
    /// Packets handed to its RX queues' pollers.
    pub received: u64,
    /// Packets taken over by its TX queues.
    pub sent: u64,
    /// Of those, the ones that it then could not send.
    pub tx_failed: u64,
    /// Bytes of those received; nothing where the device does not count bytes.
    pub received_bytes: Option<u64>,
    /// Bytes of those sent, likewise.
    pub sent_bytes: Option<u64>,
    /// Packets lost because no RX descriptor was free; nothing where the device does not know.
    pub imissed: Option<u64>,
    /// Packets lost because no mbuf was free.
    pub rx_nombuf: u64,
    /// Packets that arrived on queues that nobody claimed, and were freed.
    pub rx_unclaimed: u64,
    /// Packets dropped because the lengths that their driver wrote do not agree.
    pub rx_malformed: u64,
    /// How often it was opened again: [`Device::reopen`].
    pub reopened: u64,
}

impl Default for DeviceCounters {
    /// Nothing passed, and nothing was lost.
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
