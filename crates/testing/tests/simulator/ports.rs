//! Network functions with several ports, and peers that answer them.

use super::groups::check_flows;
use super::nf::{self, Batch, HEADER_BYTES, KIND_CREATED, Own, Parse, Parsed, shard};
use hotloop_engine::{Chain, Clock, Deployment, Graph, Routed, Shard, outlets, source, sources};
use hotloop_packet::{PacketBuf, PortId};
use hotloop_stage::{Cx, Error, Stage, Verdict, drop_reasons};
use hotloop_testing::simulator::{
    SEED_VARIABLE, Scenario, Settings, Simulated, World, simulate, simulate_seeds,
};
use hotloop_testing::{FaultRates, Frame, PooledPacket, Rng};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The kind of a frame that is an answer; requests have kind 0.
const KIND_ANSWER: u8 = 1;

fn kind_of(frame: &Frame) -> u8 {
    frame.bytes[HEADER_BYTES - 1]
}

/// A frame with its port and its RX queue in the byte of the RX queue.
fn frame(port_index: usize, queue_index: usize, number: u64, rng: &mut Rng) -> Frame {
    nf::calm_frame(port_index << 4 | queue_index, number, rng)
}

/// Answers each request once.
fn answer(frame: &Frame, _: &mut Rng) -> Vec<Frame> {
    let mut answer = frame.clone();
    answer.bytes[HEADER_BYTES - 1] = KIND_ANSWER;
    if kind_of(frame) == 0 { vec![answer] } else { Vec::new() }
}

drop_reasons! {
    pub enum TurnDrop { Unlucky = "unlucky" }
}

/// Routes each packet to the port after the one that received it, in a circle.
struct Turn {
    ids: Vec<PortId>,
    /// Whether answers with the number 7 are lost.
    loses: bool,
}

impl Stage<PooledPacket> for Turn {
    type Out = Routed<PooledPacket, PortId>;
    type Drop = TurnDrop;

    fn packet(
        &mut self,
        cx: &mut Cx<'_, TurnDrop>,
        packet: PooledPacket,
    ) -> Verdict<Routed<PooledPacket, PortId>> {
        if self.loses && packet.data()[3..HEADER_BYTES] == [7, KIND_ANSWER] {
            return cx.drop(packet, TurnDrop::Unlucky);
        }
        let index = self.ids.iter().position(|&id| Some(id) == packet.ingress());
        // Packets created here have no port.
        let route = index.map_or(self.ids[0], |index| self.ids[(index + 1) % self.ids.len()]);
        Ok(Routed { packet, route })
    }
}

/// From each port to the next, with a boundary between.
fn turning(world: &World, port_count: usize, loses: bool) -> impl Graph {
    let ids: Vec<_> = (0..port_count).map(|index| world.port(index).id()).collect();
    let routes = ids.clone();
    source(move |core| {
        let queues = (0..port_count).map(|index| world.port(index).rx_queue(core));
        Ok::<_, Error>(sources(queues.collect::<Result<Vec<_>, _>>()?))
    })
    .burst_stage(|_| Parse)
    .shard_by(Parsed::shard)
    .stage(|_| Own { clock: world.settings().clock })
    .burst_stage(|_| Batch::new(world.port(0).pool()))
    .stage(move |_| Turn { ids: ids.clone(), loses })
    .sink(move |core| {
        let queues =
            (0..).zip(&routes).map(|(index, &id)| Ok((id, world.port(index).tx_queue(core)?)));
        Ok::<_, Error>(outlets(queues.collect::<Result<Vec<_>, Error>>()?))
    })
}

/// Requests arrive at port 0 and leave by port 1, where the peer answers each of them.
#[derive(Default)]
struct Asked {
    /// Whether the network function loses some answers.
    loses: bool,
    /// Number of answers in runs that could lose none.
    exact_count: AtomicU64,
}

impl Scenario for Asked {
    fn settings(&self, rng: &mut Rng) -> Settings {
        Settings { clock: Clock::Wall, ..Settings::drawn(rng) }
    }

