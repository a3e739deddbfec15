//! The end of a datagram's path: it is counted, and its memory returns to its pool.

use crate::inspect::{Findings, Inspection};
use crate::rate::Passed;
use crate::stamp::now_ns;
use hotloop::prelude::*;
use hotloop::stage::{Counter, Device, DeviceCounters};
use std::marker::PhantomData;
use std::sync::Arc;

/// Each core's delivered datagrams, read by the printing thread.
#[derive(Debug)]
pub struct Counts(Box<[CoreCounts]>);

/// One core's counters, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CoreCounts {
    queue_index: Counter,
    datagrams: Counter,
    payload_bytes: Counter,
}

impl Counts {
    /// Counters for this many cores.
    #[must_use]
    pub fn new(core_count: usize) -> Self {
        Self((0..core_count).map(|_| CoreCounts::default()).collect())
    }

    /// Sets the RX queue that this core polls. Cores claim queues in the order in which they start.
    ///
    /// # Panics
    /// If there are no counters for this core.
    pub fn set_queue(&self, core: &Core, queue_index: u16) {
        self.0[core.index()].queue_index.set(u64::from(queue_index));
    }

    /// Each queue's delivered datagrams, by its index, in ascending order.
    #[must_use]
    pub fn queues(&self) -> Vec<(u64, Passed)> {
        let of_core = |core: &CoreCounts| (core.queue_index.count(), core.passed());
        let mut queues: Vec<_> = self.0.iter().map(of_core).collect();
        queues.sort_by_key(|(queue_index, _)| *queue_index);
        queues
    }

    /// The delivered datagrams of all queues.
    #[must_use]
    pub fn passed(&self) -> Passed {
        self.0.iter().map(CoreCounts::passed).sum()
    }
}

impl CoreCounts {
    fn passed(&self) -> Passed {
        Passed { packets: self.datagrams.count(), payload_bytes: self.payload_bytes.count() }
    }
}

/// The ledger compares the engine's count of datagrams handed over with this count.
impl Device for Counts {
    fn name(&self) -> String {
        "delivery".to_owned()
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { sent: self.passed().packets, ..DeviceCounters::default() }
    }
}

/// A datagram that has arrived through either kind of I/O.
pub trait Arrived: Carries {
    /// The length of its payload in bytes.
    fn payload_bytes(&self) -> u64;

    /// The payload, or the beginning of it that was kept.
    fn payload(&self) -> &[u8];
}

/// The end of the graph on one core.
#[derive(Debug)]
pub struct Delivery<T> {
    counts: Arc<Counts>,
    core_index: usize,
    /// Inspects payloads, if requested, and the place for its results.
    inspection: Option<(Box<Inspection>, Arc<Findings>)>,
    datagram: PhantomData<fn(T)>,
}

impl<T> Delivery<T> {
    /// The end on this core.
    ///
    /// # Panics
    /// If there are no counters for this core.
    #[must_use]
    pub fn new(core: &Core, counts: &Arc<Counts>, findings: &Arc<Findings>) -> Self {
        assert!(core.index() < counts.0.len(), "no counters for core {}", core.index());
        let inspection =
            findings.inspection().map(|inspection| (Box::new(inspection), Arc::clone(findings)));
        let counts = Arc::clone(counts);
        Self { counts, core_index: core.index(), inspection, datagram: PhantomData }
    }
}

impl<T> Drop for Delivery<T> {
    fn drop(&mut self) {
        if let Some((inspection, findings)) = self.inspection.take() {
            findings.add(*inspection);
        }
    }
}

impl<T: Arrived> Sink for Delivery<T> {
    type Item = T;

    #[inline]
    fn send(&mut self, burst: &mut Burst<T>) -> usize {
        let datagrams = burst.as_slice();
        let (count, payload_bytes) =
            (datagrams.len(), datagrams.iter().map(Arrived::payload_bytes).sum());
        if let Some((inspection, _)) = &mut self.inspection {
            let now_ns = now_ns();
            datagrams.iter().for_each(|datagram| inspection.see(datagram.payload(), now_ns));
        }
        burst.clear();
        let counts = &self.counts.0[self.core_index];
        counts.datagrams.add(count as u64);
        counts.payload_bytes.add(payload_bytes);
        count
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.counts) as Arc<dyn Device>]
    }
}
