//! The account of a run: the counts of every place and of the devices, and whether they agree.

use crate::panic_origin::Panic;
use crate::wait::CoreTime;
use crate::worker::{Devices, RunningCore};
use hotloop_stage::{Device, DeviceCounters, LinkState};
use hotloop_watch::CorePlaces;
use serde::Serialize;
use std::sync::Arc;

/// The end state of a core.
#[derive(Debug)]
pub(crate) struct CoreEnd {
    pub(crate) core: CorePlaces,
    pub(crate) lcore: Option<u32>,
    /// Packets left inside, found by walking.
    pub(crate) in_flight: usize,
    pub(crate) panic: Option<Panic>,
    /// The time that the core's thread used, if there was one.
    pub(crate) time: Option<CoreTime>,
}

impl CoreEnd {
    pub(crate) fn of(running: &mut RunningCore<'_>) -> Self {
        Self {
            core: running.places(),
            lcore: running.core.lcore(),
            in_flight: running.worker.in_flight().0,
            panic: running.panic.clone(),
            time: None,
        }
    }
}

/// The devices of a run, each once, with their counters as it began.
#[derive(Default)]
pub(crate) struct Baseline {
    devices: Vec<(Arc<dyn Device>, DeviceCounters)>,
    /// Whether every source has a device to compare with.
    sources_counted: bool,
    /// Whether every sink has a device to compare with.
    sinks_counted: bool,
}

impl Baseline {
    pub(crate) fn of<'a>(workers: impl Iterator<Item = &'a Devices>) -> Self {
        let mut baseline = Self { devices: Vec::new(), sources_counted: true, sinks_counted: true };
        for devices in workers {
            baseline.sources_counted &= devices.sources.iter().all(|all| !all.is_empty());
            baseline.sinks_counted &= devices.sinks.iter().all(|all| !all.is_empty());
            let all = devices.sources.iter().chain(&devices.sinks).flatten();
            all.for_each(|device| baseline.add(device));
        }
        baseline
    }

    fn add(&mut self, device: &Arc<dyn Device>) {
        let name = device.name();
        if self.devices.iter().all(|(known, _)| known.name() != name) {
            self.devices.push((Arc::clone(device), device.counters()));
        }
    }

    /// Called after the threads were joined: stops the devices, reads their counters, then checks
    /// their pools.
    pub(crate) fn settle(&self) -> Settled {
        let notes = self.outages();
        // A device may count the packets left in it when it stops.
        let findings = self.stop();
        let mut settled = Settled { pools_whole: true, findings, notes, ..Settled::default() };
        for (device, before) in &self.devices {
            let now = device.counters();
            // A device that counts backwards disagrees with the engine's count, and is therefore
            // found.
            settled.received += now.received.saturating_sub(before.received);
            settled.sent += now.sent.saturating_sub(before.sent);
            settled.tx_failed += now.tx_failed.saturating_sub(before.tx_failed);
            settled.nic_loss.add(&now, before);
        }
        for (device, _) in &self.devices {
            if let Err(error) = device.check_pools() {
                settled.pools_whole = false;
                settled.findings.push(format!("{}: {error}", device.name()));
            }
        }
        settled.is_received_counted = self.sources_counted;
        settled.is_sent_counted = self.sinks_counted;
        settled
    }
}

impl Baseline {
    pub(crate) fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().map(|(device, _)| Arc::clone(device)).collect()
    }

    /// Names the devices that have lost their interface, or lost it for a time.
    fn outages(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (device, before) in &self.devices {
            let reopened = device.counters().reopened.saturating_sub(before.reopened);
            if reopened > 0 {
                let name = device.name();
                notes.push(format!("{name}: its interface had gone; opened again: {reopened}"));
            }
            if device.link_state() == Some(LinkState::Gone) {
                notes.push(format!("{}: its interface has gone", device.name()));
            }
        }
        notes
    }

    /// Stops every device. Returns a finding for each that doesn't stop.
    pub(crate) fn stop(&self) -> Vec<String> {
        let stop = |(device, _): &(Arc<dyn Device>, _)| {
            let error = device.stop().err()?;
            Some(format!("{} does not stop: {error}", device.name()))
        };
        self.devices.iter().filter_map(stop).collect()
    }
}

impl std::fmt::Debug for Baseline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.devices.iter().map(|(device, _)| device.name()).collect();
        f.debug_struct("Baseline").field("devices", &names).finish_non_exhaustive()
    }
}

/// The devices' final counts and findings.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) nic_loss: NicLoss,
    pub(crate) is_received_counted: bool,
    pub(crate) is_sent_counted: bool,
    pub(crate) pools_whole: bool,
    pub(crate) tx_failed: u64,
    pub(crate) findings: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// Packets that devices lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct NicLoss {
    /// No RX descriptor was free; `None` if one of the devices does not count these losses.
    pub imissed: Option<u64>,
    /// No mbuf was free.
    pub rx_nombuf: u64,
    /// Packets that arrived on queues without an owner.
    pub rx_unclaimed: u64,
    /// Packets with lengths from the driver that do not agree.
    pub rx_malformed: u64,
}

impl Default for NicLoss {
    fn default() -> Self {
        Self { imissed: Some(0), rx_nombuf: 0, rx_unclaimed: 0, rx_malformed: 0 }
    }
}

impl NicLoss {
    /// Adds a device's losses since it had counted `before`.
    pub(crate) fn add(&mut self, now: &DeviceCounters, before: &DeviceCounters) {
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let missed = now.imissed.zip(before.imissed).map(|(now, before)| since(now, before));
        self.imissed = self.imissed.zip(missed).map(|(sum, missed)| sum + missed);
        self.rx_nombuf += since(now.rx_nombuf, before.rx_nombuf);
        self.rx_unclaimed += since(now.rx_unclaimed, before.rx_unclaimed);
        self.rx_malformed += since(now.rx_malformed, before.rx_malformed);
    }
}
