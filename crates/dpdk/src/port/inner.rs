//! A port's state, shared by its handle and its queues.
//!
//! ```text
//!             claim a queue                first `start`              `stop`, every queue dropped
//! Plugged ───────────────────▶ Plugged ─────────────────▶ Started ───────────────────▶ Stopped
//!    ▲                                                                                   │
//!    └──────────────────────── claim a queue: plugged in anew ◀──────────────────────────┘
//! ```
//!
//! If the interface of a device was deleted, the device is closed and reopened while its queues are
//! held, once none of them is inside its [`Gate`]: `reopen`. If that fails half-way, the port is
//! `Away` until it succeeds or the port stops.
//!
//! Stopping also closes the device and plugs it out, so that it keeps no mbufs. If nobody has
//! stopped it, the last owner's drop does.

use super::config::{Capabilities, Link, PortConfig};
use super::gate::Gate;
use super::interface::Interface;
use super::sockets::{self, Sockets};
use super::stats::PortStats;
use super::{plug, spare, start, stats};
use crate::device::DeviceString;
use crate::device::driver::{self, Driver, Missed};
use crate::errno::errno_text;
use crate::error::Direction;
use crate::lock::{Control, lock};
use crate::{Eal, Error, Mempool, stack};
use hotloop_dpdk_sys as sys;
use hotloop_packet::ethernet::MacAddress;
use hotloop_stage::Limits;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The default frame size in bytes in net_af_packet's rings: `framesz=`.
const RING_FRAME_BYTES_DEFAULT: u16 = 2048;

/// Offset in bytes at which the kernel writes received packets into a frame: `TPACKET2_HDRLEN`,
/// with room for a link header of 16, aligned to 16, less an Ethernet header (`tpacket_rcv` in
/// net/packet/af_packet.c).
const RING_HEADER_BYTES: u16 = 80 - 14;

/// Maximum number of bursts freed from each unclaimed queue when a port stops: more than any ring
/// of a virtual device holds.
const DRAINED_BURSTS_MAX: usize = 256;

/// A port, owned by its handle and by each of its queues.
pub(crate) struct Inner {
    pub(super) device: DeviceString,
    pub(super) config: PortConfig,
    pub(super) capabilities: Capabilities,
    pub(super) mac: MacAddress,
    pub(super) driver: &'static Driver,
    pub(super) state: Mutex<State>,
    /// Open while the port runs.
    pub(super) gate: Gate,
    /// Received packets that had other owners and could not be copied.
    pub(super) uncopied: AtomicU64,
    /// Received packets with lengths that do not agree.
    pub(super) malformed: AtomicU64,
    /// Packets that RX queues got from the driver, if it forgets its counts.
    pub(super) polled: AtomicU64,
    /// Packets that the driver took from TX queues, if it forgets its counts.
    pub(super) taken: AtomicU64,
    /// Packets taken by TX queues and freed, since the device can't send packets of their kind.
    pub(super) refused: AtomicU64,
    /// How often the port was reopened since its start.
    pub(super) reopened: AtomicU64,
}

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) rx: Claims,
    pub(super) tx: Claims,
    /// The pool of the last start, kept after the stop so that it can be checked.
    pub(super) mempool: Option<Mempool>,
    /// The driver's sockets, if any, while the device is plugged in.
    pub(super) sockets: Sockets,
    /// The kernel's interface of the device while it is plugged in; while it is away, its last
    /// interface.
    pub(super) interface: Option<Interface>,
    /// The counts of the driver and the kernel from the start to the last close for a reopening.
    pub(super) earlier: PortStats,
}

#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// Not started. Invariant: the port exists, and no queue of it is polled. Set by `open` and
    /// `claim`, once `plug` has plugged it in.
    Plugged { port_id: u16 },
    /// Invariant: the port exists and runs with the claimed queues. Set by `start` and `reopen`;
    /// ended by `stop_with`, when no queue is held, and by `reopen`, when none is inside the gate.
    Started { port_id: u16, before: PortStats, limits: Limits },
    /// The port does not exist, although queues may be held: it could not be reopened. The gate is
    /// shut and empty.
    Away { port_id: u16, limits: Limits },
    /// The port does not exist.
    Stopped { counted: PortStats },
}

/// Held queues of one direction, by index.
#[derive(Default)]
pub(super) struct Claims(Vec<bool>);

impl Claims {
    /// The number of queues that the device needs.
    pub(super) fn count(&self) -> u16 {
        self.0.len() as u16
    }

    pub(super) fn held_count(&self) -> usize {
        self.0.iter().filter(|held| **held).count()
    }

