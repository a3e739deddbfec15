//! The stage that makes packets, and the source in front of it that never yields one.

use crate::datagrams::Datagrams;
use crate::pace::Pace;
use hotloop::prelude::*;
use hotloop::stage::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Where blank packets come from.
pub trait Supply {
    /// The packets.
    type Packet: PacketBuf;

    /// Puts `count` empty packets at the end of `burst`, where there is room for them, and says
    /// whether it did: all or none.
    fn take(&mut self, burst: &mut Burst<Self::Packet>, count: usize) -> bool;
}

/// What the source yields: no such packet can be.
#[derive(Clone, Copy, Debug)]
pub enum Never {}

impl Carries for Never {
    fn carried(&self) -> &[u8] {
        match *self {}
    }
}

/// A source that yields nothing. It stands for the device whose pool the generator takes from, and
/// starts it.
#[derive(Debug)]
pub struct Silence<D>(pub Arc<D>);

/// What must be started before packets can be made.
pub trait Startable: Device {
    /// As [`Source::start`].
    ///
    /// # Errors
    /// Whatever keeps it from starting.
    fn start(&self, facts: &Facts) -> hotloop::Result<()>;
}

impl<D: Startable + 'static> Source for Silence<D> {
    type Item = Never;

    fn poll(&mut self, _: &mut Burst<Never>) -> usize {
        0
    }

    fn start(&mut self, facts: &Facts) -> hotloop::Result<()> {
        self.0.start(facts)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.0) as Arc<dyn Device>]
    }
}

/// Makes datagrams, at its pace, for as long as its gate is open.
#[derive(Debug)]
pub struct Generator<S: Supply> {
    supply: S,
    datagrams: Datagrams,
    pace: Pace,
    gate: Arc<AtomicBool>,
    blanks: Burst<S::Packet>,
}

impl<S: Supply> Generator<S> {
    /// Makes these datagrams at this pace while `gate` is true.
    pub const fn new(supply: S, datagrams: Datagrams, pace: Pace, gate: Arc<AtomicBool>) -> Self {
        Self { supply, datagrams, pace, gate, blanks: Burst::new() }
    }
}

impl<S: Supply> BurstStage<Never> for Generator<S> {
    type Out = S::Packet;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Never>,
        _: &mut Output<'_, S::Packet>,
    ) {
        if let Some(never) = input.pop() {
            match never {}
        }
    }

    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_, NoDrops>, out: &mut Output<'_, S::Packet>) {
        if !self.gate.load(Relaxed) {
            return;
        }
        let count = self.pace.take(cx.now(), BURST_CAPACITY);
        if count == 0 {
            return;
        }
        if !self.supply.take(&mut self.blanks, count) {
            // All are on their way: they come back as the device sends them.
            self.pace.give_back(count);
            return;
        }
        while let Some(mut packet) = self.blanks.pop() {
            // A blank without room goes back to its pool: it was never a packet of the ledger's.
            if self.datagrams.write_next(&mut packet).is_ok() {
                out.push_created(packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagrams::Plan;
    use hotloop::packet::ethernet::MacAddress;
    use hotloop::packet::memory::MemPacket;
    use hotloop::testing::bench_burst;
    use std::time::Duration;

    /// So many blanks of so many bytes.
    struct Blanks {
        left: usize,
        room_bytes: usize,
    }

    impl Supply for Blanks {
        type Packet = MemPacket;

        fn take(&mut self, burst: &mut Burst<MemPacket>, count: usize) -> bool {
            if count > self.left {
                return false;
            }
            self.left -= count;
            burst.extend((0..count).map(|_| MemPacket::with_room(&[], 128, self.room_bytes)));
            true
        }
    }

    fn generator(blanks: Blanks, rate: Option<u64>, open: bool) -> Generator<Blanks> {
        let plan = Plan {
            from: "10.0.0.1:1000".parse().unwrap(),
            to: "192.0.2.1:9000".parse().unwrap(),
            from_mac: MacAddress::new([2, 0, 0, 0, 0, 1]),
            to_mac: MacAddress::new([2, 0, 0, 0, 0, 2]),
            flow_count: 3,
            payload_bytes: 32,
        };
        let gate = Arc::new(AtomicBool::new(open));
        Generator::new(blanks, Datagrams::new(&plan, 0, 1), Pace::new(rate, 0, 1), gate)
    }

    #[test]
    fn a_burst_a_turn_counted_as_created() {
        let mut bench = bench_burst(generator(Blanks { left: 100, room_bytes: 200 }, None, true));
        let out = bench.tick::<Never>();
        assert_eq!((out.packets().len(), out.created(), out.received()), (64, 64, 0));
        assert!(out.packets().iter().all(|packet| packet.len_bytes() == 74));
        // 36 are left: less than a burst, so the generator waits for more.
        assert_eq!(bench.tick::<Never>().created(), 0);
        bench.stage_mut().supply.left = 64;
        assert_eq!(bench.tick::<Never>().created(), 64);
    }

    #[test]
    fn nothing_before_the_gate_opens() {
        let mut bench = bench_burst(generator(Blanks { left: 100, room_bytes: 200 }, None, false));
        assert_eq!(bench.tick::<Never>().created(), 0);
        bench.stage().gate.store(true, Relaxed);
        assert_eq!(bench.tick::<Never>().created(), 64);
    }

    #[test]
    fn a_rate_is_kept_through_a_shortage() {
        let blanks = Blanks { left: 0, room_bytes: 200 };
        let mut bench = bench_burst(generator(blanks, Some(1000), true));
        assert_eq!(bench.tick::<Never>().created(), 0);
        bench.advance(Duration::from_millis(5));
        assert_eq!(bench.tick::<Never>().created(), 0);
        bench.stage_mut().supply.left = 100;
        bench.advance(Duration::from_millis(5));
        assert_eq!(bench.tick::<Never>().created(), 10);
    }

    #[test]
    fn a_blank_that_is_too_small_is_no_packet() {
        let mut bench = bench_burst(generator(Blanks { left: 64, room_bytes: 73 }, None, true));
        let out = bench.tick::<Never>();
        assert_eq!((out.packets().len(), out.created()), (0, 0));
    }
}
