//! Packets that arrive at the two ports, each with its port.

use hotloop::prelude::*;
use hotloop::stage::{Device, Drain};
use std::sync::Arc;
use std::time::Duration;

/// Number of consecutive empty polls before the core sleeps.
const EMPTY_POLLS: u32 = 256;

/// Time that the core then sleeps before each further empty poll.
const REST: Duration = Duration::from_micros(50);

/// One of the endpoint's two ports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The network, the side of tunnel packets.
    Wire,
    /// The TAP interface, which leads to the kernel.
    Kernel,
}

/// A packet and the side that it came from.
#[derive(Debug)]
pub struct Arrived<P> {
    /// The packet.
    pub packet: P,
    /// The packet's side.
    pub side: Side,
}

impl<P: Carries> Carries for Arrived<P> {
    fn bytes(&self) -> &[u8] {
        self.packet.bytes()
    }

    fn total_bytes(&self) -> usize {
        self.packet.total_bytes()
    }

    fn each_segment(&self, take: &mut dyn FnMut(&[u8])) {
        self.packet.each_segment(take);
    }

    fn arrival(&self) -> Option<Instant> {
        self.packet.arrival()
    }

    fn prefetch(&self, is_ahead: bool) {
        self.packet.prefetch(is_ahead);
    }

    fn drop_all(packets: Drain<'_, Self>) {
        let mut all = Burst::new();
        all.extend(packets.map(|arrived| arrived.packet));
        all.clear();
    }
}

/// Both ports' queues, polled in turn.
///
/// An endpoint shares its machine with the servers that it works for. So, unlike a program with a
/// core of its own, it sleeps for 50 µs at a time while nothing comes.
#[derive(Debug)]
pub struct Arrivals<S: Source> {
    queues: [(Side, S); 2],
    /// The queue to poll first next time.
    first: usize,
    polled: Burst<S::Item>,
    empty_polls: u32,
}

impl<S: Source> Arrivals<S> {
    /// Arrivals at these two queues.
    #[must_use]
    pub fn new(wire: S, kernel: S) -> Self {
        let queues = [(Side::Wire, wire), (Side::Kernel, kernel)];
        Self { queues, first: 0, polled: Burst::new(), empty_polls: 0 }
    }

    fn rest(&mut self) {
        self.empty_polls = self.empty_polls.saturating_add(1);
        if self.empty_polls > EMPTY_POLLS {
            std::thread::sleep(REST);
        }
    }
}

impl<S: Source> Source for Arrivals<S> {
    type Item = Arrived<S::Item>;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<Self::Item>) -> usize {
        let mut count = 0;
        for index in [self.first, 1 - self.first] {
            self.polled.set_limit(burst.room());
            let (side, queue) = &mut self.queues[index];
            count += queue.poll(&mut self.polled);
            self.polled.map_into(burst, |packet| Some(Arrived { packet, side: *side }));
        }
        self.first = 1 - self.first;
        if count == 0 {
            self.rest();
        } else {
            self.empty_polls = 0;
        }
        count
    }

    fn start(&mut self, limits: &Limits) -> hotloop::Result<()> {
        self.queues.iter_mut().try_for_each(|(_, queue)| queue.start(limits))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.queues.iter().flat_map(|(_, queue)| queue.devices()).collect()
    }

    fn waiting_count(&mut self) -> Option<usize> {
        self.queues.iter_mut().map(|(_, queue)| queue.waiting_count()).sum()
    }

    fn finished(&self) -> bool {
        self.queues.iter().all(|(_, queue)| queue.finished())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields this many numbers, at most ten at a time.
    struct Numbers(usize);

    impl Source for Numbers {
        type Item = usize;

        fn poll(&mut self, burst: &mut Burst<usize>) -> usize {
            let count = self.0.min(burst.room()).min(10);
            burst.extend(std::iter::repeat_n(self.0, count));
            self.0 -= count;
            count
        }

        fn finished(&self) -> bool {
            self.0 == 0
        }
    }

    #[test]
    fn each_packet_comes_once_with_its_side_and_none_is_more_than_fits() {
        let mut arrivals = Arrivals::new(Numbers(100), Numbers(35));
        let (mut wire, mut kernel) = (0, 0);
        while !arrivals.finished() {
            let mut burst = Burst::new();
            burst.set_limit(15);
            let count = arrivals.poll(&mut burst);
            assert!(count == burst.len() && count <= 15);
            while let Some(arrived) = burst.pop() {
                match arrived.side {
                    Side::Wire => wire += 1,
                    Side::Kernel => kernel += 1,
                }
            }
        }
        assert_eq!((wire, kernel), (100, 35));
    }

    #[test]
    fn neither_side_starves_the_other() {
        let mut arrivals = Arrivals::new(Numbers(1_000), Numbers(1_000));
        for _ in 0..10 {
            let mut burst = Burst::new();
            burst.set_limit(10);
            assert_eq!(arrivals.poll(&mut burst), 10);
        }
        assert_eq!(arrivals.queues[0].1.0, arrivals.queues[1].1.0);
    }
}
