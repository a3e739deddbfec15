//! The whole engine on one thread for ten thousand seeds, and seeds that must fail.

mod groups;
mod nf;
mod ports;

use groups::check_flows;
use hotloop_engine::{Chain, Deployment, Graph, Shard, source};
use hotloop_packet::PacketBuf;
use hotloop_stage::{Burst, BurstStage, Cx, NoDrops, Output, each};
use hotloop_testing::simulator::{
    SEED_VARIABLE, Scenario, Settings, Simulated, World, simulate, simulate_seeds,
};
use hotloop_testing::{
    FaultRates, Frame, Plant, PlantedBurstStage, PlantedSink, PlantedSource, PlantedStage,
    PooledPacket, Rng,
};
use nf::{Batch, FLOW_COUNT, Own, Parse, Parsed, shard};

/// Everything at once: all settings, all faults, stages that panic.
struct Varied;

impl Scenario for Varied {
    fn frame(&self, _: usize, queue_index: usize, number: u64, rng: &mut Rng) -> Frame {
        nf::frame(queue_index, number, rng)
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        source(|core| world.port(0).rx_queue(core))
            .burst_stage(|_| Parse)
            .shard_by(Parsed::shard)
            .stage(|_| Own { clock: world.settings().clock })
            .burst_stage(|_| Batch::new(world.port(0).pool()))
            .stage(|_| each(|packet: PooledPacket| packet))
            .sink(|core| world.port(0).tx_queue(core))
    }

    fn may_panic(&self) -> bool {
        true
    }

    fn check(&self, run: &Simulated) -> Result<(), String> {
        if run.report.dropped.contains_key("early") {
            return Err("a packet ran before it had arrived".to_owned());
        }
        let worker_count = run.settings.deployment.cores_in(1);
        check_flows(&run.sent[0], |flow| Shard::from(shard(flow)).worker(worker_count))
    }
}

#[test]
fn ten_thousand_seeds_keep_a_whole_ledger() {
    let totals = simulate_seeds(0..10_000, &Varied).unwrap_or_else(|failure| panic!("{failure}"));
    if std::env::var(SEED_VARIABLE).is_ok() {
        return;
    }
    println!("{totals:?}");
    assert_eq!(totals.seed_count, 10_000);
    assert!(totals.received > 500_000 && totals.sent > 100_000, "{totals:?}");
    for (what, count) in [
        ("created", totals.created),
        ("crossed", totals.crossed),
        ("imissed", totals.imissed),
        ("rx_nombuf", totals.rx_nombuf),
        ("panicked runs", 10 * totals.panicked_run_count),
    ] {
        assert!(count > 1000, "{what}: {count}");
    }
    for reason in ["short", "refused", "ring_full", "stale", "unfinished", "tx_full", "panicked"] {
        let count = totals.dropped.get(reason).copied().unwrap_or_default();
        assert!(count > 1000, "{reason}: {count}");
    }
}

#[test]
fn a_seed_repeats_to_the_packet() {
    let mut runs = Vec::new();
    for seed in 0..100 {
        let run = simulate(seed, &Varied).unwrap();
        assert_eq!(run, simulate(seed, &Varied).unwrap(), "seed {seed}");
        runs.push(run.report.to_json());
    }
    runs.sort();
    runs.dedup();
    assert!(runs.len() > 80, "only {} different runs", runs.len());
}

/// The place of a planted fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Source,
    Stage,
    StageAfterBoundary,
    BurstStage,
    Sink,
}

/// One fault in one place, and nothing else that could go wrong.
struct Planted {
    place: Place,
    plant: Plant<PooledPacket>,
}

impl Planted {
    /// The fault's packet at this place: the twentieth, or none.
    fn at(&self, place: Place) -> u64 {
        if place == self.place { 20 } else { u64::MAX }
    }
}

impl Scenario for Planted {
    fn settings(&self, rng: &mut Rng) -> Settings {
        // Lossless, so that more than twenty packets reach each place.
        Settings {
            lossless: true,
            rates: FaultRates::default(),
            frame_count: 300,
            stop_after_steps: None,
            ..Settings::drawn(rng)
        }
    }

