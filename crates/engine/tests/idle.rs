//! `Idle::Adaptive` under a simulated clock: how long packets wait for a sleeping core.

use hotloop_engine::{Assembly, Chain, Deployment, Engine, Graph, Idle, source};
use hotloop_stage::{Burst, BurstStage, Carries, Cx, Instant, NoDrops, Output, Stage, Verdict};
use hotloop_testing::{Frame, MemoryPort, PooledPacket, Rng};
use std::sync::Mutex;

/// The duration of a turn.
const TURN_NS: u64 = 1_000;

const SLEEP_NS_MAX: u64 = Idle::SLEEP_MAX.as_nanos() as u64;

/// When a packet came, and when it went through the last group.
type Waits = Mutex<Vec<[u64; 2]>>;

struct Watch<'a>(&'a Waits);

impl Stage<PooledPacket> for Watch<'_> {
    type Out = PooledPacket;
    type Drop = NoDrops;

    fn packet(&mut self, cx: &mut Cx<'_, NoDrops>, packet: PooledPacket) -> Verdict<PooledPacket> {
        let came = packet.arrival().expect("each has a time");
        self.0.lock().unwrap().push([came.as_ns(), cx.now().as_ns()]);
        Ok(packet)
    }
}

fn graph<'a>(port: &'a MemoryPort, waits: &'a Waits) -> impl Graph + 'a {
    source(|core| port.rx_queue(core))
        .handoff()
        .stage(move |_| Watch(waits))
        .sink(|core| port.tx_queue(core))
}

/// The results of a run.
struct Run {
    /// When each packet came and when it went, in the order of going.
    waits: Vec<[u64; 2]>,
    /// For each core, the beginning and the end of each sleep.
    sleeps: Vec<Vec<[u64; 2]>>,
    end_ns: u64,
}

/// Lets packets arrive at these times, each core take a turn as soon as it may, and cores with
/// empty turns sleep.
fn run(deployment: Deployment, idle: Idle, arrivals: &[u64]) -> Run {
    let (port, waits) = (MemoryPort::new("port"), Waits::default());
    let plan = Engine::plan(graph(&port, &waits), deployment).expect("it fits").idle(idle);
    let mut assembly: Assembly<'_> = plan.assemble().expect("memory");
    let mut ready_ns = vec![0; assembly.core_count()];
    let mut sleeps = vec![Vec::new(); ready_ns.len()];
    let mut to_come = arrivals.iter().copied().peekable();
    let mut now_ns = 0;
    while to_come.peek().is_some() || port.waiting_count(0) + assembly.in_flight() > 0 {
        let core = (0..ready_ns.len()).min_by_key(|&core| ready_ns[core]).expect("there is one");
        now_ns = ready_ns[core];
        let came = std::iter::from_fn(|| to_come.next_if(|&at_ns| at_ns <= now_ns));
        port.feed(0, came.map(|at_ns| Frame::new(vec![0; 60]).captured_at(at_ns)));
        let now = Instant::from_ns(now_ns);
        ready_ns[core] = now_ns + TURN_NS;
        if assembly.step(core, now) == 0
            && let Some(sleep) = assembly.sleep(core, now)
        {
            ready_ns[core] += sleep.as_nanos() as u64;
            sleeps[core].push([now_ns, ready_ns[core]]);
        }
    }
    let report = assembly.finish(Instant::from_ns(now_ns));
    assert!(report.is_whole(), "{report}");
    assert_eq!(report.sent, arrivals.len() as u64);
    drop(plan);
    Run { waits: waits.into_inner().unwrap(), sleeps, end_ns: now_ns }
}

/// Packets in phases of different rates: at least `gap_ns` apart, up to 2 ms.
fn arrivals(seed: u64, gap_ns: u64) -> Vec<u64> {
    let mut rng = Rng::seeded(seed);
    let mut now_ns = 0;
    let mut all = Vec::new();
    for _ in 0..20 {
        // Rates of all magnitudes, equally often.
        let most_ns = gap_ns << rng.below(11);
        for _ in 0..50 + rng.below(500) {
            now_ns += gap_ns + rng.below(most_ns - gap_ns + 1);
            all.push(now_ns);
        }
    }
    all
}

/// A packet every `gap_ns` for `time_ns`.
fn steadily(gap_ns: u64, time_ns: u64) -> Vec<u64> {
    (1..=time_ns / gap_ns).map(|number| number * gap_ns).collect()
}

fn slept_ns(sleeps: &[[u64; 2]]) -> u64 {
    sleeps.iter().map(|[from, to]| to - from).sum()
}

