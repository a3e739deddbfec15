//! Packets that can wait are never lost, however small the rings; packets that can't wait are
//! dropped under a name.

use crate::common::{DEPLOYMENTS, World, watched, whole};
use hotloop_engine::{Chain, Deployment, Engine, Report, source};
use hotloop_stage::Error;

fn run(
    world: &World,
    deployment: Deployment,
    lossless: bool,
    count: u64,
    ring_capacity: usize,
) -> Report {
    let graph = source(|core| {
        let mut rx = world.rx(core, count);
        rx.lossless = lossless;
        Ok::<_, Error>(rx)
    })
    .shard_by(|parcel| parcel.key)
    .sink(|core| world.tx_ok(core));
    let plan = Engine::plan(graph, deployment).unwrap().ring_capacity(ring_capacity).unwrap();
    whole(watched(|| {
        plan.run(|control| {
            control.wait_until_finished();
        })
    }))
}

#[test]
fn a_source_that_waits_loses_nothing_over_rings_of_eight() {
    // Cores that must wait for each other are slow if they share CPUs with other programs.
    for (count, ring_capacity) in [(300, 1), (3000, 8)] {
        for deployment in DEPLOYMENTS {
            let world = World::new();
            let report = run(&world, deployment, true, count, ring_capacity);
            assert_eq!(report.sent, count * deployment.cores_in(0) as u64, "{report}");
            assert!(report.dropped.is_empty(), "{report}");
        }
    }
}

#[test]
fn a_source_that_cannot_wait_loses_to_full_rings() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let report = run(&world, deployment, false, 20_000, 1);
        let dropped = report.dropped_sum();
        assert_eq!(report.received, 20_000 * deployment.cores_in(0) as u64);
        if deployment == Deployment::run_to_completion(1) {
            assert_eq!(dropped, 0, "its own packets never touch a ring");
            continue;
        }
        // A burst of 64 meets a ring of one: nearly all are lost.
        assert!(dropped > 1000, "{report}");
        assert_eq!(report.dropped.keys().collect::<Vec<_>>(), ["ring_full"]);
        let boundary = report.stages.iter().find(|stage| stage.name == "shard_by").unwrap();
        assert_eq!(boundary.dropped["ring_full"], dropped);
    }
}
