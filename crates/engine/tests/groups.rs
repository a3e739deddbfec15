//! Graphs with several boundaries, each with its own item type: every packet arrives, in its order
//! and on the core that owns it, and no packet that can wait is lost.

use crate::common::{Hold, Parcel, Pool, World, core_name, run, watched, whole};
use hotloop_engine::{Chain, Deployment, Engine, Graph, PlanError, RunError, Shard, source};
use hotloop_stage::{
    Burst, BurstStage, Carries, Core, Cx, Error, Instant, NoDrops, Output, Stage, Verdict, each,
};
use std::cell::Cell;
use std::sync::{Arc, Mutex};

const COUNT: u64 = 3000;

/// Every shape for a graph of three groups.
const DEPLOYMENTS: [Deployment; 7] = [
    Deployment::run_to_completion(1),
    Deployment::run_to_completion(2),
    Deployment::run_to_completion(3),
    Deployment::pipeline([1, 1, 1]),
    Deployment::pipeline([1, 2, 1]),
    Deployment::pipeline([2, 1, 1]),
    Deployment::pipeline([2, 3, 2]),
];

/// A parcel and the core of the middle group that marked it: the item that crosses the second
/// boundary.
struct Marked {
    parcel: Parcel,
    core: usize,
}

impl Carries for Marked {
    fn bytes(&self) -> &[u8] {
        self.parcel.bytes()
    }

    fn arrival(&self) -> Option<Instant> {
        self.parcel.arrival()
    }
}

/// Marks parcels with its core.
struct Mark(usize);

impl Stage<Parcel> for Mark {
    type Out = Marked;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, parcel: Parcel) -> Verdict<Marked> {
        Ok(Marked { parcel, core: self.0 })
    }
}

/// The packets that came to the last group: its core, the core of the middle group, the parcel's
/// queue, sequence and key.
type Arrivals = Mutex<Vec<(usize, usize, u64, u64, u32)>>;

/// A middle section, as a function from chain to chain.
fn marked(chain: impl Chain<Out = Parcel>) -> impl Chain<Out = Marked> {
    chain.stage(|core| Mark(core.index())).named("mark")
}

/// Notes the arriving packets, and removes the mark.
fn noted<'a>(
    chain: impl Chain<Out = Marked> + 'a,
    arrivals: &'a Arrivals,
) -> impl Chain<Out = Parcel> + 'a {
    chain.stage(move |core| {
        let core = core.index();
        each(move |Marked { parcel, core: middle }: Marked| {
            let seen = (core, middle, parcel.queue(), parcel.sequence, parcel.key);
            arrivals.lock().unwrap().push(seen);
            parcel
        })
    })
}

fn graph<'a>(world: &'a World, arrivals: &'a Arrivals, hands_off: bool) -> Box<dyn Run + 'a> {
    let received = source(|core| Ok::<_, Error>(world.rx(core, COUNT)));
    let worked = marked(received.shard_by(|parcel| parcel.key));
    if hands_off {
        Box::new(noted(worked.handoff(), arrivals).sink(|core| world.tx_ok(core)))
    } else {
        // Another key, so that a packet changes its core again.
        let again = worked.shard_by(|marked| Shard::Worker(marked.parcel.key as usize >> 7));
        Box::new(noted(again, arrivals).sink(|core| world.tx_ok(core)))
    }
}

/// A graph of either kind.
trait Run {
    fn run(self: Box<Self>, deployment: Deployment, ring_capacity: usize)
    -> crate::common::Outcome;
}

impl<G: Graph> Run for G {
    fn run(
        self: Box<Self>,
        deployment: Deployment,
        ring_capacity: usize,
    ) -> crate::common::Outcome {
        let plan = Engine::plan(*self, deployment).unwrap().ring_capacity(ring_capacity).unwrap();
        watched(|| {
            plan.run(|control| {
                control.wait_until_finished();
            })
        })
    }
}

