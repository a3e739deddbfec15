//! Several ways in and several ways out.

use crate::common::{DEPLOYMENTS, Parcel, World, mix, run, whole};
use hotloop_engine::{Chain, Deployment, Engine, Report, Routed, outlets, source, sources};
use hotloop_stage::{Burst, BurstStage, Cx, Error, Instant, NoDrops, Output, each};

const COUNT: u64 = 3000;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    Out,
    Punt,
    Nowhere,
}

fn way(parcel: &Parcel) -> Way {
    match parcel.key % 4 {
        0 => Way::Punt,
        1 => Way::Nowhere,
        _ => Way::Out,
    }
}

/// Number of a queue's packets that take this way.
fn count_of(wanted: impl Fn(u32) -> bool) -> u64 {
    (0..COUNT).filter(|&number| wanted(mix(number % 1000) % 4)).count() as u64
}

/// Routes in bursts, so that the sinks get bursts of several routes.
struct RouteBursts;

impl BurstStage<Parcel> for RouteBursts {
    type Out = Routed<Parcel, Way>;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Parcel>,
        out: &mut Output<'_, Self::Out>,
    ) {
        while let Some(packet) = input.pop() {
            out.push(Routed { route: way(&packet), packet });
        }
    }
}

/// Ends a graph in two sinks, one of which is soon full, and checks their counts.
macro_rules! check_ways {
    (|$graph:ident| $routed:expr) => {
        for deployment in DEPLOYMENTS {
            let (lan, punt) = (World::new(), World::named("punt"));
            let $graph =
                source(|core| Ok::<_, Error>(lan.rx(core, COUNT))).shard_by(|parcel| parcel.key);
            let graph = $routed.sink(|core| {
                let mut full = punt.tx(core);
                full.room = 5;
                Ok::<_, Error>(outlets([(Way::Out, lan.tx(core)), (Way::Punt, full)]))
            });
            assert_ways(&whole(run(graph, deployment)), deployment, &lan, &punt);
        }
    };
}

fn assert_ways(report: &Report, deployment: Deployment, lan: &World, punt: &World) {
    let queues = deployment.cores_in(0) as u64;
    let taken = 5 * deployment.cores_in(1) as u64;
    let to = |place: &str| report.stages.iter().find(|stage| stage.name == place).unwrap();
    let (out, punted) = (to("sink Out"), to("sink Punt"));
    assert_eq!((out.emitted, out.dropped.len()), (count_of(|key| key > 1) * queues, 0));
    assert_eq!(punted.received, count_of(|key| key == 0) * queues);
    assert_eq!((punted.emitted, punted.dropped["tx_full"]), (taken, punted.received - taken));
    let strays = count_of(|key| key == 1) * queues;
    assert_eq!(report.dropped["no_outlet"], strays);
    assert_eq!(report.dropped["tx_full"], punted.dropped["tx_full"]);
    let ways = |world: &World| {
        let seen = world.seen.lock().unwrap();
        (seen.iter().map(|one| one.key % 4).min(), seen.iter().map(|one| one.key % 4).max())
    };
    assert_eq!((ways(lan), ways(punt)), ((Some(2), Some(3)), (Some(0), Some(0))));
    let seen = lan.seen.lock().unwrap();
    for (queue, core) in (0..queues).flat_map(|queue| (0..4).map(move |core| (queue, core))) {
        let of_one = seen.iter().filter(|one| one.core == core && one.sequence >> 32 == queue);
        assert!(of_one.is_sorted_by_key(|one| one.sequence), "in order");
    }
}

#[test]
fn each_packet_takes_its_way_and_each_way_counts_for_itself() {
    check_ways!(|graph| graph
        .stage(|_| each(|parcel: Parcel| Routed { route: way(&parcel), packet: parcel })));
    check_ways!(|graph| graph.burst_stage(|_| RouteBursts));
}

#[test]
fn a_full_sink_drops_what_it_left_and_nothing_else() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .shard_by(|parcel| parcel.key)
            .sink(|core| {
                let mut tx = world.tx(core);
                tx.room = 100;
                Ok::<_, Error>(tx)
            });
        let report = whole(run(graph, deployment));
        assert_eq!(report.sent, 100 * deployment.cores_in(1) as u64);
        assert_eq!(report.dropped["tx_full"], report.received - report.sent);
    }
}

#[test]
fn busy_sources_take_turns() {
    let world = World::new();
    let graph = source(|core| {
        let rx = |queue: u64| {
            let mut rx = world.rx(core, u64::MAX);
            rx.key = [|_| 0, |_| 1, |_| 2][queue as usize];
            rx
        };
        Ok::<_, Error>(sources((0..3).map(rx)))
    })
    .sink(|core| world.tx_ok(core));
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
    let mut assembly = plan.assemble().unwrap();
    for round in 1..=10 {
        for turn in 0..3 {
            assert_eq!(assembly.step(0, Instant::default()), 64);
            let seen = world.seen.lock().unwrap();
            assert_eq!(seen.last().unwrap().key, turn, "each has its turn at the whole burst");
        }
        let of = |key| world.seen.lock().unwrap().iter().filter(|one| one.key == key).count();
        assert_eq!([of(0), of(1), of(2)], [round * 64; 3]);
    }
    assert!(assembly.finish(Instant::default()).is_whole());
}

#[test]
fn several_sources_end_when_the_last_has_ended_and_share_a_burst() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| {
            let rx = |count| {
                let mut rx = world.rx(core, count);
                rx.burst_max = 20;
                rx
            };
            Ok::<_, Error>(sources([rx(10), rx(500), rx(0), rx(1000)]))
        })
        .shard_by(|parcel| parcel.key)
        .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, deployment));
        assert_eq!(report.received, 1510 * deployment.cores_in(0) as u64);
        assert_eq!(report.sent, report.received);
    }
}

#[test]
fn one_source_that_cannot_wait_makes_all_such() {
    let world = World::new();
    let graph = source(|core| {
        let mut hasty = world.rx(core, 5000);
        hasty.lossless = false;
        Ok::<_, Error>(sources([world.rx(core, 5000), hasty]))
    })
    .shard_by(|parcel| parcel.key)
    .sink(|core| world.tx_ok(core));
    let plan = Engine::plan(graph, Deployment::pipeline([1, 1])).unwrap().ring_capacity(1).unwrap();
    let report = whole(crate::common::watched(|| {
        plan.run(|control| {
            control.wait_until_finished();
        })
    }));
    assert!(report.dropped["ring_full"] > 0, "{report}");
}