#[test]
fn a_packet_waits_for_one_sleep_of_each_group_at_most() {
    for (deployment, group_count) in
        [(Deployment::run_to_completion(1), 1), (Deployment::pipeline([1, 1]), 2)]
    {
        for seed in 0..40 {
            // At most a burst comes within a sleep.
            let Run { waits, sleeps, .. } =
                run(deployment, Idle::Adaptive, &arrivals(seed, SLEEP_NS_MAX / 60));
            let longest = waits.iter().map(|[came, went]| went - came).max().expect("some came");
            let bound = group_count * (SLEEP_NS_MAX + 3 * TURN_NS);
            assert!(longest <= bound, "{deployment}, seed {seed}: {longest} ns, not {bound}");
            assert!(sleeps.iter().all(|of_core| slept_ns(of_core) > 0));
        }
    }
}

#[test]
fn whatever_the_rate_no_packet_waits_for_a_second_sleep() {
    for seed in 0..20 {
        let Run { waits, sleeps, .. } =
            run(Deployment::run_to_completion(1), Idle::Adaptive, &arrivals(seed, 20));
        for [came, went] in waits {
            let slept_of = |[from, to]: &[u64; 2]| to.min(&went).saturating_sub(*from.max(&came));
            let waited: u64 = sleeps[0].iter().map(slept_of).sum();
            assert!(waited <= SLEEP_NS_MAX + TURN_NS, "seed {seed}: {waited} ns of {came}..{went}");
        }
    }
}

#[test]
fn a_core_under_load_sleeps_no_more_after_its_first_burst() {
    // 20 packets a turn of 1 µs, after some slow ones.
    let slow = steadily(1_000_000, 100_000_000);
    let begin_ns = *slow.last().expect("there are some");
    let fast = steadily(50, 10_000_000).into_iter().map(|at_ns| begin_ns + at_ns);
    let all: Vec<_> = slow.iter().copied().chain(fast).collect();
    let Run { sleeps, end_ns, .. } = run(Deployment::run_to_completion(1), Idle::Adaptive, &all);
    let is_late = |[from, _]: &&[u64; 2]| *from > begin_ns + SLEEP_NS_MAX + 2 * TURN_NS;
    assert_eq!(sleeps[0].iter().find(is_late), None, "of {end_ns} ns");
}

#[test]
fn a_core_with_little_to_do_sleeps_nearly_always() {
    for (gap_ns, share) in [(2_500, 0.9), (100_000, 0.9)] {
        let Run { sleeps, end_ns, .. } =
            run(Deployment::run_to_completion(1), Idle::Adaptive, &steadily(gap_ns, 100_000_000));
        let slept = slept_ns(&sleeps[0]) as f64 / end_ns as f64;
        assert!(slept > share, "a packet every {gap_ns} ns: slept for {slept:.3} of the time");
    }
}

#[test]
fn no_other_mode_sleeps() {
    for idle in [Idle::Spin, Idle::Pause] {
        let Run { sleeps, .. } =
            run(Deployment::run_to_completion(1), idle, &steadily(100_000, 10_000_000));
        assert_eq!(sleeps[0].len(), 0, "{idle}");
    }
}

/// Has work for this many turns.
struct Busy(u32);

impl BurstStage<PooledPacket> for Busy {
    type Out = PooledPacket;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<PooledPacket>,
        out: &mut Output<'_, PooledPacket>,
    ) {
        out.map(input, Some);
    }

    fn tick(&mut self, _: &mut Cx<'_, NoDrops>, _: &mut Output<'_, PooledPacket>) {
        self.0 = self.0.saturating_sub(1);
    }

    fn has_work(&self) -> bool {
        self.0 > 0
    }
}

#[test]
fn a_core_does_not_sleep_while_a_stage_has_work() {
    let port = MemoryPort::new("port");
    let graph = source(|core| port.rx_queue(core))
        .burst_stage(|_| Busy(5))
        .sink(|core| port.tx_queue(core));
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).expect("it fits");
    let plan = plan.idle(Idle::Adaptive);
    let mut assembly: Assembly<'_> = plan.assemble().expect("memory");
    for turn in 1..10 {
        let now = Instant::from_ns(turn * TURN_NS);
        assert_eq!(assembly.step(0, now), 0);
        assert_eq!(assembly.sleep(0, now).is_some(), turn >= 5, "turn {turn}");
    }
    assert!(assembly.finish(Instant::from_ns(10 * TURN_NS)).is_whole());
}
