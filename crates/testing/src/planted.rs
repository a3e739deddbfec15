//! Faults planted on purpose, which the engine's ledger must find.

use hotloop_stage::{
    Burst, BurstStage, Carries, Counters, Cx, Device, DropReason, Error, Limits, NoDrops, Output,
    Sink, Source, Stage, Verdict, drop_reasons,
};
use std::fmt;
use std::sync::Arc;

/// A fault that affects one packet.
pub enum Plant<T> {
    /// The packet is freed, and counted nowhere.
    Lose,
    /// The packet is neither freed nor emitted: its memory never returns.
    Forget,
    /// The packet is emitted, and also a second one, made by this function:
    /// [`PooledPacket::doubled`](crate::PooledPacket::doubled), or a real copy.
    Double(fn(&T) -> T),
}

impl<T> Clone for Plant<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Plant<T> {}

impl<T> fmt::Debug for Plant<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lose => "Lose",
            Self::Forget => "Forget",
            Self::Double(_) => "Double",
        })
    }
}

/// A plant, and the packet that triggers it.
#[derive(Debug)]
struct Trap<T> {
    plant: Plant<T>,
    /// Number of packets before the trap is triggered; `None` afterwards.
    passes_left: Option<u64>,
}

impl<T> Trap<T> {
    const fn new(plant: Plant<T>, packet_index: u64) -> Self {
        Self { plant, passes_left: Some(packet_index) }
    }

    /// Whether this packet triggers the fault.
    fn springs(&mut self) -> bool {
        let springs = self.passes_left == Some(0);
        self.passes_left = self.passes_left.and_then(|count| count.checked_sub(1));
        springs
    }

    /// The packet and the second one that the fault makes of it, as far as they exist.
    fn spring(&mut self, packet: T) -> (Option<T>, Option<T>) {
        if !self.springs() {
            return (Some(packet), None);
        }
        match self.plant {
            Plant::Lose => (None, None),
            Plant::Forget => {
                std::mem::forget(packet);
                (None, None)
            }
            Plant::Double(copy) => {
                let second = copy(&packet);
                (Some(packet), Some(second))
            }
        }
    }
}

/// A source with a fault planted after the device's counters.
#[derive(Debug)]
pub struct PlantedSource<S: Source> {
    source: S,
    trap: Trap<S::Item>,
    /// A second packet that the burst had no room for.
    second: Option<S::Item>,
}

impl<S: Source> PlantedSource<S> {
    /// Plants the fault at the packet with this number, from 0.
    pub const fn new(source: S, plant: Plant<S::Item>, packet_index: u64) -> Self {
        Self { source, trap: Trap::new(plant, packet_index), second: None }
    }
}

impl<S: Source> Source for PlantedSource<S> {
    type Item = S::Item;

    fn poll(&mut self, burst: &mut Burst<S::Item>) -> usize {
        let before = burst.len();
        if burst.room() > 0 {
            burst.extend(self.second.take());
        }
        let mut arrived = Burst::new();
        arrived.set_limit(burst.room());
        self.source.poll(&mut arrived);
        while let Some(packet) = arrived.pop() {
            let (first, second) = self.trap.spring(packet);
            burst.extend(first);
            self.second = self.second.take().or(second);
        }
        if burst.room() > 0 {
            burst.extend(self.second.take());
        }
        burst.len() - before
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.source.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.source.devices()
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
        self.second.is_none() && self.source.finished()
    }
}

drop_reasons! {
    /// The reason of a [`PlantedStage`].
    pub enum PlantedDrop {
        /// A second packet was dropped.
        Planted = "planted",
    }
}

/// A stage with a planted fault: it returns a drop that it did not count, or counts one that it
/// does not return. All other packets pass.
#[derive(Debug)]
pub struct PlantedStage<T>(Trap<T>);

impl<T> PlantedStage<T> {
    /// Plants the fault at the packet with this number, from 0.
    #[must_use]
    pub const fn new(plant: Plant<T>, packet_index: u64) -> Self {
        Self(Trap::new(plant, packet_index))
    }
}

/// Stands for a dropped packet if the packet itself must not be dropped.
struct Nothing;

impl Carries for Nothing {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

impl<T: Carries> Stage<T> for PlantedStage<T> {
    type Out = T;
    type Drop = PlantedDrop;

    fn packet(&mut self, cx: &mut Cx<'_, PlantedDrop>, packet: T) -> Verdict<T> {
        let (first, second) = self.0.spring(packet);
        if let Some(second) = second {
            cx.discard(second, PlantedDrop::Planted);
        }
        match first {
            Some(packet) => Ok(packet),
            None => {
                let elsewhere = Counters::new(PlantedDrop::NAMES);
                Cx::new(&elsewhere, cx.now()).drop(Nothing, PlantedDrop::Planted)
            }
        }
    }
}

/// A burst stage with a planted fault. All other packets pass.
#[derive(Debug)]
pub struct PlantedBurstStage<T>(Trap<T>);

impl<T> PlantedBurstStage<T> {
    /// Plants the fault at the packet with this number, from 0.
    #[must_use]
    pub const fn new(plant: Plant<T>, packet_index: u64) -> Self {
        Self(Trap::new(plant, packet_index))
    }
}

impl<T> BurstStage<T> for PlantedBurstStage<T> {
    type Out = T;
    type Drop = NoDrops;

    fn process(&mut self, _: &mut Cx<'_, NoDrops>, input: &mut Burst<T>, out: &mut Output<'_, T>) {
        while let Some(packet) = input.pop() {
            let (first, second) = self.0.spring(packet);
            first.into_iter().chain(second).for_each(|packet| out.push(packet));
        }
    }
}

/// A sink with a fault planted before the device's counters: it reports a lost packet as sent, and
/// sends one that nobody gave it.
#[derive(Debug)]
pub struct PlantedSink<S: Sink> {
    sink: S,
    trap: Trap<S::Item>,
}

impl<S: Sink> PlantedSink<S> {
    /// Plants the fault at the packet with this number, from 0. A packet that is offered again
    /// counts again.
    pub const fn new(sink: S, plant: Plant<S::Item>, packet_index: u64) -> Self {
        Self { sink, trap: Trap::new(plant, packet_index) }
    }
}

impl<S: Sink> Sink for PlantedSink<S> {
    type Item = S::Item;

    fn send(&mut self, burst: &mut Burst<S::Item>) -> usize {
        let before = burst.len();
        let (mut offered, mut seconds) = (Burst::new(), Burst::new());
        while let Some(packet) = burst.pop() {
            let (first, second) = self.trap.spring(packet);
            offered.extend(first);
            seconds.extend(second);
        }
        self.sink.send(&mut offered);
        self.sink.send(&mut seconds);
        burst.extend(std::iter::from_fn(|| offered.pop()));
        before - burst.len()
    }

    fn maintain(&mut self) {
        self.sink.maintain();
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.sink.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.sink.devices()
    }
}