#[test]
fn three_groups_lose_nothing_and_keep_the_order_of_each_flow() {
    for deployment in DEPLOYMENTS {
        for (hands_off, ring_capacity) in [(true, 8), (false, 8), (true, 1024), (false, 1024)] {
            let (world, arrivals) = (World::new(), Arrivals::default());
            let report = whole(graph(&world, &arrivals, hands_off).run(deployment, ring_capacity));
            let count = COUNT * deployment.cores_in(0) as u64;
            assert_eq!((report.received, report.sent), (count, count), "{report}");
            assert!(report.dropped.is_empty(), "what can wait is not dropped: {report}");
            let arrivals = arrivals.into_inner().unwrap();
            let (middles, lasts) = (deployment.cores_in(1), deployment.cores_in(2));
            for &(core, middle, _, _, key) in &arrivals {
                assert_eq!(middle, Shard::Hash(key).worker(middles), "the owner worked on it");
                let expected = if hands_off { middle % lasts } else { (key as usize >> 7) % lasts };
                assert_eq!(core, expected, "{deployment}, handoff: {hands_off}");
            }
            let mut flows: Vec<_> =
                arrivals.iter().map(|&(.., queue, sequence, key)| (queue, key, sequence)).collect();
            flows.sort_by_key(|&(queue, key, _)| (queue, key));
            let in_order = |two: &[(u64, u32, u64)]| {
                (two[0].0, two[0].1) != (two[1].0, two[1].1) || two[0].2 < two[1].2
            };
            assert!(flows.windows(2).all(in_order), "{deployment}, handoff: {hands_off}");
        }
    }
}

#[test]
fn the_report_has_a_row_for_each_part_and_counts_every_crossing() {
    let (world, arrivals) = (World::new(), Arrivals::default());
    let deployment = Deployment::pipeline([1, 2, 1]);
    let report = whole(graph(&world, &arrivals, true).run(deployment, 64));
    let rows: Vec<_> = report.stages.iter().map(|stage| stage.name.as_str()).collect();
    let expected = ["source", "shard_by", "group 1", "mark", "handoff", "group 2", "Each", "sink"];
    assert_eq!(rows, expected);
    assert_eq!(report.crossed, 2 * COUNT, "each packet crosses both boundaries");
    let names: Vec<_> = report.cores.iter().map(|core| core.name.as_str()).collect();
    let cores = [(0, 0), (1, 0), (1, 1), (2, 0)];
    assert_eq!(names, cores.map(|core| core_name(deployment, core)));
    let middle: u64 = report.cores[1..3].iter().map(|core| core.received).sum();
    assert_eq!((middle, report.cores[3].received, report.cores[3].sent), (COUNT, COUNT, COUNT));
}

/// A parcel that counts its prefetches; one ahead counts 1,000.
struct Counting {
    parcel: Parcel,
    fetched: Cell<u32>,
}

impl Carries for Counting {
    fn bytes(&self) -> &[u8] {
        self.parcel.bytes()
    }

    fn prefetch(&self, is_ahead: bool) {
        self.fetched.update(|count| count + if is_ahead { 1000 } else { 1 });
    }
}

#[test]
fn each_packet_from_another_core_is_fetched_once_ahead_of_the_first_stage() {
    let pipelines = [Deployment::pipeline([1, 1]), Deployment::pipeline([2, 2])];
    for deployment in [&DEPLOYMENTS[..2], &pipelines].concat() {
        let (world, counts) = (World::new(), Mutex::new(Vec::new()));
        let counts = &counts;
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .stage(|_| each(|parcel| Counting { parcel, fetched: Cell::new(0) }))
            .handoff()
            .stage(|_| each(|item: Counting| item))
            .stage(move |_| {
                each(move |Counting { parcel, fetched }: Counting| {
                    counts.lock().unwrap().push(fetched.get());
                    parcel
                })
            })
            .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, deployment));
        let expected = if deployment.is_run_to_completion() { 0 } else { 1000 };
        let counts = counts.lock().unwrap();
        assert_eq!(counts.len() as u64, report.received);
        assert!(counts.iter().all(|&count| count == expected), "{deployment}: {counts:?}");
    }
}

#[test]
fn a_plan_prints_what_each_group_runs() {
    let world = World::new();
    let graph = source(|core| Ok::<_, Error>(world.rx(core, 1)))
        .named("wan")
        .stage(|_| each(|parcel: Parcel| parcel))
        .named("classify")
        .shard_by(|parcel| parcel.key)
        .burst_stage(|_| Hold::of(1))
        .sink(|core| world.tx_ok(core));
    let plan = Engine::plan(graph, Deployment::pipeline([1, 2])).unwrap();
    let expected = "pipeline, 1 + 2 cores; group 0: wan, classify, shard_by; group 1: Hold, sink";
    assert_eq!(plan.to_string(), expected);
}

