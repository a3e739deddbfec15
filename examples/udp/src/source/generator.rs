//! The source that makes packets.

use crate::source::make::Make;
use crate::source::pace::Pace;
use crate::stamp::now_ns;
use hotloop::prelude::*;
use hotloop::stage::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Creates datagrams, at its pace, while its gate is open.
#[derive(Debug)]
pub struct Generator<M> {
    make: M,
    pace: Pace,
    gate: Arc<AtomicBool>,
}

impl<M> Generator<M> {
    /// Creates the packets that `make` makes, at this pace, while `gate` is true.
    pub const fn new(make: M, pace: Pace, gate: Arc<AtomicBool>) -> Self {
        Self { make, pace, gate }
    }
}

impl<M: Make> Source for Generator<M> {
    type Item = M::Item;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<M::Item>) -> usize {
        if !self.gate.load(Relaxed) {
            return 0;
        }
        let now_ns = now_ns();
        let count = self.pace.take(now_ns, burst.room());
        if !self.make.make(burst, count, now_ns) {
            // All packets are in flight: they return as the device sends them.
            self.pace.give_back(count);
            return 0;
        }
        count
    }

    fn start(&mut self, limits: &Limits) -> hotloop::Result<()> {
        self.make.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.make.devices()
    }

    fn creates(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::datagrams::Datagrams;
    use crate::source::datagrams::tests::plan;
    use crate::source::graph::tests::Memory;
    use crate::source::make::{Frames, Supply};
    use std::time::Duration;

    fn generator(
        blank_count: usize,
        rate: Option<u64>,
        open: bool,
    ) -> (Generator<Frames<Memory>>, Arc<Memory>) {
        let supply = Arc::new(Memory::of(blank_count));
        let gate = Arc::new(AtomicBool::new(open));
        let datagrams = Datagrams::new(&plan("10.0.0.1", &["192.0.2.1:4321"], 8), 0, 1);
        let make = Frames::new(Arc::clone(&supply), datagrams);
        (Generator::new(make, Pace::new(rate, 0, 1), gate), supply)
    }

    #[test]
    fn a_poll_fills_the_room_of_a_burst() {
        let ((mut generator, _), mut burst) = (generator(100, None, true), Burst::new());
        burst.set_limit(60);
        assert_eq!((generator.poll(&mut burst), generator.poll(&mut burst)), (60, 0));
        burst.set_limit(BURST_CAPACITY);
        assert_eq!((generator.poll(&mut burst), burst.len()), (4, 64));
        for (index, packet) in burst.as_slice().iter().enumerate() {
            let port = 1000 + index as u16 % 8;
            assert_eq!((packet.len_bytes(), &packet.data()[34..36]), (74, &port.to_be_bytes()[..]));
        }
        // 36 are left, less than a burst, so the generator waits for more.
        let mut next = Burst::new();
        assert_eq!((generator.poll(&mut next), next.len()), (0, 0));
        burst.clear();
        assert_eq!((generator.poll(&mut next), next.len()), (64, 64));
    }

    #[test]
    fn nothing_before_the_gate_opens() {
        let ((mut generator, _), mut burst) = (generator(100, None, false), Burst::new());
        assert_eq!((generator.poll(&mut burst), burst.len()), (0, 0));
        generator.gate.store(true, Relaxed);
        assert_eq!((generator.poll(&mut burst), burst.len()), (64, 64));
    }

    #[test]
    fn a_rate_is_kept_through_a_shortage() {
        let (mut generator, supply) = generator(64, Some(1000), true);
        let (mut held, mut burst) = (Burst::new(), Burst::new());
        assert!(supply.take(&mut held, 64));
        for _ in 0..2 {
            assert_eq!(generator.poll(&mut burst), 0);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(generator.poll(&mut burst), 0);
        held.clear();
        assert!((20..=64).contains(&generator.poll(&mut burst)), "{} in 20 ms", burst.len());
    }
}
