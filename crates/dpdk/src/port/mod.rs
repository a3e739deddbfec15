//! Ports: devices with queues.

mod config;
mod counters;
mod gate;
mod inner;
mod interface;
mod plug;
mod reopen;
mod rss;
mod rx;
mod sockets;
mod spare;
mod start;
mod stats;
mod tx;

use crate::device::DeviceString;
use crate::error::Direction;
use crate::{Eal, Error, Mempool, lcore};
use hotloop_packet::PortId;
use hotloop_packet::ethernet::MacAddress;
use hotloop_stage::Core;
use inner::Inner;
use std::fmt;
use std::sync::Arc;

pub use config::{Capabilities, Link, PortConfig, RSS_KEY_SYMMETRIC, RssConfig};
pub use rss::RssFields;
pub use rx::RxQueue;
pub use stats::PortStats;
pub use tx::TxQueue;

/// A device that receives and sends packets.
///
/// A core claims a queue with [`rx_queue`](Self::rx_queue) or [`tx_queue`](Self::tx_queue). The
/// device is configured and started with its first queue, and with all queues claimed by then. It
/// stops when [`stop`](Self::stop) is called after all of them were dropped, or when the port and
/// its queues are dropped. The device is then closed and removed from EAL, and all of its mbufs
/// return to their pool. Claiming a queue adds it to EAL again.
///
/// ```
/// use hotloop_dpdk::{Eal, Port};
/// use hotloop_stage::{Burst, Core, Limits, Sink, Source};
///
/// let port = Port::open(Eal::embedded()?, "net_null0,size=60")?;
/// let core = Core::new(0, 1);
/// let (mut rx, mut tx) = (port.rx_queue(&core)?, port.tx_queue(&core)?);
/// let limits = Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false };
/// (rx.start(&limits)?, tx.start(&limits)?);
///
/// let mut burst = Burst::new();
/// assert_eq!(rx.poll(&mut burst), 64);
/// assert_eq!(tx.send(&mut burst), 64);
/// assert_eq!(port.stats()?.sent, 64);
///
/// drop((rx, tx));
/// port.stop()?;
/// assert!(port.mempool().is_some_and(|pool| pool.report().is_whole()));
/// # Ok::<(), hotloop_stage::Error>(())
/// ```
#[derive(Clone)]
pub struct Port {
    eal: Eal,
    inner: Arc<Inner>,
}

impl Port {
    /// Opens a device: a virtual one by its device string (`net_null0,size=64`), or one on the PCI
    /// bus by its address (`0000:01:00.0`), which EAL has already or adds now.
    ///
    /// # Errors
    /// [`Error::DeviceString`] for a string that names no supported device, that has an argument
    /// without a value or with one that would make the driver hang or lose mbufs, or that is a
    /// net_memif device ([`open_trusting_peer`](Self::open_trusting_peer) opens those).
    /// [`Error::DeviceInUse`] if a port of this process has the device. [`Error::Probe`] if its
    /// driver does not take it.
    pub fn open(eal: Eal, device: &str) -> Result<Self, Error> {
        Self::open_with(eal, device, PortConfig::default())
    }