    fn port_count(&self) -> usize {
        2
    }

    fn is_fed(&self, port_index: usize) -> bool {
        port_index == 0
    }

    fn frame(&self, port_index: usize, queue_index: usize, number: u64, rng: &mut Rng) -> Frame {
        frame(port_index, queue_index, number, rng)
    }

    fn peer(&self, port_index: usize) -> Option<impl FnMut(&Frame, &mut Rng) -> Vec<Frame>> {
        (port_index == 1).then_some(answer)
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        turning(world, 2, self.loses)
    }

    fn check(&self, run: &Simulated) -> Result<(), String> {
        let (settings, report) = (&run.settings, &run.report);
        check_kinds(&run.sent[0], |_, kind| kind == KIND_ANSWER)?;
        check_kinds(&run.sent[1], |_, kind| kind == 0)?;
        let lost = ["ring_full", "stale", "unfinished"];
        if settings.stop_after_steps.is_some()
            || settings.rates != FaultRates::default()
            || report.nic_loss.rx_nombuf > 0
            || lost.iter().any(|&reason| report.dropped.get(reason).is_some_and(|&count| count > 0))
        {
            return Ok(());
        }
        let mut rng = Rng::seeded(0);
        let requests = run.sent[1].iter().flatten();
        let mut expected: Vec<_> = requests.flat_map(|it| answer(it, &mut rng)).collect();
        let answers = run.sent[0].iter().flatten().filter(|it| kind_of(it) == KIND_ANSWER);
        let mut answers: Vec<_> = answers.cloned().collect();
        expected.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        answers.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        if answers != expected || run.answered_count != expected.len() as u64 {
            let (sent, left) = (expected.len(), answers.len());
            return Err(format!(
                "{sent} requests, {} answers arrived, {left} left, or others",
                run.answered_count
            ));
        }
        self.exact_count.fetch_add(run.answered_count, Relaxed);
        Ok(())
    }
}

/// Checks the origin, that is port and RX queue, and the kind of all frames that were not created
/// here.
fn check_kinds(sent: &[Vec<Frame>], is_right: impl Fn(u8, u8) -> bool) -> Result<(), String> {
    let mut frames = sent.iter().flatten().filter(|frame| kind_of(frame) != KIND_CREATED);
    match frames.find(|frame| !is_right(frame.bytes[1] >> 4, kind_of(frame))) {
        Some(frame) => {
            Err(format!("a frame left by the wrong port: {:?}", &frame.bytes[..HEADER_BYTES]))
        }
        None => Ok(()),
    }
}

#[test]
fn each_request_that_left_one_port_is_answered_once_by_the_other() {
    let scenario = Asked::default();
    let totals = simulate_seeds(0..2000, &scenario).unwrap_or_else(|failure| panic!("{failure}"));
    if std::env::var(SEED_VARIABLE).is_ok() {
        return;
    }
    let exact_count = scenario.exact_count.into_inner();
    assert!(exact_count > 10_000 && totals.answered > exact_count, "{exact_count} {totals:?}");
}

#[test]
fn a_network_function_that_loses_answers_is_found_by_its_check() {
    let scenario = Asked { loses: true, ..Asked::default() };
    let failure = simulate_seeds(0..2000, &scenario).unwrap_err();
    assert!(failure.findings[0].contains("answers arrived"), "{failure}");
    assert!(failure.run.unwrap().report.dropped["unlucky"] > 0);
}

/// Frames arrive at three ports and leave by the next, with all faults and settings; the last
/// port's peer answers at random, at most a hundred times.
struct Circle;

impl Scenario for Circle {
    fn port_count(&self) -> usize {
        3
    }

    fn frame(&self, port_index: usize, queue_index: usize, number: u64, rng: &mut Rng) -> Frame {
        frame(port_index, queue_index, number, rng)
    }

    fn peer(&self, port_index: usize) -> Option<impl FnMut(&Frame, &mut Rng) -> Vec<Frame>> {
        let mut left_count = 100;
        (port_index == 2).then_some(move |frame: &Frame, rng: &mut Rng| {
            if left_count == 0 || rng.permille(500) {
                return Vec::new();
            }
            left_count -= 1;
            answer(frame, rng)
        })
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        turning(world, 3, false)
    }

