//! Stages on the bench.

use hotloop_packet::PacketBuf;
use hotloop_packet::memory::MemPacket;
use hotloop_stage::{
    Burst, BurstStage, Counters, Cx, Instant, NoDrops, Output, Stage, Verdict, drop_reasons,
};
use hotloop_testing::{bench, bench_burst};
use std::time::Duration;

drop_reasons! { enum TestDrop { Small = "small", Late = "late" } }

/// Drops packets that are empty or come after a second, and records how it was called.
#[derive(Default)]
struct LengthFilter {
    /// Number of packets before each tick.
    bursts: Vec<usize>,
    packet_count: usize,
}

impl<P: PacketBuf> Stage<P> for LengthFilter {
    type Out = P;
    type Drop = TestDrop;

    fn packet(&mut self, cx: &mut Cx<'_, TestDrop>, packet: P) -> Verdict<P> {
        self.packet_count += 1;
        if packet.len_bytes() == 0 {
            return cx.drop(packet, TestDrop::Small);
        }
        if cx.now() > Instant::from_ns(1_000_000_000) {
            return cx.drop(packet, TestDrop::Late);
        }
        Ok(packet)
    }

    fn tick(&mut self, _: &mut Cx<'_, TestDrop>) {
        self.bursts.push(std::mem::take(&mut self.packet_count));
    }
}

#[test]
fn packets_come_in_bursts_with_a_tick_after_each() {
    let mut bench = bench(LengthFilter::default());
    let out = bench.feed((0..150).map(|number| vec![number]));
    assert_eq!((out.received(), out.packets().len(), out.dropped_sum()), (150, 150, 0));
    assert_eq!(out.packets()[149].data(), [149]);
    assert_eq!(bench.stage().bursts, [64, 64, 22]);
}

#[test]
fn drops_are_kept_apart_and_time_is_the_tests() {
    let mut bench =
        bench(LengthFilter::default()).in_bursts_of(1).at(Instant::from_ns(999_999_999));
    let out = bench.feed([vec![], vec![1], vec![]]);
    assert_eq!((out.dropped(TestDrop::Small), out.dropped(TestDrop::Late)), (2, 0));
    assert_eq!(out.into_packets().len(), 1);
    let out = bench.advance(Duration::from_nanos(2)).feed([vec![1], vec![]]);
    assert_eq!((out.dropped(TestDrop::Small), out.dropped(TestDrop::Late)), (1, 1));
    assert_eq!(bench.stage().bursts, [1; 5]);
}

/// Returns a drop that it never counted, or counts one for a packet that it emits.
struct Miscounting {
    counts: bool,
}

impl<P: PacketBuf + Clone> Stage<P> for Miscounting {
    type Out = P;
    type Drop = TestDrop;

    fn packet(&mut self, cx: &mut Cx<'_, TestDrop>, packet: P) -> Verdict<P> {
        if self.counts {
            cx.discard(packet.clone(), TestDrop::Late);
            return Ok(packet);
        }
        Cx::new(&Counters::new(&["small"]), cx.now()).drop(packet, TestDrop::Small)
    }
}

#[test]
#[should_panic = "unattributed"]
fn an_uncounted_drop_is_found() {
    bench(Miscounting { counts: false }).feed([vec![1]]);
}

#[test]
#[should_panic = "uncreated"]
fn a_packet_dropped_and_given_on_is_found() {
    bench(Miscounting { counts: true }).feed([vec![1]]);
}

/// Holds three packets, passes them on with one of its own, and drops the rest at the end.
#[derive(Default)]
struct Trio {
    held: Vec<MemPacket>,
    loses: bool,
}

impl BurstStage<MemPacket> for Trio {
    type Out = MemPacket;
    type Drop = TestDrop;

    fn process(
        &mut self,
        _: &mut Cx<'_, TestDrop>,
        input: &mut Burst<MemPacket>,
        out: &mut Output<'_, MemPacket>,
    ) {
        while let Some(packet) = input.pop() {
            self.held.push(packet);
            if self.held.len() == 3 {
                self.held.drain(..).for_each(|packet| out.push(packet));
                out.push_created(MemPacket::new(b"three"));
            }
        }
        if self.loses {
            self.held.clear();
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_, TestDrop>, _: &mut Output<'_, MemPacket>) {
        for packet in self.held.drain(..) {
            cx.discard(packet, TestDrop::Late);
        }
    }

    fn held(&self) -> usize {
        self.held.len()
    }

    fn held_max(&self) -> usize {
        2
    }
}

#[test]
fn a_burst_stage_holds_creates_and_drops() {
    let mut bench = bench_burst(Trio::default());
    let out = bench.feed((0..200).map(|number| vec![number]));
    assert_eq!((out.received(), out.created(), out.packets().len()), (200, 66, 198 + 66));
    assert_eq!(out.packets()[3].data(), b"three");
    assert_eq!(bench.stage().held(), 2);
    assert!(bench.tick().packets().is_empty());
    let end = bench.finish();
    assert_eq!((end.dropped(TestDrop::Late), end.packets().len()), (2, 0));
}

#[test]
#[should_panic = "unattributed: 2"]
fn a_burst_stage_that_loses_is_found() {
    bench_burst(Trio { loses: true, ..Trio::default() }).feed((0..5).map(|number| vec![number]));
}

/// Passes each packet on twice.
struct Doubles;

impl BurstStage<MemPacket> for Doubles {
    type Out = MemPacket;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<MemPacket>,
        out: &mut Output<'_, MemPacket>,
    ) {
        while let Some(packet) = input.pop() {
            out.push(packet.clone());
            out.push(packet);
        }
    }
}

#[test]
#[should_panic = "uncreated: 1"]
fn a_burst_stage_that_doubles_is_found() {
    bench_burst(Doubles).feed([vec![1]]);
}

/// Turns packets into answers: some into none, and some into packets that are not answers.
struct Answers {
    cheats: bool,
}

impl BurstStage<MemPacket> for Answers {
    type Out = MemPacket;
    type Drop = TestDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, TestDrop>,
        input: &mut Burst<MemPacket>,
        out: &mut Output<'_, MemPacket>,
    ) {
        while let Some(packet) = input.pop() {
            if packet.data().is_empty() {
                drop(cx.reuse(packet, TestDrop::Small));
                continue;
            }
            let mut answer = cx.reuse(packet, TestDrop::Late);
            answer.data_mut()[0] += 100;
            if self.cheats { out.push(answer) } else { out.push_created(answer) }
        }
    }
}

#[test]
fn what_is_answered_is_dropped_and_its_answer_created() {
    let out = bench_burst(Answers { cheats: false }).feed([vec![1], vec![], vec![2], vec![3]]);
    assert_eq!((out.received(), out.created(), out.dropped_sum()), (4, 3, 4));
    assert_eq!((out.dropped(TestDrop::Late), out.dropped(TestDrop::Small)), (3, 1));
    let answers: Vec<_> = out.packets().iter().map(PacketBuf::data).collect();
    assert_eq!(answers, [[101], [102], [103]]);
}

#[test]
#[should_panic = "uncreated: 1"]
fn an_answer_that_passes_as_what_came_is_found() {
    bench_burst(Answers { cheats: true }).feed([vec![1]]);
}
