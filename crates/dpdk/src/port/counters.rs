//! The counters of a port, its driver and the kernel.

use super::inner::{Inner, Phase, State};
use super::interface::Interface;
use super::stats::{self, PortStats};
use crate::device::driver::Missed;
use crate::lock::lock;
use crate::{Error, stack};
use hotloop_stage::{Device, DeviceCounters, LinkState, Reopening};
use std::sync::atomic::Ordering::Relaxed;

impl Inner {
    /// Packets dropped at the driver's sockets, if a socket was found for each of its RX queues.
    fn dropped_by_kernel(&self, state: &mut State) -> Option<u64> {
        let is_each_found = state.sockets.count() == usize::from(self.configured(state).0);
        if is_each_found { state.sockets.dropped() } else { None }
    }

    /// The part of the driver's counts at a start that later counts exclude. Packets wait in the
    /// rings of packet sockets from the plugging in on, and are received after the start; packets
    /// that found no room there count as missed, too. DPDK 25.03 and later count them.
    pub(super) fn counted_before(&self, counted: Result<PortStats, String>) -> PortStats {
        let before = counted.unwrap_or_default();
        match self.driver.missed {
            Missed::PacketSockets => PortStats { imissed: Some(0), ..before },
            _ => before,
        }
    }

    /// The counts of the driver and the kernel since the start.
    pub(super) fn driver_counts(
        &self,
        port_id: u16,
        before: &PortStats,
        state: &mut State,
    ) -> Result<PortStats, String> {
        // SAFETY: 1. The port exists, by the invariant of `Phase::Started`, which holds while the caller
        // has the state locked.
        let mut counted = unsafe { stats::read(port_id) }?.since(before);
        counted.imissed = match self.driver.missed {
            Missed::Driver => counted.imissed,
            Missed::PacketSockets => {
                let kernel = self.dropped_by_kernel(state);
                // DPDK 25.03 and later count polls that found no mbuf. The packets stay in the
                // ring.
                counted.rx_nombuf = 0;
                counted.imissed.zip(kernel).map(|(driver, kernel)| driver + kernel)
            }
            Missed::XdpSockets => self.dropped_by_kernel(state),
            Missed::Interface => state.interface.as_ref().and_then(Interface::tx_dropped),
            Missed::Unknown => None,
        };
        Ok(counted.plus(&state.earlier))
    }

    /// The driver's counts plus this crate's own.
    pub(super) fn with_own_counts(&self, mut counted: PortStats, state: &State) -> PortStats {
        if self.driver.forgets_counts {
            counted.received = self.polled.load(Relaxed);
            counted.sent = self.taken.load(Relaxed);
        }
        let (uncopied, malformed) = (self.uncopied.load(Relaxed), self.malformed.load(Relaxed));
        counted.received = counted.received.saturating_sub(uncopied + malformed);
        counted.rx_nombuf += uncopied;
        counted.rx_malformed = malformed;
        counted.tx_refused = self.refused.load(Relaxed);
        if state.rx.count() == 0 {
            counted.rx_unclaimed = counted.received + counted.imissed.unwrap_or(0);
            counted.imissed = Some(0);
            (counted.received, counted.received_bytes) = (0, 0);
        }
        counted
    }

    pub(super) fn stats(&self) -> Result<PortStats, Error> {
        stack::check()?;
        let mut state = lock(&self.state);
        match state.phase {
            Phase::Plugged { .. } => Ok(PortStats::default()),
            Phase::Stopped { counted } => Ok(counted),
            Phase::Away { .. } => Ok(self.with_own_counts(state.earlier, &state)),
            Phase::Started { port_id, before, .. } => self
                .driver_counts(port_id, &before, &mut state)
                .map(|counted| self.with_own_counts(counted, &state))
                .map_err(|error| self.unreadable("its counters", error)),
        }
    }

    pub(super) fn xstats(&self) -> Result<Vec<(String, u64)>, Error> {
        self.with_port("its extended counters", |port_id| {
            // SAFETY: 1. The port exists while `with_port` has the state locked.
            unsafe { stats::read_extended(port_id) }
        })
    }
}

/// Bytes, if the driver counts them: a driver with packets but no bytes, such as net_null, does
/// not.
fn counted_bytes(packets: u64, bytes: u64) -> Option<u64> {
    (packets == 0 || bytes > 0).then_some(bytes)
}

impl Device for Inner {
    fn name(&self) -> String {
        self.device.name().into()
    }

    fn counters(&self) -> DeviceCounters {
        let stats = self.stats().unwrap_or_default();
        let tx_failed = if self.driver.loses_taken { stats.oerrors } else { 0 };
        DeviceCounters {
            received: stats.received,
            sent: stats.sent + tx_failed,
            tx_failed,
            received_bytes: counted_bytes(stats.received, stats.received_bytes),
            sent_bytes: counted_bytes(stats.sent, stats.sent_bytes),
            imissed: stats.imissed,
            rx_nombuf: stats.rx_nombuf,
            rx_unclaimed: stats.rx_unclaimed,
            rx_malformed: stats.rx_malformed,
            reopened: self.reopened.load(Relaxed),
        }
    }

    fn xstats(&self) -> Vec<(String, u64)> {
        Self::xstats(self).unwrap_or_default()
    }

    fn link_state(&self) -> Option<LinkState> {
        let interface = lock(&self.state).interface.as_mut().and_then(Interface::link_state);
        if interface.is_some() {
            return interface;
        }
        let link = self.link().ok()?;
        Some(if link.up { LinkState::Up } else { LinkState::Down })
    }

    fn reopen(&self) -> Result<Reopening, hotloop_stage::Error> {
        Ok(Self::reopen(self)?)
    }

    fn stop(&self) -> Result<(), hotloop_stage::Error> {
        Ok(Self::stop(self)?)
    }

    /// A driver that keeps mbufs after it was closed (net_af_xdp) leaves the pool incomplete: for
    /// these, only duplicates are errors.
    fn check_pools(&self) -> Result<(), hotloop_stage::Error> {
        let Some(mempool) = self.mempool() else { return Ok(()) };
        let report = mempool.report();
        let lacks_allowed = self.driver.keeps_mbufs && report.duplicate_count == 0;
        if report.is_whole() || lacks_allowed {
            return Ok(());
        }
        Err(Error::MempoolNotWhole { device: self.text(), report }.into())
    }
}