    fn check(&self, run: &Simulated) -> Result<(), String> {
        if run.answered_count > 100 {
            return Err(format!("{} answers", run.answered_count));
        }
        let worker_count = run.settings.deployment.cores_in(1);
        for (port, sent) in (0..).zip(&run.sent) {
            check_flows(sent, |flow| Shard::from(shard(flow)).worker(worker_count))?;
            // An answer has travelled one port further than its request.
            check_kinds(sent, |origin, kind| (origin + 1 + kind) % 3 == port)?;
        }
        Ok(())
    }
}

#[test]
fn frames_of_three_ports_leave_by_the_next_in_the_order_of_their_flow() {
    let totals = simulate_seeds(0..2000, &Circle).unwrap_or_else(|failure| panic!("{failure}"));
    if std::env::var(SEED_VARIABLE).is_ok() {
        return;
    }
    assert!(totals.answered > 10_000 && totals.crossed > 50_000, "{totals:?}");
    assert!(totals.imissed > 1000 && totals.rx_nombuf > 1000, "{totals:?}");
}

#[test]
fn a_seed_of_several_ports_repeats_to_the_packet() {
    for seed in 0..100 {
        assert_eq!(simulate(seed, &Circle).unwrap(), simulate(seed, &Circle).unwrap());
        let [first, second] = [0; 2].map(|_| simulate(seed, &Asked::default()).unwrap());
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Settings that lose nothing.
fn lossless(rng: &mut Rng) -> Settings {
    Settings {
        clock: Clock::Wall,
        lossless: true,
        rates: FaultRates::default(),
        frame_count: 10,
        answer_count_max: 500,
        stop_after_steps: None,
        ..Settings::drawn(rng)
    }
}

/// A network function and a peer that return each frame, for ever.
struct PingPong;

impl Scenario for PingPong {
    fn settings(&self, rng: &mut Rng) -> Settings {
        lossless(rng)
    }

    fn frame(&self, _: usize, _: usize, _: u64, _: &mut Rng) -> Frame {
        Frame::new([0; HEADER_BYTES])
    }

    fn peer(&self, _: usize) -> Option<impl FnMut(&Frame, &mut Rng) -> Vec<Frame>> {
        Some(|frame: &Frame, _: &mut Rng| vec![frame.clone()])
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        let port = world.port(0);
        source(|core| port.rx_queue(core))
            .shard_by(|packet: &PooledPacket| packet.index() as u32)
            .sink(|core| port.tx_queue(core))
    }
}

#[test]
fn a_peer_that_always_answers_comes_to_an_end() {
    for seed in 0..50 {
        let run = simulate(seed, &PingPong).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((run.answered_count, run.fed_count), (500, 510), "seed {seed}");
    }
}

/// Receives only from port 0 and sends only by port 1, where answers find no RX queue.
struct OneWay;

impl Scenario for OneWay {
    fn settings(&self, rng: &mut Rng) -> Settings {
        Settings { deployment: Deployment::run_to_completion(2), ..lossless(rng) }
    }

    fn port_count(&self) -> usize {
        2
    }

    fn frame(&self, port_index: usize, _: usize, _: u64, _: &mut Rng) -> Frame {
        Frame::new([port_index as u8; HEADER_BYTES])
    }

    fn peer(&self, _: usize) -> Option<impl FnMut(&Frame, &mut Rng) -> Vec<Frame>> {
        Some(answer)
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        source(|core| world.port(0).rx_queue(core)).sink(|core| world.port(1).tx_queue(core))
    }
}

#[test]
fn frames_arrive_only_where_the_graph_receives() {
    for seed in 0..50 {
        let run = simulate(seed, &OneWay).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((run.answered_count, run.report.received), (0, 10), "seed {seed}");
        assert_eq!((run.sent[0].len(), run.sent[1].iter().flatten().count()), (0, 10));
    }
}
