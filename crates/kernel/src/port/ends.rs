//! The ends of a kernel port that cores own: the source of packets from the kernel, and the sink of
//! packets for it.

use super::frame_ring::{Emptying, Filling, Frame};
use super::punting::{Punting, SinkCounts};
use super::{PortState, Supply};
use hotloop_packet::PacketBuf;
use hotloop_stage::{Burst, Counter, Device, Error, Limits, Sink, Source};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// A core's counters of packets from the kernel.
#[derive(Debug, Default)]
pub(super) struct SourceCounts {
    pub(super) received: Counter,
    pub(super) too_long: Counter,
}

/// Source of the packets that the kernel sends out of the interface. Made by
/// [`KernelPort::source`](super::KernelPort::source).
pub struct KernelSource<S: Supply> {
    state: Arc<PortState<S>>,
    /// `None` except on core 0.
    ring: Option<Emptying>,
    /// A frame that waits for an empty packet.
    waiting: Option<Frame>,
    counts: Arc<SourceCounts>,
}

impl<S: Supply> KernelSource<S> {
    pub(super) const fn new(
        state: Arc<PortState<S>>,
        ring: Option<Emptying>,
        counts: Arc<SourceCounts>,
    ) -> Self {
        Self { state, ring, waiting: None, counts }
    }
}

impl<S: Supply> Source for KernelSource<S> {
    type Item = S::Packet;

    fn poll(&mut self, burst: &mut Burst<S::Packet>) -> usize {
        let Some(ring) = &mut self.ring else { return 0 };
        let mut count = 0;
        while burst.room() > 0 {
            let Some(frame) = self.waiting.take().or_else(|| ring.full.pop()) else { break };
            // Without memory the frame waits, and so do later ones: in the end, in the interface's
            // own queue.
            let Some(mut packet) = self.state.supply.take() else {
                self.waiting = Some(frame);
                break;
            };
            match packet.append(frame.len_bytes) {
                Ok(room) => {
                    room.copy_from_slice(frame.data());
                    burst.push(packet);
                    count += 1;
                }
                Err(_) => self.counts.too_long.add(1),
            }
            ring.give_back(frame);
        }
        if count > 0 {
            self.counts.received.add(count as u64);
        }
        count
    }

    fn waiting_count(&mut self) -> Option<usize> {
        let waiting = self.waiting.iter().count();
        Some(self.ring.as_ref().map_or(0, |ring| waiting + ring.full.len()))
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.state.supply.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.state) as Arc<dyn Device>]
    }
}

impl<S: Supply> Drop for KernelSource<S> {
    fn drop(&mut self) {
        if self.ring.take().is_some() {
            self.state.is_source_claimed.store(false, Relaxed);
        }
    }
}

impl<S: Supply> fmt::Debug for KernelSource<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelSource").field("ring", &self.ring).finish_non_exhaustive()
    }
}

/// Sink of packets for the kernel. Made by [`KernelPort::sink`](super::KernelPort::sink).
pub struct KernelSink<S: Supply> {
    state: Arc<PortState<S>>,
    punting: Punting,
    begun: Instant,
    packets: PhantomData<fn(S::Packet)>,
}

impl<S: Supply> KernelSink<S> {
    pub(super) fn new(state: Arc<PortState<S>>, ring: Filling, counts: Arc<SinkCounts>) -> Self {
        let punting = Punting::new(&state.limits, ring, counts);
        Self { state, punting, begun: Instant::now(), packets: PhantomData }
    }
}

impl<S: Supply> Sink for KernelSink<S> {
    type Item = S::Packet;

    /// Copies packets for the thread, which writes them to the interface.
    fn send(&mut self, burst: &mut Burst<S::Packet>) -> usize {
        if burst.is_empty() {
            return 0;
        }
        let now_ns = self.begun.elapsed().as_nanos() as u64;
        self.punting.send(burst, now_ns)
    }

    fn refused_count(&self) -> u64 {
        self.punting.refused_count()
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.state) as Arc<dyn Device>]
    }
}

impl<S: Supply> fmt::Debug for KernelSink<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelSink").field("punting", &self.punting).finish_non_exhaustive()
    }
}
