//! Makes items to send: frames in packets of a pool, or payloads for the kernel's sockets.

use crate::source::datagrams::Datagrams;
use crate::source::flows::Flows;
use crate::stamp::{self, Stamp};
use hotloop::prelude::*;
use hotloop::stage::{Carries, Device};
use std::sync::Arc;

/// Makes the items that one core sends.
pub trait Make {
    /// The type of items.
    type Item: Carries;

    /// See [`Source::start`].
    ///
    /// # Errors
    /// Any error that prevents the start.
    fn start(&mut self, limits: &Limits) -> hotloop::Result<()> {
        let _ = limits;
        Ok(())
    }

    /// See [`Source::devices`].
    fn devices(&self) -> Vec<Arc<dyn Device>> {
        Vec::new()
    }

    /// Appends the next `count` items, all or nothing, to be sent at `now_ns`, to `burst`, which must
    /// have [room](Burst::room) for them. Returns whether it did.
    fn make(&mut self, burst: &mut Burst<Self::Item>, count: usize, now_ns: u64) -> bool;
}

/// The source of blank packets, shared by all cores.
pub trait Supply: Device {
    /// The packets.
    type Packet: PacketBuf;

    /// See [`Source::start`]. Each core calls it.
    ///
    /// # Errors
    /// Any error that prevents the start.
    fn start(&self, limits: &Limits) -> hotloop::Result<()>;

    /// Appends `count` empty packets to `burst`, all or nothing. Returns whether it did. Nothing if there
    /// are fewer, or if the burst has less [room](Burst::room).
    fn take(&self, burst: &mut Burst<Self::Packet>, count: usize) -> bool;
}

/// Makes frames.
#[derive(Debug)]
pub struct Frames<D> {
    supply: Arc<D>,
    datagrams: Datagrams,
}

impl<D> Frames<D> {
    /// Makes these datagrams in packets of `supply`.
    pub const fn new(supply: Arc<D>, datagrams: Datagrams) -> Self {
        Self { supply, datagrams }
    }
}

impl<D: Supply + 'static> Make for Frames<D> {
    type Item = D::Packet;

    fn start(&mut self, limits: &Limits) -> hotloop::Result<()> {
        self.supply.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.supply) as Arc<dyn Device>]
    }

    #[inline]
    fn make(&mut self, burst: &mut Burst<D::Packet>, count: usize, now_ns: u64) -> bool {
        if !self.supply.take(burst, count) {
            return false;
        }
        self.datagrams.set_time(now_ns);
        let first = burst.len() - count;
        burst.as_mut_slice()[first..].iter_mut().for_each(|blank| self.datagrams.write_next(blank));
        true
    }
}

/// The individual part of a datagram for the kernel's sockets.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// The index of its flow among those of its core.
    pub place: usize,
    /// The beginning of the payload, if it is long enough.
    pub stamp: [u8; stamp::BYTES],
}

impl Carries for Payload {
    fn bytes(&self) -> &[u8] {
        &self.stamp
    }
}

/// Makes payloads. Payloads made together belong to one flow: a system call sends them through one
/// socket.
#[derive(Debug)]
pub struct Payloads {
    /// The number of each flow of this core, and the number of its next datagram.
    flows: Box<[(u32, u64)]>,
    next: usize,
}

impl Payloads {
    /// Payloads for the flows of core `core_index` of `core_count`.
    #[must_use]
    pub fn new(flows: &Flows, core_index: usize, core_count: usize) -> Self {
        Self { flows: flows.share(core_index, core_count).map(|flow| (flow, 0)).collect(), next: 0 }
    }
}

impl Make for Payloads {
    type Item = Payload;

    #[inline]
    fn make(&mut self, burst: &mut Burst<Payload>, count: usize, now_ns: u64) -> bool {
        let place = self.next;
        let (flow, number) = self.flows[place];
        let stamp = |number| Stamp { flow, number, sent_ns: now_ns }.bytes();
        burst.extend((number..).take(count).map(|number| Payload { place, stamp: stamp(number) }));
        self.flows[place].1 += count as u64;
        if count > 0 {
            self.next = if place + 1 == self.flows.len() { 0 } else { place + 1 };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_made_at_once_are_of_one_flow() {
        let flows = Flows {
            from: "10.0.0.1".parse().unwrap(),
            first_port: 1000,
            to: vec!["192.0.2.1:4321".parse().unwrap()],
            count: 4,
        };
        let (mut payloads, mut burst) = (Payloads::new(&flows, 1, 2), Burst::new());
        let mut seen = Vec::new();
        for count in [2, 0, 1, 1] {
            assert!(payloads.make(&mut burst, count, 7));
            assert_eq!(burst.len(), count);
            let stamp = |payload: &Payload| Stamp::read(&payload.stamp).unwrap();
            seen.extend(
                burst
                    .as_slice()
                    .iter()
                    .map(|payload| (payload.place, stamp(payload).flow, stamp(payload).number)),
            );
            burst.clear();
        }
        assert_eq!(seen, [(0, 1, 0), (0, 1, 1), (1, 3, 0), (0, 1, 2)]);
    }
}
