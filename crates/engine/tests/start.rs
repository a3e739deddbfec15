//! A start that fails: the error is returned, nothing was polled, and all values made are dropped.

use crate::common::{DEPLOYMENTS, Parcel, World, watched};
use hotloop_engine::{Chain, Deployment, Engine, Graph, RunError, source};
use hotloop_stage::{Core, Error, each};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The part that fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fails {
    SourceFactory,
    StageFactory,
    SinkFactory,
    FactoryPanics,
    SourceStart,
    SinkStart,
}

/// A stage that counts its live instances.
struct Live<'a>(&'a AtomicUsize);

impl<'a> Live<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A graph in which `fails` fails on one core.
fn graph<'a>(world: &'a World, live: &'a AtomicUsize, fails: Fails) -> impl Graph + 'a {
    let is_last = |core: &Core| core.index() + 1 == core.count();
    let check = move |what: Fails, core: &Core| {
        if what == fails && is_last(core) { Err(Error::message("no such thing")) } else { Ok(()) }
    };
    source(move |core| {
        check(Fails::SourceFactory, core)?;
        let mut rx = world.rx(core, u64::MAX);
        rx.start_error = check(Fails::SourceStart, core).err().map(|_| "no such thing");
        Ok::<_, Error>(rx)
    })
    .shard_by(|parcel| parcel.key)
    .try_stage(move |core| {
        check(Fails::StageFactory, core)?;
        assert!(check(Fails::FactoryPanics, core).is_ok(), "boom");
        let live = Live::new(live);
        Ok::<_, Error>(each(move |parcel: Parcel| {
            assert!(live.0.load(SeqCst) > 0);
            parcel
        }))
    })
    .sink(move |core| {
        check(Fails::SinkFactory, core)?;
        let mut tx = world.tx(core);
        tx.start_error = check(Fails::SinkStart, core).err().map(|_| "no such thing");
        Ok::<_, Error>(tx)
    })
}

#[test]
fn a_start_that_fails_on_one_core_ends_all() {
    let all = [
        Fails::SourceFactory,
        Fails::StageFactory,
        Fails::SinkFactory,
        Fails::FactoryPanics,
        Fails::SourceStart,
        Fails::SinkStart,
    ];
    for deployment in DEPLOYMENTS {
        for fails in all {
            let (world, live) = (World::new(), AtomicUsize::new(0));
            let plan = Engine::plan(graph(&world, &live, fails), deployment).unwrap();
            let result = watched(|| plan.run(|_| panic!("control must not be called")));
            let error = match result {
                Err(RunError::Start(error)) => error.to_string(),
                other => panic!("{fails:?} in {deployment} should fail: {other:?}"),
            };
            let expected = match fails {
                Fails::FactoryPanics => format!(
                    "{} panicked while it was being built: boom",
                    crate::common::core_name(deployment, (1, deployment.cores_in(1) - 1))
                ),
                _ => "no such thing".to_owned(),
            };
            assert_eq!(error, expected, "{fails:?} in {deployment}");
            assert_eq!(world.nic.received.load(SeqCst), 0, "nothing was polled");
            assert_eq!(world.nic.queues.load(SeqCst), 0, "every queue was dropped");
            assert_eq!(live.load(SeqCst), 0, "every stage was dropped");
            assert_eq!(world.nic.queues_at_stop.load(SeqCst), 0, "stopped after that");
            let is_at_start = matches!(fails, Fails::SourceStart | Fails::SinkStart);
            assert!(!is_at_start || world.nic.stopped.load(SeqCst) == 1, "what started is stopped");
            assert_eq!(
                world.nic.started.load(SeqCst) > 0,
                is_at_start,
                "started when all are built"
            );
        }
    }
}

#[test]
fn an_assembly_fails_alike() {
    for fails in [Fails::SourceFactory, Fails::StageFactory, Fails::SinkStart] {
        let deployment = Deployment::pipeline([2, 2]);
        let (world, live) = (World::new(), AtomicUsize::new(0));
        let plan = Engine::plan(graph(&world, &live, fails), deployment).unwrap();
        let error = plan.assemble().map(drop).expect_err("it fails");
        assert_eq!(error.to_string(), "no such thing");
        let is_at_start = fails == Fails::SinkStart;
        assert_eq!(world.nic.stopped.load(SeqCst), usize::from(is_at_start));
        assert_eq!(world.nic.queues_at_stop.load(SeqCst), 0);
        assert_eq!(world.nic.queues.load(SeqCst), 0, "every queue was dropped");
        assert_eq!(live.load(SeqCst), 0, "every stage was dropped");
    }
}

#[test]
fn every_device_starts_before_the_first_poll() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let queues = deployment.cores_in(0) + deployment.cores_in(1);
        let first_polls = AtomicUsize::new(0);
        let graph = source(|core| Ok::<_, Error>(world.rx(core, 100)))
            .stage(|_| {
                each(|parcel: Parcel| {
                    assert_eq!(world.nic.started.load(SeqCst), queues, "all have started");
                    first_polls.fetch_add(1, SeqCst);
                    parcel
                })
            })
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        crate::common::whole(crate::common::run(graph, deployment));
        assert_eq!(first_polls.load(SeqCst), 100 * deployment.cores_in(0));
    }
}

#[test]
fn state_is_made_and_dropped_on_the_core_that_owns_it() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, 1000)))
            .shard_by(|parcel| parcel.key)
            .stage(|core| {
                let group = if deployment.is_run_to_completion() { "" } else { "g1-" };
                let (home, name) =
                    (std::thread::current().id(), format!("{group}core-{}", core.index()));
                assert_eq!(std::thread::current().name(), Some(name.as_str()));
                // Not `Send`: the compiler would refuse to move it.
                let count = std::rc::Rc::new(std::cell::Cell::new(0));
                each(move |parcel: Parcel| {
                    assert_eq!(std::thread::current().id(), home);
                    count.set(count.get() + 1);
                    parcel
                })
            })
            .sink(|core| world.tx_ok(core));
        crate::common::whole(crate::common::run(graph, deployment));
    }
}