    fn frame(&self, _: usize, _: usize, number: u64, _: &mut Rng) -> Frame {
        Frame::new([number as u8; 60])
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        let Self { plant, .. } = *self;
        source(move |core| {
            world
                .port(0)
                .rx_queue(core)
                .map(|rx| PlantedSource::new(rx, plant, self.at(Place::Source)))
        })
        .stage(move |_| PlantedStage::new(plant, self.at(Place::Stage)))
        .shard_by(|packet: &PooledPacket| shard(packet.data()[0] % FLOW_COUNT))
        .stage(move |_| PlantedStage::new(plant, self.at(Place::StageAfterBoundary)))
        .burst_stage(move |_| PlantedBurstStage::new(plant, self.at(Place::BurstStage)))
        .sink(move |core| {
            world.port(0).tx_queue(core).map(|tx| PlantedSink::new(tx, plant, self.at(Place::Sink)))
        })
    }
}

#[test]
fn a_planted_fault_is_found_in_each_place_and_by_each_seed() {
    let places =
        [Place::Source, Place::Stage, Place::StageAfterBoundary, Place::BurstStage, Place::Sink];
    let plants = [Plant::Lose, Plant::Forget, Plant::Double(PooledPacket::doubled)];
    for place in places {
        for plant in plants {
            let scenario = Planted { place, plant };
            for seed in 0..20 {
                let Err(failure) = simulate(seed, &scenario) else {
                    panic!("seed {seed}: {plant:?} at {place:?} went unseen");
                };
                let run = failure.run.as_ref().expect("the run came to an end");
                assert!(!run.report.balanced, "{place:?} {plant:?} {failure}");
                let keeps_pools_whole = matches!(plant, Plant::Lose);
                assert_eq!(run.report.pools_whole, keeps_pools_whole, "{place:?} {plant:?}");
                let again = simulate(seed, &scenario).unwrap_err();
                assert_eq!(failure.findings, again.findings);
                assert_eq!(failure.run, again.run);
            }
        }
    }
}