    /// [`open`](Self::open) with a configuration. Features that the device lacks are an error when
    /// its queues are started.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(eal: Eal, device: &str, config: PortConfig) -> Result<Self, Error> {
        let device = DeviceString::parse(device)?;
        device.refuse_peer()?;
        Ok(Self { eal, inner: Arc::new(Inner::open(eal, device, config)?) })
    }

    /// [`open_with`](Self::open_with) that also opens net_memif devices, which share memory with
    /// the process at the other end.
    ///
    /// When that process closes its end or ends, a thread of EAL's unmaps the memory, whether or
    /// not queues of this port are being polled, and may find a closed descriptor and end this
    /// process. No way for a user of DPDK to prevent this is known, on 22.11, 24.11 or 25.11.
    /// Polling only while the link is up leaves the time between the two. If EAL's thread is held
    /// up in a signal handler during each poll, no poll is affected, but EAL still ends the
    /// process, or hangs.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    ///
    /// # Safety
    /// While a queue of a net_memif device's port is held, the process at its other end
    /// 1. must neither close its end nor end, and
    /// 2. must write to the shared memory only as the memif protocol allows.
    pub unsafe fn open_trusting_peer(
        eal: Eal,
        device: &str,
        config: PortConfig,
    ) -> Result<Self, Error> {
        let device = DeviceString::parse(device)?;
        Ok(Self { eal, inner: Arc::new(Inner::open(eal, device, config)?) })
    }

    /// Claims the next RX queue, registers the calling thread with EAL until the thread ends, and
    /// sets the core's lcore id.
    ///
    /// # Errors
    /// [`Error::TooManyQueues`] if the device has no more, [`Error::ClaimedAfterStart`] while
    /// queues of an earlier start are held, [`Error::NoLcore`] if EAL takes no more threads, and
    /// [`Error::Probe`] if the device had stopped and cannot be added to EAL again.
    pub fn rx_queue(&self, core: &Core) -> Result<RxQueue, Error> {
        core.set_lcore(lcore::register(self.eal)?);
        let index = self.inner.claim(Direction::Rx)?;
        Ok(RxQueue::new(Arc::clone(&self.inner), index))
    }

    /// [`rx_queue`](Self::rx_queue) for a TX queue.
    ///
    /// # Errors
    /// As for [`rx_queue`](Self::rx_queue).
    pub fn tx_queue(&self, core: &Core) -> Result<TxQueue, Error> {
        core.set_lcore(lcore::register(self.eal)?);
        let index = self.inner.claim(Direction::Tx)?;
        Ok(TxQueue::new(Arc::clone(&self.inner), index))
    }

    /// Stops the device, closes it and removes it from EAL. After that, the device holds no mbufs,
    /// and its files are complete. Its counters can still be read.
    ///
    /// # Errors
    /// [`Error::QueuesHeld`] while a queue is held, [`Error::Configure`] if the device does not close.
    pub fn stop(&self) -> Result<(), Error> {
        self.inner.stop()
    }

    /// The device's name: its string up to the first comma.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.device.name()
    }

    /// The properties of the device.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    /// The port's id, which its received packets report as their
    /// [`PacketBuf::ingress`](hotloop_packet::PacketBuf::ingress). Another port may get the id after this
    /// one has stopped.
    ///
    /// # Errors
    /// [`Error::Read`] after the port has stopped.
    pub fn id(&self) -> Result<PortId, Error> {
        self.inner.with_port("its id", |number| Ok(PortId::new(number)))
    }

    /// Whether frames can be addressed to the device's own MAC address. Files, rings and shared
    /// memory have a made-up [`mac`](Self::mac).
    #[must_use]
    pub fn has_own_mac(&self) -> bool {
        self.inner.driver.has_own_mac
    }

    /// The device's MAC address.
    #[must_use]
    pub fn mac(&self) -> MacAddress {
        self.inner.mac
    }

    /// The state of the device's link.
    ///
    /// # Errors
    /// [`Error::Read`] after the port has stopped.
    pub fn link(&self) -> Result<Link, Error> {
        self.inner.link()
    }

    /// The length in bytes of the largest packet, without Ethernet header.
    ///
    /// # Errors
    /// [`Error::Read`] after the port has stopped.
    pub fn mtu(&self) -> Result<u16, Error> {
        self.inner.mtu()
    }

    /// The length in bytes to which the device cuts longer frames that it passes on. Only
    /// net_af_packet does that, by its ring's frame size. It makes the kernel reassemble IPv4
    /// fragments, from DPDK 25.03 on if it has several queues, and the kernel may join packets
    /// (GRO), so frames may be longer than on the wire. `None` for devices that drop frames that
    /// are too long.
    #[must_use]
    pub fn cut_bytes(&self) -> Option<u16> {
        self.inner.cut_bytes()
    }

    /// The counts since the device was last started.
    ///
    /// # Errors
    /// [`Error::Read`] if the device does not report them.
    pub fn stats(&self) -> Result<PortStats, Error> {
        self.inner.stats()
    }

    /// All of the device's counters, by their own names.
    ///
    /// # Errors
    /// [`Error::Read`] after the port has stopped, or if the device does not report them.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>, Error> {
        self.inner.xstats()
    }

    /// The pool for received packets since the last start.
    #[must_use]
    pub fn mempool(&self) -> Option<Mempool> {
        self.inner.mempool()
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Port").field(&self.inner.device.text()).finish()
    }
}
