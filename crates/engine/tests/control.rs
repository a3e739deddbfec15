//! Steering a run from outside.

use crate::common::{DEPLOYMENTS, Parcel, World, watched, whole};
use hotloop_engine::{Chain, Engine, Graph, Idle, Waited, source};
use hotloop_stage::{Burst, BurstStage, Cx, Error, Output, each};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

fn endless(world: &World) -> impl Graph {
    source(|core| Ok::<_, Error>(world.rx(core, u64::MAX)))
        .stage(|_| each(|parcel: Parcel| parcel))
        .shard_by(|parcel| parcel.key)
        .sink(|core| world.tx_ok(core))
}

#[test]
fn a_wait_for_a_time_ends_when_it_is_up() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let plan = Engine::plan(endless(&world), deployment).unwrap().idle(Idle::Pause);
        let report = whole(watched(|| {
            plan.run(|control| {
                assert_eq!(control.wait_for(Duration::ZERO), Waited::Elapsed);
                assert_eq!(control.wait_for(Duration::from_millis(20)), Waited::Elapsed);
            })
        }));
        assert_eq!(report.received, world.nic.received.load(SeqCst));
    }
}

#[test]
fn a_wait_for_the_end_takes_until_every_source_has_ended() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, core.index() as u64 * 5000)))
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        let plan = Engine::plan(graph, deployment).unwrap();
        let receivers = deployment.cores_in(0) as u64;
        let expected = (0..receivers).map(|index| index * 5000).sum::<u64>();
        let report = whole(watched(|| {
            plan.run(|control| {
                assert_eq!(control.wait_until_finished(), Waited::Finished);
                assert_eq!(control.snapshot().received, expected);
                assert_eq!(control.wait_for(Duration::MAX), Waited::Finished);
            })
        }));
        assert_eq!(report.received, expected);
    }
}

hotloop_stage::drop_reasons! { enum Tenth { Tenth = "tenth" } }

/// Doubles some packets, drops some, and holds the last ten.
struct Busy(std::sync::Arc<crate::common::Pool>, Vec<Parcel>);

impl BurstStage<Parcel> for Busy {
    type Out = Parcel;
    type Drop = Tenth;

    fn process(
        &mut self,
        cx: &mut Cx<'_, Tenth>,
        input: &mut Burst<Parcel>,
        out: &mut Output<'_, Parcel>,
    ) {
        while let Some(parcel) = input.pop() {
            match parcel.sequence % 10 {
                0 => cx.discard(parcel, Tenth::Tenth),
                1 => {
                    out.push_created(self.0.take(parcel.key, parcel.sequence, None));
                    out.push(parcel);
                }
                _ => self.1.push(parcel),
            }
        }
        let rest = self.1.split_off(self.1.len().min(10));
        rest.into_iter().for_each(|parcel| out.push(parcel));
    }

    fn finish(&mut self, _: &mut Cx<'_, Tenth>, out: &mut Output<'_, Parcel>) {
        self.1.drain(..).for_each(|parcel| out.push(parcel));
    }

    fn held(&self) -> usize {
        self.1.len()
    }

    fn held_max(&self) -> usize {
        10
    }
}

#[test]
fn counts_are_plausible_at_any_time() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| {
            let mut rx = world.rx(core, u64::MAX);
            rx.lossless = core.index() == 0;
            Ok::<_, Error>(rx)
        })
        .shard_by(|parcel| parcel.key)
        .burst_stage(|_| Busy(std::sync::Arc::clone(&world.nic.pool), Vec::new()))
        .sink(|core| world.tx_ok(core));
        let plan = Engine::plan(graph, deployment).unwrap().ring_capacity(8).unwrap();
        let mut last = None;
        let report = whole(watched(|| {
            plan.run(|control| {
                let mut before = control.snapshot();
                while before.sent < 20_000 {
                    let now = control.snapshot();
                    assert!(now.is_plausible(), "{now:?}");
                    assert!(now.received >= before.received && now.sent >= before.sent);
                    assert!(now.created >= before.created);
                    assert!(now.dropped_sum() >= before.dropped_sum());
                    before = now;
                    std::thread::yield_now();
                }
                last = Some(before);
            })
        }));
        let last = last.expect("the run was looked at");
        assert!(last.created > 0 && last.dropped_sum() > 0);
        assert!(report.sent >= last.sent && report.received >= last.received);
    }
}

#[test]
fn counts_of_a_run_at_rest_are_exact() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, 1000)))
            .shard_by(|parcel| parcel.key)
            .burst_stage(|_| Busy(std::sync::Arc::clone(&world.nic.pool), Vec::new()))
            .sink(|core| world.tx_ok(core));
        let plan = Engine::plan(graph, deployment).unwrap();
        let (receivers, workers) = (deployment.cores_in(0), deployment.cores_in(1));
        whole(watched(|| {
            plan.run(|control| {
                control.wait_until_finished();
                let held = 10 * workers as i64;
                while control.snapshot().in_flight() != (held..=held) {
                    std::thread::yield_now();
                }
                let counts = control.snapshot();
                assert_eq!(counts.received, 1000 * receivers as u64);
                assert_eq!(counts.created, 100 * receivers as u64);
                assert_eq!(counts.dropped_sum(), 100 * receivers as u64);
                assert!(counts.in_flight_max >= held as u64);
            })
        }));
    }
}

#[test]
fn a_control_that_panics_ends_the_threads() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let plan = Engine::plan(endless(&world), deployment).unwrap();
        let result = watched(|| {
            catch_unwind(AssertUnwindSafe(|| {
                plan.run(|control| {
                    while control.snapshot().sent < 1000 {
                        std::thread::yield_now();
                    }
                    panic!("enough");
                })
            }))
        });
        let panic = result.expect_err("the panic goes on to the caller of run");
        assert_eq!(panic.downcast_ref(), Some(&"enough"));
        assert_eq!(world.nic.queues.load(SeqCst), 0, "every queue was dropped");
        assert_eq!(world.nic.stopped.load(SeqCst), 1);
        assert_eq!(world.nic.queues_at_stop.load(SeqCst), 0, "stopped after that");
        let (received, sent) = (&world.nic.received, &world.nic.sent);
        assert_eq!(received.load(SeqCst), sent.load(SeqCst), "what was inside was worked off");
    }
}

#[test]
fn a_plan_says_what_is_wrong_with_it() {
    use hotloop_engine::{Deployment, Placement, PlanError, Topology};
    let world = World::new();
    let whole = source(|core| Ok::<_, Error>(world.rx(core, 1))).sink(|core| world.tx_ok(core));
    let error = Engine::plan(whole, Deployment::pipeline([1, 1])).unwrap_err();
    assert_eq!(error, PlanError::Groups { given: 2, graph: 1 });
    let error = Engine::plan(endless(&world), Deployment::pipeline([0, 1])).unwrap_err();
    assert_eq!(error, PlanError::NoCores(Deployment::pipeline([0, 1])));
    let plan = || Engine::plan(endless(&world), Deployment::pipeline([1, 1])).unwrap();
    for asked in [0, hotloop_engine::RING_CAPACITY_MAX + 1] {
        assert_eq!(plan().ring_capacity(asked).unwrap_err(), PlanError::RingCapacity { asked });
    }
    let placement = Placement::automatic(&Topology::default(), 3, None);
    let error = plan().placement(placement).unwrap_err();
    assert_eq!(error, PlanError::Placement { cpus: 3, cores: 2 });
}