#[test]
fn without_a_plant_the_same_scenario_is_whole() {
    let honest = |packet: &PooledPacket| packet.doubled();
    for seed in 0..20 {
        let scenario = NeverPlanted(Planted { place: Place::Sink, plant: Plant::Double(honest) });
        simulate(seed, &scenario).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// [`Planted`] with too few frames to trigger it.
struct NeverPlanted(Planted);

impl Scenario for NeverPlanted {
    fn settings(&self, rng: &mut Rng) -> Settings {
        Settings { frame_count: 20, ..self.0.settings(rng) }
    }

    fn frame(&self, _: usize, queue_index: usize, number: u64, rng: &mut Rng) -> Frame {
        self.0.frame(0, queue_index, number, rng)
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        self.0.graph(world)
    }
}

/// Fails from a certain seed on.
struct FailsFrom {
    frame_count: u64,
}

impl Scenario for FailsFrom {
    fn frame(&self, _: usize, _: usize, number: u64, _: &mut Rng) -> Frame {
        Frame::new([number as u8; 60])
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        source(|core| world.port(0).rx_queue(core))
            .shard_by(|packet: &PooledPacket| packet.index() as u32)
            .sink(|core| world.port(0).tx_queue(core))
    }

    fn check(&self, run: &Simulated) -> Result<(), String> {
        if run.fed_count < self.frame_count { Ok(()) } else { Err("too many".to_owned()) }
    }
}

#[test]
fn the_first_of_many_seeds_that_fails_is_reported_with_how_to_repeat_it() {
    if std::env::var(SEED_VARIABLE).is_ok() {
        return;
    }
    let scenario = FailsFrom { frame_count: 390 };
    let first = (0..).find(|&seed| simulate(seed, &scenario).is_err()).unwrap();
    let failure = simulate_seeds(0..5000, &scenario).unwrap_err();
    assert_eq!((failure.seed, &failure.findings[..]), (first, &["too many".to_owned()][..]));
    assert_eq!(failure.run.as_ref().unwrap().fed_count, 390, "{failure}");
    let text = failure.to_string();
    let again = format!("seed {first} fails (again with HOTLOOP_SEED={first}:frames=390");
    assert!(text.starts_with(&again), "{text}");
    let test = "the_first_of_many_seeds_that_fails_is_reported_with_how_to_repeat_it";
    assert!(text.lines().next().unwrap().ends_with(&format!("{test} -- --exact):")), "{text}");
    assert!(text.contains("too many"), "{text}");
}

/// Rings of one packet, with and without waiting.
struct NarrowRings {
    lossless: bool,
}

impl Scenario for NarrowRings {
    fn settings(&self, rng: &mut Rng) -> Settings {
        Settings {
            deployment: Deployment::pipeline([2, 2]),
            ring_capacity: 1,
            lossless: self.lossless,
            frame_count: 200,
            stop_after_steps: None,
            rates: FaultRates::default(),
            ..Settings::drawn(rng)
        }
    }

    fn frame(&self, _: usize, queue_index: usize, number: u64, rng: &mut Rng) -> Frame {
        nf::calm_frame(queue_index, number, rng)
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        source(|core| world.port(0).rx_queue(core))
            .burst_stage(|_| Parse)
            .shard_by(Parsed::shard)
            .stage(|_| Own { clock: world.settings().clock })
            .sink(|core| world.port(0).tx_queue(core))
    }
}

#[test]
fn a_lossless_source_never_meets_a_full_ring() {
    let run = |lossless| simulate_seeds(0..200, &NarrowRings { lossless }).unwrap();
    if std::env::var(SEED_VARIABLE).is_ok() {
        return;
    }
    assert_eq!(run(true).dropped.get("ring_full"), None);
    assert_eq!(run(true).received, 200 * 200);
    assert!(run(false).dropped["ring_full"] > 1000);
}

/// Holds packets until it has five hundred.
struct Hoard {
    held: Vec<PooledPacket>,
    held_max: usize,
}

impl BurstStage<PooledPacket> for Hoard {
    type Out = PooledPacket;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<PooledPacket>,
        out: &mut Output<'_, PooledPacket>,
    ) {
        while let Some(packet) = input.pop() {
            self.held.push(packet);
            if self.held.len() == 500 {
                self.held.drain(..).for_each(|packet| out.push(packet));
            }
        }
    }

    fn finish(&mut self, _: &mut Cx<'_, NoDrops>, out: &mut Output<'_, PooledPacket>) {
        self.held.drain(..).for_each(|packet| out.push(packet));
    }

    fn held(&self) -> usize {
        self.held.len()
    }

    fn held_max(&self) -> usize {
        self.held_max
    }
}

/// A lossless source, and a stage that hoards.
struct Hoarding {
    held_max: usize,
    pool_count: Option<usize>,
}

impl Scenario for Hoarding {
    fn settings(&self, rng: &mut Rng) -> Settings {
        Settings {
            deployment: Deployment::run_to_completion(1),
            pool_count: self.pool_count,
            lossless: true,
            frame_count: 1000,
            stop_after_steps: None,
            ..Settings::drawn(rng)
        }
    }

    fn frame(&self, _: usize, _: usize, _: u64, _: &mut Rng) -> Frame {
        Frame::new([0; 60])
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        source(|core| world.port(0).rx_queue(core))
            .burst_stage(|_| Hoard { held: Vec::new(), held_max: self.held_max })
            .sink(|core| world.port(0).tx_queue(core))
    }
}

#[test]
fn a_run_that_goes_round_in_circles_is_stopped() {
    let failure = simulate(1, &Hoarding { held_max: 1000, pool_count: Some(100) }).unwrap_err();
    assert_eq!(failure.findings, ["the input is not exhausted after 100000 steps"]);
    simulate(1, &Hoarding { held_max: 1000, pool_count: None }).unwrap();
}

#[test]
fn more_packets_inside_than_there_can_be_are_found() {
    let failure = simulate(1, &Hoarding { held_max: 10, pool_count: None }).unwrap_err();
    assert!(failure.findings[0].contains("where there are at most"), "{failure}");
}

#[test]
fn a_deployment_that_does_not_suit_the_graph_is_reported() {
    struct Unsharded;
    impl Scenario for Unsharded {
        fn settings(&self, rng: &mut Rng) -> Settings {
            Settings { deployment: Deployment::pipeline([1, 1]), ..Settings::drawn(rng) }
        }
        fn frame(&self, _: usize, _: usize, _: u64, _: &mut Rng) -> Frame {
            Frame::default()
        }
        fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
            source(|core| world.port(0).rx_queue(core)).sink(|core| world.port(0).tx_queue(core))
        }
    }
    let failure = simulate(1, &Unsharded).unwrap_err();
    assert!(failure.run.is_none() && failure.findings[0].contains("boundaries"), "{failure}");
}
