//! The load of a core, compared with a known one: in a simulation whose time packets and turns
//! advance by fixed costs.

use hotloop_engine::{
    Chain, CoreLoad, Deployment, Engine, Graph, Idle, LoadMeter, Monitor, Waited, source,
};
use hotloop_stage::{
    BURST_CAPACITY, Burst, BurstStage, Carries, Cx, Error, Instant, NoDrops, Output, Sink, Source,
};
use hotloop_testing::Rng;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The time that a reading of the load covers: a core that sleeps has fewer turns in it.
const WINDOW_NS: u64 = 3_000_000;
const WINDOW_NS_SLEEPING: u64 = 30_000_000;

/// Number of packets that can wait to be polled.
const QUEUE_CAPACITY: u64 = 1024;

struct Number;

impl Carries for Number {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// A clock that stands still unless it is advanced.
#[derive(Clone, Default)]
struct Time(Arc<AtomicU64>);

impl Time {
    fn ns(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn pass(&self, ns: u64) {
        self.0.fetch_add(ns, Relaxed);
    }
}

/// The simulated costs, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// A turn, with or without packets.
    turn: u64,
    /// Additional cost of a turn with packets.
    burst: u64,
    packet: u64,
}

impl Costs {
    /// The nanoseconds between two packets at the core's maximum rate.
    fn gap_min(self) -> f64 {
        (self.turn + self.burst) as f64 / BURST_CAPACITY as f64 + self.packet as f64
    }
}

/// The arrival pattern of packets.
#[derive(Clone, Copy, Debug)]
enum Traffic {
    Even,
    Poisson,
    /// At random for a window, then evenly.
    Settling,
    /// Up to this many at once.
    Trains(u64),
}

/// Packets that arrive while time passes.
struct Arrivals {
    time: Time,
    turn_ns: u64,
    traffic: Traffic,
    /// Nanoseconds between packets on average.
    gap_ns: f64,
    next_ns: f64,
    waiting: u64,
    rng: Rng,
}

impl Arrivals {
    fn arrive(&mut self) {
        while self.next_ns <= self.time.ns() as f64 {
            let (count, gaps) = match self.traffic {
                Traffic::Settling if self.time.ns() > WINDOW_NS => (1, 1.0),
                Traffic::Even => (1, 1.0),
                Traffic::Poisson | Traffic::Settling => {
                    (1, -((self.rng.below(1 << 30) + 1) as f64 / 2_f64.powi(30)).ln())
                }
                Traffic::Trains(count_max) => {
                    let count = 1 + self.rng.below(count_max);
                    (count, count as f64)
                }
            };
            self.next_ns += self.gap_ns * gaps;
            // Packets without room are lost.
            self.waiting = (self.waiting + count).min(QUEUE_CAPACITY);
        }
    }
}

impl Source for Arrivals {
    type Item = Number;

    fn poll(&mut self, burst: &mut Burst<Number>) -> usize {
        self.time.pass(self.turn_ns);
        self.arrive();
        let count = self.waiting.min(burst.room() as u64);
        self.waiting -= count;
        burst.extend((0..count).map(|_| Number));
        count as usize
    }

    fn waiting_count(&mut self) -> Option<usize> {
        self.arrive();
        Some(self.waiting as usize)
    }
}

/// Takes simulated time for each packet.
struct Work {
    time: Time,
    burst_ns: u64,
    packet_ns: u64,
}

impl BurstStage<Number> for Work {
    type Out = Number;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Number>,
        out: &mut Output<'_, Number>,
    ) {
        self.time.pass(self.burst_ns);
        out.map(input, |number| {
            self.time.pass(self.packet_ns);
            Some(number)
        });
    }
}

struct Nothing;

impl Sink for Nothing {
    type Item = Number;

    fn send(&mut self, burst: &mut Burst<Number>) -> usize {
        let count = burst.len();
        burst.clear();
        count
    }
}