#[test]
fn in_run_to_completion_a_handoff_stays_on_its_core() {
    for cores in 1..=3 {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .handoff()
            .handoff()
            .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, Deployment::run_to_completion(cores)));
        assert_eq!((report.sent, report.crossed), (COUNT * cores as u64, 0));
        let seen = world.seen.lock().unwrap();
        assert!(seen.iter().all(|one| one.sequence >> 32 == one.core as u64));
    }
}

#[test]
fn a_plan_names_what_does_not_fit_its_boundaries() {
    let world = World::new();
    let graph = || {
        source(|core| Ok::<_, Error>(world.rx(core, 1)))
            .shard_by(|parcel| parcel.key)
            .handoff()
            .sink(|core| world.tx_ok(core))
    };
    let refused = |deployment| Engine::plan(graph(), deployment).unwrap_err();
    let groups = refused(Deployment::pipeline([1, 2]));
    assert_eq!(groups, PlanError::Groups { given: 2, graph: 3 });
    let handoff = refused(Deployment::pipeline([1, 2, 3]));
    assert_eq!(handoff, PlanError::Handoff { senders: 2, receivers: 3 });
    assert!(handoff.to_string().contains("shard_by"), "{handoff}");
    assert!(Engine::plan(graph(), Deployment::pipeline([1, 3, 2])).is_ok());
}

/// Makes three of each packet, and declares it.
struct Split {
    pool: Arc<Pool>,
    growth_max: usize,
}

impl BurstStage<Parcel> for Split {
    type Out = Parcel;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Parcel>,
        out: &mut Output<'_, Parcel>,
    ) {
        while let Some(parcel) = input.pop() {
            for _ in 0..2 {
                out.push_created(self.pool.take(parcel.key, parcel.sequence, None));
            }
            out.push(parcel);
        }
    }

    fn growth_max(&self) -> usize {
        self.growth_max
    }
}

/// Nine groups; two triple their packets.
fn nine_groups<'a>(world: &'a World, growth_max: usize) -> impl Graph + 'a {
    let split = move |_: &Core| Split { pool: Arc::clone(&world.nic.pool), growth_max };
    source(|core| Ok::<_, Error>(world.rx(core, 300)))
        .burst_stage(split)
        .shard_by(|parcel| parcel.key)
        .shard_by(|parcel| Shard::Worker(parcel.sequence as usize))
        .handoff()
        .burst_stage(split)
        .shard_by(|parcel| parcel.key)
        .handoff()
        .handoff()
        .shard_by(|parcel| Shard::Worker(parcel.key as usize >> 3))
        .shard_by(|parcel| parcel.key)
        .sink(|core| world.tx_ok(core))
}

#[test]
fn nine_groups_lose_nothing_over_small_rings() {
    for (deployment, ring_capacity) in [
        // A packet that stays on its core grows twice before it comes to a ring.
        (Deployment::run_to_completion(3), 9),
        (Deployment::pipeline([1, 2, 2, 1, 2, 2, 1, 2, 1]), 8),
        (Deployment::pipeline([1; 9]), 8),
    ] {
        let world = World::new();
        let plan = Engine::plan(nine_groups(&world, 3), deployment).unwrap();
        let plan = plan.ring_capacity(ring_capacity).unwrap();
        let report = whole(watched(|| {
            plan.run(|control| {
                control.wait_until_finished();
            })
        }));
        let received = 300 * deployment.cores_in(0) as u64;
        assert_eq!((report.received, report.sent), (received, 9 * received), "{report}");
        assert!(report.dropped.is_empty(), "{report}");
    }
}

#[test]
fn rings_that_never_have_room_for_the_growth_of_a_stage_are_refused() {
    let world = World::new();
    let plan = Engine::plan(nine_groups(&world, 9), Deployment::pipeline([1; 9])).unwrap();
    let refused = watched(|| plan.ring_capacity(8).unwrap().run(|_| panic!("must not run")));
    let Err(RunError::Start(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("growth_max"), "{error}");
}

#[test]
fn packets_held_in_every_group_come_out_at_the_end() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .burst_stage(|_| Hold::of(30))
            .shard_by(|parcel| parcel.key)
            .burst_stage(|_| Hold::of(30))
            .handoff()
            .burst_stage(|_| Hold::of(30))
            .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, deployment));
        let count = COUNT * deployment.cores_in(0) as u64;
        assert_eq!((report.received, report.sent), (count, count), "{report}");
    }
}