    /// A queue that was claimed and is no longer held.
    pub(super) fn abandoned(&self) -> Option<u16> {
        self.0.iter().position(|held| !held).map(|index| index as u16)
    }

    /// The index that the next queue gets.
    fn next(&self) -> u16 {
        self.abandoned().unwrap_or(self.count())
    }

    fn claim(&mut self, index: u16) {
        let index = usize::from(index);
        if index == self.0.len() {
            self.0.push(false);
        }
        self.0[index] = true;
    }

    fn release(&mut self, index: u16) {
        self.0[usize::from(index)] = false;
        while self.0.last() == Some(&false) {
            self.0.pop();
        }
    }
}

/// A device that was plugged in, and its kernel objects.
pub(super) struct PluggedIn {
    pub(super) port_id: u16,
    pub(super) sockets: Sockets,
    pub(super) interface: Option<Interface>,
}

pub(super) fn plug_in(control: &mut Control, device: &DeviceString) -> Result<PluggedIn, Error> {
    let before = sockets::open();
    let port_id = plug::plug(control, device)?;
    let (if_index, queue_count) = plug::interface(control, port_id);
    let driver = driver::of_virtual(device.name());
    let sockets = match driver.map(|driver| driver.missed) {
        Some(Missed::PacketSockets) => Sockets::opened_since(&before, if_index, queue_count),
        _ => Sockets::default(),
    };
    Ok(PluggedIn { port_id, sockets, interface: Interface::of(if_index) })
}

impl Inner {
    pub(super) fn open(
        _: Eal,
        mut device: DeviceString,
        config: PortConfig,
    ) -> Result<Self, Error> {
        let mut control = Control::lock()?;
        if let Some(announced) = control.announced.get(device.name())
            && !device.has_arguments()
        {
            device = DeviceString::parse(announced)?;
        }
        if control.owned.contains(device.name()) {
            return Err(Error::DeviceInUse {
                device: device.text().into(),
                name: device.name().into(),
            });
        }
        let PluggedIn { port_id, sockets, interface } = plug_in(&mut control, &device)?;
        let described = plug::describe(&control, &device, port_id);
        let (capabilities, mac) = described.inspect_err(|_| {
            // SAFETY: 1. The port is the device's: `plug` has just plugged it in. 2. It was never
            // started and has no queues.
            let _ = unsafe { plug::unplug(&mut control, &device, port_id) };
        })?;
        control.owned.insert(device.name().into());
        let driver = driver::of_port(&capabilities.driver);
        let phase = Phase::Plugged { port_id };
        let (rx, tx) = (Claims::default(), Claims::default());
        Ok(Self {
            device,
            config,
            capabilities,
            mac,
            driver,
            state: Mutex::new(State {
                phase,
                rx,
                tx,
                mempool: None,
                sockets,
                interface,
                earlier: PortStats::default(),
            }),
            gate: Gate::default(),
            uncopied: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            polled: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            reopened: AtomicU64::new(0),
        })
    }

    /// Claims the next queue, and returns its index.
    pub(super) fn claim(&self, direction: Direction) -> Result<u16, Error> {
        let mut control = Control::lock()?;
        let mut state = lock(&self.state);
        if let Phase::Started { .. } | Phase::Away { .. } = state.phase {
            if state.held() != (0, 0) {
                return Err(Error::ClaimedAfterStart { device: self.text(), direction });
            }
            self.stop_with(&mut control, &mut state)?;
        }
        if let Phase::Stopped { .. } = state.phase {
            let PluggedIn { port_id, sockets, interface } = plug_in(&mut control, &self.device)?;
            (state.sockets, state.interface) = (sockets, interface);
            state.phase = Phase::Plugged { port_id };
        }
        let max = match direction {
            Direction::Rx => self.capabilities.rx_queue_count_max,
            Direction::Tx => self.capabilities.tx_queue_count_max,
        };
        let index = state.claims(direction).next();
        if index >= max.min(sys::SH_QUEUES_PER_PORT_MAX as u16) {
            let (device, hint) = (self.text(), self.driver.more_queues);
            return Err(Error::TooManyQueues { device, direction, wanted: index + 1, max, hint });
        }
        state.claims(direction).claim(index);
        self.note_tx_descriptors(&mut control, &state);
        Ok(index)
    }

    /// Takes back a queue that is dropped.
    pub(super) fn release(&self, direction: Direction, index: u16) {
        let mut state = lock(&self.state);
        match state.phase {
            // The port may go on running without the queue; the index is not handed out again.
            Phase::Started { .. } | Phase::Away { .. } => {
                state.claims(direction).0[usize::from(index)] = false;
            }
            Phase::Plugged { .. } | Phase::Stopped { .. } => state.claims(direction).release(index),
        }
    }

