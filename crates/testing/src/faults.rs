//! Injection of device faults from a seed.

use crate::Rng;
use hotloop_packet::PacketBuf;
use hotloop_stage::{
    Burst, Device, DeviceCounters, Error, Limits, LinkState, Reopening, Sink, Source,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Rates of faults, per thousand. All zero by default.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FaultRates {
    /// Arriving frames that are lost before a poll, counted as `imissed`.
    pub lost_permille: u32,
    /// Arriving frames that are truncated to a shorter length, down to 0.
    pub truncated_permille: u32,
    /// Polls without a free mbuf: their frames are lost and counted as `rx_nombuf`.
    pub nombuf_permille: u32,
    /// Sends that take only part of the burst, at least one packet less than all.
    pub partial_tx_permille: u32,
    /// Sends that find the TX ring full, which stays so for at most
    /// [`full_sends_max`](Self::full_sends_max) sends.
    pub full_tx_permille: u32,
    /// Maximum number of consecutive sends for which a full TX ring takes nothing; at least one.
    pub full_sends_max: u32,
}

/// Injects faults, drawn from the seed, into the queues that pass through it.
///
/// Device counters stay correct: each device is wrapped, too, so that packets lost by a fault are
/// not counted as received. So wrap all RX queues of a port, or none. A lossless source never loses
/// packets: its faulty polls yield nothing instead.
///
/// ```
/// use hotloop_stage::{Burst, Core, Source};
/// use hotloop_testing::{FaultRates, Faults, MemoryPort};
///
/// let port = MemoryPort::new("lan");
/// let core = Core::new(0, 1);
/// let faults = Faults::seeded(1, FaultRates { lost_permille: 500, ..FaultRates::default() });
/// let mut rx = faults.source(port.rx_queue(&core)?);
/// port.feed(0, vec![vec![0; 60]; 64]);
///
/// let count = rx.poll(&mut Burst::new()) as u64;
/// let counters = rx.devices()[0].counters();
/// assert_eq!((counters.received, counters.imissed), (count, Some(64 - count)));
/// # Ok::<(), hotloop_stage::Error>(())
/// ```
pub struct Faults {
    rates: FaultRates,
    rng: Mutex<Rng>,
    devices: Arc<Devices>,
}

/// The wrapped devices by name, so that all queues of a device share one.
#[derive(Default)]
struct Devices(Mutex<HashMap<String, Arc<FaultyDevice>>>);

impl Faults {
    /// Faults at these rates. The same seed causes the same faults in the same calls.
    #[must_use]
    pub fn seeded(seed: u64, rates: FaultRates) -> Self {
        Self { rates, rng: Mutex::new(Rng::seeded(seed)), devices: Arc::default() }
    }

    /// The source, with faults.
    pub fn source<S: Source>(&self, source: S) -> FaultySource<S> {
        let devices = self.devices.wrap(&source.devices());
        let (rates, rng) = (self.rates, self.fork());
        FaultySource { source, devices, rates, rng, arrived: Burst::new() }
    }

    /// The sink, with faults.
    pub fn sink<S: Sink>(&self, sink: S) -> FaultySink<S> {
        let devices = self.devices.wrap(&sink.devices());
        let (rates, rng) = (self.rates, self.fork());
        FaultySink { sink, devices, rates, rng, full_sends_left: 0 }
    }

    fn fork(&self) -> Rng {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }
}

impl Devices {
    fn wrap(&self, devices: &[Arc<dyn Device>]) -> Vec<Arc<FaultyDevice>> {
        let mut wrapped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wrap = |device: &Arc<dyn Device>| {
            let (missed, nombuf) = (AtomicU64::new(0), AtomicU64::new(0));
            let faulty = || Arc::new(FaultyDevice { device: Arc::clone(device), missed, nombuf });
            Arc::clone(wrapped.entry(device.name()).or_insert_with(faulty))
        };
        devices.iter().map(wrap).collect()
    }
}

/// A device that loses frames before they are received.
struct FaultyDevice {
    device: Arc<dyn Device>,
    missed: AtomicU64,
    nombuf: AtomicU64,
}

impl Device for FaultyDevice {
    fn name(&self) -> String {
        self.device.name()
    }

    fn counters(&self) -> DeviceCounters {
        let (missed, nombuf) = (self.missed.load(Relaxed), self.nombuf.load(Relaxed));
        let inner = self.device.counters();
        DeviceCounters {
            received: inner.received - missed - nombuf,
            imissed: inner.imissed.map(|count| count + missed),
            rx_nombuf: inner.rx_nombuf + nombuf,
            ..inner
        }
    }

    fn xstats(&self) -> Vec<(String, u64)> {
        self.device.xstats()
    }

    fn link_state(&self) -> Option<LinkState> {
        self.device.link_state()
    }

    fn reopen(&self) -> Result<Reopening, Error> {
        self.device.reopen()
    }

    fn stop(&self) -> Result<(), Error> {
        self.device.stop()
    }

    fn check_pools(&self) -> Result<(), Error> {
        self.device.check_pools()
    }
}

fn as_devices(devices: &[Arc<FaultyDevice>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect()
}

/// A source that loses, truncates and runs out of mbufs. [`Faults::source`] makes it.
pub struct FaultySource<S: Source> {
    source: S,
    devices: Vec<Arc<FaultyDevice>>,
    rates: FaultRates,
    rng: Rng,
    /// Empty between polls.
    arrived: Burst<S::Item>,
}

impl<S: Source> FaultySource<S> {
    fn count(&self, counter: fn(&FaultyDevice) -> &AtomicU64) {
        // A source of several devices does not report a packet's device: the first stands for all.
        if let Some(device) = self.devices.first() {
            counter(device).fetch_add(1, Relaxed);
        }
    }
}

impl<S: Source<Item: PacketBuf>> Source for FaultySource<S> {
    type Item = S::Item;

    fn poll(&mut self, burst: &mut Burst<S::Item>) -> usize {
        let lossless = self.source.lossless();
        let no_mbuf = self.rng.permille(self.rates.nombuf_permille);
        if no_mbuf && lossless {
            return 0;
        }
        self.arrived.set_limit(burst.room());
        self.source.poll(&mut self.arrived);
        let mut count = 0;
        while let Some(mut packet) = self.arrived.pop() {
            if no_mbuf {
                self.count(|device| &device.nombuf);
            } else if !lossless && self.rng.permille(self.rates.lost_permille) {
                self.count(|device| &device.missed);
            } else {
                if self.rng.permille(self.rates.truncated_permille) {
                    packet.truncate(self.rng.index(packet.len_bytes() + 1));
                }
                burst.push(packet);
                count += 1;
            }
        }
        count
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.source.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        as_devices(&self.devices)
    }

    fn lossless(&self) -> bool {
        self.source.lossless()
    }

    fn creates(&self) -> bool {
        self.source.creates()
    }

    fn waiting_count(&mut self) -> Option<usize> {
        self.source.waiting_count()
    }

    fn stop(&mut self) -> bool {
        self.source.stop()
    }

    fn finished(&self) -> bool {
        self.source.finished()
    }
}

/// A sink that takes less than offered. [`Faults::sink`] makes it.
pub struct FaultySink<S: Sink> {
    sink: S,
    devices: Vec<Arc<FaultyDevice>>,
    rates: FaultRates,
    rng: Rng,
    full_sends_left: u64,
}

impl<S: Sink> Sink for FaultySink<S> {
    type Item = S::Item;

    fn send(&mut self, burst: &mut Burst<S::Item>) -> usize {
        if self.full_sends_left == 0 && self.rng.permille(self.rates.full_tx_permille) {
            let full_sends_max = u64::from(self.rates.full_sends_max.max(1));
            self.full_sends_left = 1 + self.rng.below(full_sends_max);
        }
        if self.full_sends_left > 0 {
            self.full_sends_left -= 1;
            return 0;
        }
        if burst.is_empty() || !self.rng.permille(self.rates.partial_tx_permille) {
            return self.sink.send(burst);
        }
        let taken_count = self.rng.index(burst.len());
        let mut offered = Burst::new();
        offered.extend(std::iter::from_fn(|| burst.pop()).take(taken_count));
        let sent_count = self.sink.send(&mut offered);
        // Packets that the sink left come before those that were not offered.
        offered.extend(std::iter::from_fn(|| burst.pop()));
        burst.extend(std::iter::from_fn(|| offered.pop()));
        sent_count
    }

    fn refused_count(&self) -> u64 {
        self.sink.refused_count()
    }

    fn maintain(&mut self) {
        self.sink.maintain();
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.sink.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        as_devices(&self.devices)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("rates", &self.rates).finish_non_exhaustive()
    }
}

impl<S: Source> fmt::Debug for FaultySource<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultySource").field("rates", &self.rates).finish_non_exhaustive()
    }
}

impl<S: Sink> fmt::Debug for FaultySink<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultySink").field("rates", &self.rates).finish_non_exhaustive()
    }
}