fn graph(time: &Time, costs: Costs, traffic: Traffic, gap_ns: f64) -> impl Graph {
    let (at_source, at_stage) = (time.clone(), time.clone());
    source(move |_| {
        let (time, turn_ns, rng) = (at_source.clone(), costs.turn, Rng::seeded(7));
        Ok::<_, Error>(Arrivals { time, turn_ns, traffic, gap_ns, next_ns: 0.0, waiting: 0, rng })
    })
    .burst_stage(move |_| Work {
        time: at_stage.clone(),
        burst_ns: costs.burst,
        packet_ns: costs.packet,
    })
    .sink(|_| Ok::<_, Error>(Nothing))
}

/// The loads read in some windows, with packets `gap_ns` apart.
fn loads(costs: Costs, traffic: Traffic, gap_ns: f64, idle: Idle, windows: u64) -> Vec<CoreLoad> {
    let time = Time::default();
    let graph = graph(&time, costs, traffic, gap_ns);
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap().idle(idle);
    let clock = time.clone();
    let mut assembly = plan.assemble_timed(move || clock.ns()).unwrap();
    let mut meter = LoadMeter::default();
    let mut loads = Vec::new();
    let window_ns = if idle == Idle::Adaptive { WINDOW_NS_SLEEPING } else { WINDOW_NS };
    for window in 1..=windows {
        let begin = time.ns();
        while time.ns() < window * window_ns {
            let now = Instant::from_ns(time.ns());
            if assembly.step(0, now) == 0
                && let Some(sleep) = assembly.sleep(0, now)
            {
                time.pass(sleep.as_nanos() as u64);
            }
        }
        loads.extend(meter.read(&assembly.load(), time.ns() - begin, |_| 1.0));
    }
    assert!(assembly.finish(Instant::from_ns(time.ns())).balanced);
    loads
}

/// Checks that the load read is the true one to within ten points, from idle to beyond the knee.
fn check(costs: Costs, traffic: Traffic, idle: Idle) {
    for percent in [1, 5, 10, 25, 40, 60, 80, 95, 100, 130] {
        let truth = f64::from(percent.min(100));
        let gap_ns = costs.gap_min() * 100.0 / f64::from(percent);
        let loads = loads(costs, traffic, gap_ns, idle, 3);
        // The first reading includes the beginning.
        for load in &loads[1..] {
            let Some(read) = load.load_percent else {
                // With so few busy turns, none was timed yet.
                let busy = 1.0 - load.empty_percent.unwrap() / 100.0;
                let busy_turns = load.turns_per_second * busy * WINDOW_NS as f64 / 1e9;
                assert!(busy_turns < 128.0, "{load:?}");
                continue;
            };
            let error = (read - truth).abs();
            assert!(
                error <= 10.0,
                "{read:.1} % instead of {truth} %: {costs:?} {traffic:?} {idle}"
            );
        }
    }
}

const EVERY_COST: [Costs; 4] = [
    // Like an engine with very little work per packet, and one with much.
    Costs { turn: 20, burst: 60, packet: 8 },
    Costs { turn: 30, burst: 200, packet: 150 },
    // Expensive turns, with or without packets: only bursts make them bearable.
    Costs { turn: 1500, burst: 0, packet: 20 },
    Costs { turn: 40, burst: 800, packet: 15 },
];

#[test]
fn the_load_is_true_from_idle_to_the_knee() {
    for costs in EVERY_COST {
        for traffic in [Traffic::Poisson, Traffic::Settling, Traffic::Trains(48)] {
            check(costs, traffic, Idle::Spin);
        }
    }
}

#[test]
fn the_load_is_true_where_cores_sleep() {
    for costs in EVERY_COST {
        check(costs, Traffic::Poisson, Idle::Adaptive);
    }
}

#[test]
fn where_every_burst_has_one_packet_the_load_is_rather_too_high() {
    // A turn costs the same whether it finds packets or not.
    check(Costs { turn: 100, burst: 0, packet: 20 }, Traffic::Even, Idle::Spin);
    let costs = Costs { turn: 20, burst: 60, packet: 8 };
    let loads = loads(costs, Traffic::Even, costs.gap_min() * 20.0, Idle::Spin, 3);
    let read = loads[2].load_percent.unwrap();
    // Of 88 ns for each packet, 68 might be the packet's.
    assert!((5.0..=48.0).contains(&read), "{read}");
}