    /// Configures and starts the device with the claimed queues, unless it was started.
    pub(super) fn start(&self, limits: &Limits) -> Result<(), Error> {
        let mut control = Control::lock()?;
        let mut state = lock(&self.state);
        let Phase::Plugged { port_id } = state.phase else { return Ok(()) };
        for (direction, claims) in [(Direction::Rx, &state.rx), (Direction::Tx, &state.tx)] {
            if let Some(index) = claims.abandoned() {
                return Err(Error::QueueNotHeld { device: self.text(), direction, index });
            }
        }
        let before = sockets::open();
        state.mempool = None;
        start::start(self, &mut control, &mut state, port_id, limits)?;
        if self.driver.missed == Missed::XdpSockets {
            let (queue_count, _) = self.configured(&state);
            state.sockets = Sockets::opened_since(&before, 0, queue_count);
        }
        self.uncopied.store(0, Relaxed);
        self.malformed.store(0, Relaxed);
        self.polled.store(0, Relaxed);
        self.taken.store(0, Relaxed);
        self.refused.store(0, Relaxed);
        self.reopened.store(0, Relaxed);
        // SAFETY: 1. The port exists, by the invariant of `Phase::Plugged`, while the state is locked.
        let before = self.counted_before(unsafe { stats::read(port_id) });
        state.earlier = PortStats::default();
        state.phase = Phase::Started { port_id, before, limits: *limits };
        self.gate.open(port_id);
        Ok(())
    }

    /// Stops the device, closes it and plugs it out.
    pub(super) fn stop(&self) -> Result<(), Error> {
        let mut control = Control::lock()?;
        let mut state = lock(&self.state);
        self.stop_with(&mut control, &mut state)
    }

    fn stop_with(&self, control: &mut Control, state: &mut State) -> Result<(), Error> {
        let (rx_count, tx_count) = state.held();
        if (rx_count, tx_count) != (0, 0) {
            return Err(Error::QueuesHeld { device: self.text(), rx_count, tx_count });
        }
        // The gate is empty, since no queue is held.
        self.gate.shut();
        let (port_id, counted) = match state.phase {
            Phase::Stopped { .. } => return Ok(()),
            Phase::Plugged { port_id } => (Some(port_id), PortStats::default()),
            Phase::Away { .. } => (None, self.with_own_counts(state.earlier, state)),
            Phase::Started { port_id, before, .. } => {
                // SAFETY: 1. The port is this one, by the invariant of `Phase::Started`. 2. No
                // queue is held, as was checked above, so nobody polls.
                unsafe { self.halt(control, state, port_id, &before) };
                (Some(port_id), self.with_own_counts(state.earlier, state))
            }
        };
        (state.rx, state.tx) = (Claims::default(), Claims::default());
        (state.sockets, state.interface) = (Sockets::default(), None);
        state.phase = Phase::Stopped { counted };
        control.tx_descriptors.remove(self.device.name());
        let Some(port_id) = port_id else { return Ok(()) };
        // SAFETY: 1. The port is the device's, by the invariants of `Phase`, and is stopped. 2. No
        // queue is held, as was checked above.
        unsafe { plug::unplug(control, &self.device, port_id) }
    }

    /// Stops the device. Its counts are kept in the state.
    ///
    /// # Safety
    /// 1. The port is this one's, and runs. 2. None of its queues is polled until it runs again.
    pub(super) unsafe fn halt(
        &self,
        _: &mut Control,
        state: &mut State,
        port_id: u16,
        before: &PortStats,
    ) {
        if state.rx.count() == 0 {
            self.drain_all(port_id, state);
        }
        state.earlier = self.driver_counts(port_id, before, state).unwrap_or(state.earlier);
        // SAFETY: 1. The port exists, by contract. 2. The control lock is held. 3. Nobody polls, by
        // contract.
        unsafe { sys::rte_eth_dev_stop(port_id) };
    }

    pub(super) fn text(&self) -> String {
        self.device.text().into()
    }

    fn note_tx_descriptors(&self, control: &mut Control, state: &State) {
        let held_count = self.config.tx_descriptor_count.max(self.driver.held_count);
        let (_, tx_count) = self.configured(state);
        let count = usize::from(tx_count) * usize::from(held_count);
        control.tx_descriptors.insert(self.device.name().into(), count);
    }

