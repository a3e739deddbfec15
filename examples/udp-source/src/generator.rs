//! The source that makes packets.

use crate::datagrams::Datagrams;
use crate::pace::Pace;
use hotloop::prelude::*;
use hotloop::stage::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Where blank packets come from. All cores share it.
pub trait Supply: Device {
    /// The packets.
    type Packet: PacketBuf;

    /// As [`Source::start`]. Each core calls it.
    ///
    /// # Errors
    /// Whatever keeps it from starting.
    fn start(&self, limits: &Limits) -> hotloop::Result<()>;

    /// Puts `count` empty packets at the end of `burst`. Returns whether it did: all or none. None
    /// where it has fewer, or the burst has less [room](Burst::room).
    fn take(&self, burst: &mut Burst<Self::Packet>, count: usize) -> bool;
}

/// Creates datagrams, at its pace, for as long as its gate is open.
#[derive(Debug)]
pub struct Generator<D> {
    supply: Arc<D>,
    datagrams: Datagrams,
    pace: Pace,
    gate: Arc<AtomicBool>,
}

impl<D> Generator<D> {
    /// Creates these datagrams at this pace while `gate` is true.
    pub const fn new(
        supply: Arc<D>,
        datagrams: Datagrams,
        pace: Pace,
        gate: Arc<AtomicBool>,
    ) -> Self {
        Self { supply, datagrams, pace, gate }
    }
}

impl<D: Supply + 'static> Source for Generator<D> {
    type Item = D::Packet;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<D::Packet>) -> usize {
        if !self.gate.load(Relaxed) {
            return 0;
        }
        let count = self.pace.take(burst.room());
        if !self.supply.take(burst, count) {
            // All are on their way: they come back as the device sends them.
            self.pace.give_back(count);
            return 0;
        }
        let first = burst.len() - count;
        burst.as_mut_slice()[first..].iter_mut().for_each(|blank| self.datagrams.write_next(blank));
        count
    }

    fn start(&mut self, limits: &Limits) -> hotloop::Result<()> {
        self.supply.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.supply) as Arc<dyn Device>]
    }

    fn creates(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::tests::{Memory, plan};
    use std::time::Duration;

    fn generator(blank_count: usize, rate: Option<u64>, open: bool) -> Generator<Memory> {
        let supply = Arc::new(Memory::of(blank_count));
        let gate = Arc::new(AtomicBool::new(open));
        Generator::new(supply, Datagrams::new(&plan(), 0, 1), Pace::new(rate, 0, 1), gate)
    }

    #[test]
    fn a_poll_fills_the_room_of_a_burst() {
        let (mut generator, mut burst) = (generator(100, None, true), Burst::new());
        burst.set_limit(60);
        assert_eq!((generator.poll(&mut burst), generator.poll(&mut burst)), (60, 0));
        burst.set_limit(BURST_CAPACITY);
        assert_eq!((generator.poll(&mut burst), burst.len()), (4, 64));
        for (index, packet) in burst.as_slice().iter().enumerate() {
            let port = 1000 + index as u16 % 8;
            assert_eq!((packet.len_bytes(), &packet.data()[34..36]), (74, &port.to_be_bytes()[..]));
        }
        // 36 are left: less than a burst, so the generator waits for more.
        let mut next = Burst::new();
        assert_eq!((generator.poll(&mut next), next.len()), (0, 0));
        burst.clear();
        assert_eq!((generator.poll(&mut next), next.len()), (64, 64));
    }

    #[test]
    fn nothing_before_the_gate_opens() {
        let (mut generator, mut burst) = (generator(100, None, false), Burst::new());
        assert_eq!((generator.poll(&mut burst), burst.len()), (0, 0));
        generator.gate.store(true, Relaxed);
        assert_eq!((generator.poll(&mut burst), burst.len()), (64, 64));
    }

    #[test]
    fn a_rate_is_kept_through_a_shortage() {
        let (mut generator, mut held, mut burst) =
            (generator(64, Some(1000), true), Burst::new(), Burst::new());
        assert!(generator.supply.take(&mut held, 64));
        for _ in 0..2 {
            assert_eq!(generator.poll(&mut burst), 0);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(generator.poll(&mut burst), 0);
        held.clear();
        assert!((20..=64).contains(&generator.poll(&mut burst)), "{} in 20 ms", burst.len());
    }
}