#[test]
fn an_idle_core_has_no_load_and_one_that_others_hinder_has_more() {
    let costs = Costs { turn: 30, burst: 200, packet: 150 };
    let idle = &loads(costs, Traffic::Even, 1e18, Idle::Spin, 2)[1];
    assert_eq!((idle.load_percent, idle.packets_per_second), (Some(0.0), 0.0));
    assert!(idle.empty_percent == Some(100.0) && idle.ns_per_packet.is_none(), "{idle:?}");

    let time = Time::default();
    let graph = graph(&time, costs, Traffic::Poisson, costs.gap_min() * 4.0);
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
    let clock = time.clone();
    let mut assembly = plan.assemble_timed(move || clock.ns()).unwrap();
    while time.ns() < WINDOW_NS {
        assembly.step(0, Instant::from_ns(time.ns()));
    }
    let counts = assembly.load();
    let load = |available| LoadMeter::default().read(&counts, WINDOW_NS, |_| available).remove(0);
    let (alone, halved) = (load(1.0).load_percent.unwrap(), load(0.5).load_percent.unwrap());
    assert!((20.0..30.0).contains(&alone), "{alone}");
    assert!((alone * 2.0 - halved).abs() < 0.1, "{alone} and {halved}");
}

#[test]
fn figures_say_what_was_counted() {
    let costs = Costs { turn: 30, burst: 200, packet: 150 };
    let load = &loads(costs, Traffic::Poisson, costs.gap_min() * 1.25, Idle::Spin, 3)[2];
    let rate = 1e9 / (costs.gap_min() * 1.25);
    assert!((load.packets_per_second / rate - 1.0).abs() < 0.1, "{load:?}");
    let places: Vec<_> = load.places.iter().map(|place| place.name.as_str()).collect();
    assert_eq!(places, ["source", "Work", "sink"]);
    let of = |index: usize| load.places[index].ns_per_packet.unwrap();
    // The costs of the stage and the source for each packet, by the size of bursts.
    let burst = load.burst_percent.unwrap() / 100.0 * BURST_CAPACITY as f64;
    assert!((of(1) - 150.0 - 200.0 / burst).abs() < 15.0, "{load:?}");
    assert!((of(0) - 30.0 / burst).abs() < 5.0 && of(2) == 0.0, "{load:?}");
    assert!((load.ns_per_packet.unwrap() - of(0) - of(1)).abs() < 20.0, "{load:?}");
    let waiting = load.places[0].waiting.unwrap();
    assert!(waiting.max > 0 && waiting.max <= QUEUE_CAPACITY && waiting.capacity.is_none());
}

/// Has a packet in every third turn, and reads in each turn what other threads read of the previous
/// turns.
struct Introspective {
    monitor: Arc<OnceLock<Monitor>>,
    turns: u64,
    readings: u64,
}

impl Source for Introspective {
    type Item = Number;

    fn poll(&mut self, burst: &mut Burst<Number>) -> usize {
        if let Some(monitor) = self.monitor.get() {
            let load = &monitor.load()[0];
            let busy = self.turns.div_ceil(3);
            let seen = (load.turns, load.empty_turns, load.packets);
            assert_eq!(seen, (self.turns, self.turns - busy, busy));
            self.readings += 1;
        }
        self.turns += 1;
        let count = usize::from(self.turns % 3 == 1);
        burst.extend((0..count).map(|_| Number));
        count
    }

    fn finished(&self) -> bool {
        self.readings >= 1000
    }
}

#[test]
fn a_turn_counts_once_it_is_known_what_it_brought() {
    let monitor = Arc::new(OnceLock::new());
    let seen = Arc::clone(&monitor);
    let graph = source(move |_| {
        Ok::<_, Error>(Introspective { monitor: Arc::clone(&seen), turns: 0, readings: 0 })
    })
    .sink(|_| Ok::<_, Error>(Nothing));
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
    let report = plan.run(|control| {
        monitor.set(control.monitor()).unwrap();
        assert_eq!(control.wait_until_finished(), Waited::Finished);
    });
    assert!(report.unwrap().balanced);
}