    /// Numbers of RX and TX queues that the device is or will be configured with.
    pub(super) fn configured(&self, state: &State) -> (u16, u16) {
        let claimed = (state.rx.count(), state.tx.count());
        if claimed == (0, 0) {
            return claimed;
        }
        let queues_max = u16::try_from(sys::SH_QUEUES_PER_PORT_MAX).unwrap_or(u16::MAX);
        let offered = &self.capabilities;
        let max = (offered.rx_queue_count_max, offered.tx_queue_count_max);
        self.driver.queues.configured(claimed, (max.0.min(queues_max), max.1.min(queues_max)))
    }

    /// Unclaimed RX queues that the device runs with.
    pub(super) fn spare_rx(&self) -> Range<u16> {
        let state = lock(&self.state);
        state.rx.count()..self.configured(&state).0
    }

    /// Whether the port runs with RX queues but none is claimed.
    pub(super) fn is_rx_unclaimed(&self) -> bool {
        lock(&self.state).rx.count() == 0
    }

    /// Frees the packets waiting in RX queues if none was claimed, so that they are counted.
    fn drain_all(&self, port_id: u16, state: &State) {
        let (rx_count, _) = self.configured(state);
        for _ in 0..DRAINED_BURSTS_MAX {
            // SAFETY: 1. The port runs with these queues, and 2. nobody polls: `halt` calls this,
            // and has the same contract. 3. `halt` has the control lock's proof.
            if unsafe { spare::drain(port_id, 0..rx_count) } == 0 {
                break;
            }
        }
    }

    pub(super) fn link(&self) -> Result<Link, Error> {
        self.with_port("its link", |port_id| {
            let (mut speed_mbps, mut up, mut full_duplex) = (0, false, false);
            // SAFETY: 1. The port exists, by the invariants of `Phase`, while `with_port` has the state
            // locked. 2. The values are written during the call.
            let result =
                unsafe { sys::sh_link(port_id, &mut speed_mbps, &mut up, &mut full_duplex) };
            if result == 0 {
                Ok(Link { up, speed_mbps, full_duplex })
            } else {
                Err(errno_text(result))
            }
        })
    }

    pub(super) fn mtu(&self) -> Result<u16, Error> {
        self.with_port("its MTU", |port_id| {
            let mut mtu = 0;
            // SAFETY: 1 and 2. As in `link`.
            let result = unsafe { sys::rte_eth_dev_get_mtu(port_id, &mut mtu) };
            if result == 0 { Ok(mtu) } else { Err(errno_text(result)) }
        })
    }

    /// Queries the port, if it exists.
    pub(super) fn with_port<T>(
        &self,
        what: &'static str,
        ask: impl FnOnce(u16) -> Result<T, String>,
    ) -> Result<T, Error> {
        stack::check()?;
        let state = lock(&self.state);
        match state.phase {
            Phase::Plugged { port_id } | Phase::Started { port_id, .. } => ask(port_id),
            Phase::Stopped { .. } => {
                Err("it has stopped; claim a queue to plug it in again".into())
            }
            Phase::Away { .. } => Err("its interface has gone".into()),
        }
        .map_err(|error| self.unreadable(what, error))
    }

    pub(super) fn unreadable(&self, what: &'static str, error: String) -> Error {
        Error::Read { device: self.text(), what, error }
    }

    /// See [`Port::cut_bytes`](super::Port::cut_bytes).
    pub(super) fn cut_bytes(&self) -> Option<u16> {
        if !self.driver.cuts_frames {
            return None;
        }
        let frame_bytes = self.device.argument("framesz").and_then(|text| text.parse().ok());
        frame_bytes.unwrap_or(RING_FRAME_BYTES_DEFAULT).checked_sub(RING_HEADER_BYTES)
    }

    /// The size of receive buffers, if lengths must be checked.
    pub(super) fn checked_bytes(&self) -> Option<u32> {
        let buffer_bytes =
            || self.mempool().map_or(0, |pool| u32::from(pool.config().data_room_bytes));
        (!self.driver.valid_lengths).then(buffer_bytes)
    }

    pub(super) fn mempool(&self) -> Option<Mempool> {
        lock(&self.state).mempool.clone()
    }
}

impl State {
    fn claims(&mut self, direction: Direction) -> &mut Claims {
        match direction {
            Direction::Rx => &mut self.rx,
            Direction::Tx => &mut self.tx,
        }
    }

    /// Numbers of RX and TX queues held.
    fn held(&self) -> (usize, usize) {
        (self.rx.held_count(), self.tx.held_count())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Without room on its stack, a thread leaves the device open, and its name taken.
        let Ok(mut control) = Control::lock() else { return };
        let mut state = lock(&self.state);
        // Every queue owns the port, so none is held. A device that fails to close keeps its name:
        // it must not be opened again.
        if self.stop_with(&mut control, &mut state).is_ok() {
            control.owned.remove(self.device.name());
        }
    }
}
