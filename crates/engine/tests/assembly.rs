//! Cores stepped by hand behave like threads.

use crate::common::{DEPLOYMENTS, Hold, Parcel, World, assert_adds_up, run, watched, whole};
use hotloop_engine::{Chain, Deployment, Engine, Graph, Plan, source};
use hotloop_stage::{Cx, Error, Instant, NoDrops, Stage, Verdict};
use std::sync::atomic::Ordering::SeqCst;

const COUNT: u64 = 3000;

hotloop_stage::drop_reasons! { enum OddDrop { Odd = "odd" } }

/// Drops odd keys.
struct Odd;

impl Stage<Parcel> for Odd {
    type Out = Parcel;
    type Drop = OddDrop;

    fn packet(&mut self, cx: &mut Cx<'_, OddDrop>, parcel: Parcel) -> Verdict<Parcel> {
        if parcel.key % 2 == 1 { cx.drop(parcel, OddDrop::Odd) } else { Ok(parcel) }
    }
}

fn graph(world: &World) -> impl Graph {
    source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
        .stage(|_| Odd)
        .shard_by(|parcel| parcel.key)
        .burst_stage(|_| Hold::of(30))
        .sink(|core| world.tx_ok(core))
}

/// Steps the cores in an order that depends on `seed`, and checks the account at each step.
fn step_through<G: Graph>(plan: &Plan<G>, seed: u64) -> hotloop_engine::Report {
    let mut assembly = plan.assemble().unwrap();
    let mut turn = 0;
    while !assembly.is_exhausted() || turn < 1000 {
        turn += 1;
        let index = crate::common::mix(seed << 32 | turn) as usize % assembly.core_count();
        assembly.step(index, Instant::from_ns(turn));
        assert!(assembly.in_flight() <= assembly.in_flight_max());
    }
    assert!(assembly.in_flight() > 0, "something is held until the end");
    watched(|| assembly.finish(Instant::from_ns(turn)))
}

#[test]
fn stepping_gives_the_packets_that_threads_give() {
    for deployment in DEPLOYMENTS {
        let threads = World::new();
        let expected = whole(run(graph(&threads), deployment));
        assert!(expected.sent > COUNT / 3 && expected.dropped["odd"] > COUNT / 3);
        for seed in 0..5 {
            let world = World::new();
            let plan = Engine::plan(graph(&world), deployment).unwrap().ring_capacity(16).unwrap();
            let report = step_through(&plan, seed);
            assert_adds_up(&report);
            assert!(report.is_whole(), "{report}");
            assert_eq!(world.sorted(), threads.sorted(), "seed {seed} in {deployment}");
            let sums = |report: &hotloop_engine::Report| {
                (report.received, report.sent, report.dropped.clone(), report.crossed)
            };
            assert_eq!(sums(&report), sums(&expected));
        }
    }
}

#[test]
fn the_same_turns_give_the_same_report() {
    for deployment in DEPLOYMENTS {
        let once = || {
            let world = World::new();
            let plan = Engine::plan(graph(&world), deployment).unwrap().ring_capacity(4).unwrap();
            let report = step_through(&plan, 7);
            (report, world.seen.lock().unwrap().clone())
        };
        assert_eq!(once(), once());
    }
}

/// Panics at one packet.
struct Bomb;

impl Stage<Parcel> for Bomb {
    type Out = Parcel;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, parcel: Parcel) -> Verdict<Parcel> {
        assert!(parcel.sequence != 1234, "boom");
        Ok(parcel)
    }
}

#[test]
fn a_panic_stops_its_core_and_the_account_holds() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let after = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .burst_stage(|_| Hold::of(30))
            .shard_by(|parcel| parcel.key)
            .stage(|_| Bomb)
            .burst_stage(|_| Hold::of(30))
            .sink(|core| world.tx_ok(core));
        step_into_panic(&Engine::plan(after, deployment).unwrap());

        let world = World::new();
        let before = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .burst_stage(|_| Hold::of(30))
            .stage(|_| Bomb)
            .shard_by(|parcel| parcel.key)
            .burst_stage(|_| Hold::of(30))
            .sink(|core| world.tx_ok(core));
        step_into_panic(&Engine::plan(before, deployment).unwrap());
    }
}

fn step_into_panic<G: Graph>(plan: &Plan<G>) {
    let mut assembly = plan.assemble().unwrap();
    let mut turn = 0;
    while !assembly.has_panicked() {
        for index in 0..assembly.core_count() {
            turn += 1;
            assembly.step(index, Instant::from_ns(turn));
        }
    }
    let report = watched(|| assembly.finish(Instant::from_ns(turn)));
    assert_adds_up(&report);
    assert_eq!(report.findings.len(), 1, "{report}");
    assert!(report.findings[0].starts_with("Bomb on "), "{report}");
    assert!(report.findings[0].ends_with(" panicked: boom"), "{report}");
    assert!(!report.is_whole());
}

#[test]
fn a_core_that_has_panicked_does_nothing_any_more() {
    let world = World::new();
    let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
        .stage(|_| Bomb)
        .sink(|core| world.tx_ok(core));
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
    let mut assembly = plan.assemble().unwrap();
    while !assembly.has_panicked() {
        assembly.step(0, Instant::default());
    }
    let received = world.nic.received.load(SeqCst);
    assert_eq!(assembly.step(0, Instant::default()), 0);
    assert_eq!(world.nic.received.load(SeqCst), received, "it does not poll");
    assert_eq!(assembly.in_flight(), 0, "what was inside is dropped");
    assert_adds_up(&assembly.finish(Instant::default()));
}
