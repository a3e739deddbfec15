//! A stage that panics ends the run: named, with every packet accounted for.

use crate::common::{DEPLOYMENTS, Parcel, Rx, Tx, World, assert_adds_up, core_name, watched};
use hotloop_engine::{Chain, Deployment, Engine, Graph, Report, RunError, source};
use hotloop_stage::{
    Burst, BurstStage, Core, Cx, Error, NoDrops, Output, Sink, Source, Stage, Verdict,
};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// The position of the bomb.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum At {
    Packet,
    Tick,
    /// Before a burst stage takes a packet.
    Lookup,
    Process,
    /// In the middle of a burst that it emits, with the output full of packets.
    Spill,
    Finish,
}

/// Goes off once in a run, at the call with this number, on whatever core makes it.
#[derive(Clone)]
struct Fuse {
    at: At,
    calls_left: Arc<AtomicU64>,
    /// The core on which it went off.
    blown: Arc<Mutex<Option<(usize, usize)>>>,
}

impl Fuse {
    fn new(at: At, calls: u64) -> Self {
        Self { at, calls_left: Arc::new(AtomicU64::new(calls)), blown: Arc::default() }
    }

    /// Late enough for the engine to be running.
    fn once(at: At) -> Self {
        Self::new(at, if matches!(at, At::Lookup | At::Tick) { 60 } else { 3000 })
    }

    fn burn(&self, at: At, core: (usize, usize)) {
        if self.at == at && self.calls_left.fetch_sub(1, SeqCst) == 1 {
            *self.blown.lock().unwrap() = Some(core);
            panic!("boom");
        }
    }
}

/// A stage that takes packets one by one, and notes whether it has seen one.
struct Bomb(Fuse, (usize, usize), bool);

impl Bomb {
    fn on(core: &Core, fuse: &Fuse) -> Self {
        Self(fuse.clone(), (core.group(), core.index()), false)
    }
}

impl Stage<Parcel> for Bomb {
    type Out = Parcel;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, parcel: Parcel) -> Verdict<Parcel> {
        self.0.burn(At::Packet, self.1);
        self.2 = true;
        Ok(parcel)
    }

    fn tick(&mut self, _: &mut Cx<'_, NoDrops>) {
        if self.2 {
            self.0.burn(At::Tick, self.1);
        }
    }
}

/// A stage that takes bursts, holds up to 20 packets, and makes one of its own for each burst.
struct BurstBomb(Fuse, (usize, usize), Vec<Parcel>, Arc<crate::common::Pool>);

impl BurstStage<Parcel> for BurstBomb {
    type Out = Parcel;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Parcel>,
        out: &mut Output<'_, Parcel>,
    ) {
        self.0.burn(At::Lookup, self.1);
        let key = input.as_slice()[0].key;
        out.push_created(self.3.take(key, u64::MAX, None));
        while let Some(parcel) = input.pop() {
            self.0.burn(At::Process, self.1);
            self.2.push(parcel);
            if self.2.len() > 20 {
                out.push(self.2.remove(0));
                self.0.burn(At::Spill, self.1);
            }
        }
    }

    fn tick(&mut self, _: &mut Cx<'_, NoDrops>, _: &mut Output<'_, Parcel>) {
        if !self.2.is_empty() {
            self.0.burn(At::Tick, self.1);
        }
    }

    fn finish(&mut self, _: &mut Cx<'_, NoDrops>, out: &mut Output<'_, Parcel>) {
        while let Some(parcel) = self.2.pop() {
            out.push(parcel);
            self.0.burn(At::Finish, self.1);
        }
    }

    fn held(&self) -> usize {
        self.2.len()
    }
}

fn burst_bomb(core: &Core, fuse: &Fuse, world: &World) -> BurstBomb {
    let pool = Arc::clone(&world.nic.pool);
    BurstBomb(fuse.clone(), (core.group(), core.index()), Vec::new(), pool)
}

/// An endless source that can't wait, so that rings are full of packets.
fn flood(world: &World, core: &Core) -> Result<Rx, Error> {
    let mut rx = world.rx(core, u64::MAX);
    rx.lossless = false;
    Ok(rx)
}

/// Runs until the panic, or for `Finish` until the engine has run for a while.
fn panicked(graph: impl Graph, deployment: Deployment, is_at_end: bool) -> Report {
    let plan = Engine::plan(graph, deployment).unwrap().ring_capacity(16).unwrap();
    let result = watched(|| {
        plan.run(|control| {
            if is_at_end {
                while control.snapshot().sent < 1000 {
                    std::thread::yield_now();
                }
            } else {
                control.wait_until_finished();
            }
        })
    });
    match result {
        Err(RunError::Panicked(report)) => *report,
        other => panic!("should have panicked: {other:?}"),
    }
}

/// Checks the result of every run with a panic: one finding, which names the stage and the core.
fn assert_named(report: &Report, world: &World, stage: &str, core: &str) {
    assert_eq!(report.findings, [format!("{stage} on {core} panicked: boom")], "{report}");
    assert_adds_up(report);
    assert!(report.received > 0, "{report}");
    let panicked: Vec<_> = report.cores.iter().filter(|core| core.panic.is_some()).collect();
    assert_eq!(panicked.len(), 1);
    assert_eq!(panicked[0].name, core);
    assert_eq!(panicked[0].panic.as_deref(), Some("boom"));
    assert_eq!(world.nic.queues.load(SeqCst), 0, "every queue was dropped");
    assert_eq!(world.nic.stopped.load(SeqCst), 1);
}

/// A graph with `$add` before its boundary or after it, in every deployment.
macro_rules! everywhere {
    ($at:expr, $stage:literal, |$core:ident, $fuse:ident, $world:ident| $method:ident $make:expr) => {
        for deployment in DEPLOYMENTS {
            let ($world, $fuse) = (&World::new(), &Fuse::once($at));
            let graph = source(|core| flood($world, core))
                .$method(|$core| $make)
                .shard_by(|parcel| parcel.key)
                .sink(|core| $world.tx_ok(core));
            let report = panicked(graph, deployment, $at == At::Finish);
            let blown = $fuse.blown.lock().unwrap().expect("it went off");
            assert_eq!(blown.0, 0);
            assert_named(&report, $world, $stage, &core_name(deployment, blown));

            let ($world, $fuse) = (&World::new(), &Fuse::once($at));
            let graph = source(|core| flood($world, core))
                .shard_by(|parcel| parcel.key)
                .$method(|$core| $make)
                .sink(|core| $world.tx_ok(core));
            let report = panicked(graph, deployment, $at == At::Finish);
            let blown = $fuse.blown.lock().unwrap().expect("it went off");
            assert_eq!(blown.0, 1);
            assert_named(&report, $world, $stage, &core_name(deployment, blown));
        }
    };
}

#[test]
fn in_packet() {
    everywhere!(At::Packet, "Bomb", |core, fuse, world| stage Bomb::on(core, fuse));
}

#[test]
fn in_lookup() {
    everywhere!(At::Lookup, "BurstBomb", |core, fuse, world| burst_stage burst_bomb(core, fuse, world));
}

#[test]
fn in_tick() {
    everywhere!(At::Tick, "Bomb", |core, fuse, world| stage Bomb::on(core, fuse));
    everywhere!(At::Tick, "BurstBomb", |core, fuse, world| burst_stage burst_bomb(core, fuse, world));
}

#[test]
fn in_process() {
    everywhere!(At::Process, "BurstBomb", |core, fuse, world| burst_stage burst_bomb(core, fuse, world));
    everywhere!(At::Spill, "BurstBomb", |core, fuse, world| burst_stage burst_bomb(core, fuse, world));
}

#[test]
fn in_finish() {
    for deployment in DEPLOYMENTS {
        let (world, fuse) = (World::new(), Fuse::new(At::Finish, 3));
        let graph = source(|core| flood(&world, core))
            .shard_by(|parcel| parcel.key)
            .burst_stage(|core| burst_bomb(core, &fuse, &world))
            .sink(|core| world.tx_ok(core));
        let report = panicked(graph, deployment, true);
        let blown = fuse.blown.lock().unwrap().expect("it went off");
        assert_named(&report, &world, "BurstBomb", &core_name(deployment, blown));

        let (world, fuse) = (World::new(), Fuse::new(At::Finish, 3));
        let graph = source(|core| flood(&world, core))
            .burst_stage(|core| burst_bomb(core, &fuse, &world))
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        let report = panicked(graph, deployment, true);
        let blown = fuse.blown.lock().unwrap().expect("it went off");
        assert_named(&report, &world, "BurstBomb", &core_name(deployment, blown));
    }
}

#[test]
fn below_stages_that_hold_and_make_packets() {
    for deployment in DEPLOYMENTS {
        let (world, fuse) = (World::new(), Fuse::new(At::Packet, 3000));
        let dud = Fuse::new(At::Tick, 0);
        let graph = source(|core| flood(&world, core))
            .burst_stage(|core| burst_bomb(core, &dud, &world))
            .shard_by(|parcel| parcel.key)
            .stage(|core| Bomb::on(core, &dud))
            .burst_stage(|core| burst_bomb(core, &dud, &world))
            .stage(|core| Bomb::on(core, &fuse))
            .burst_stage(|core| burst_bomb(core, &dud, &world))
            .sink(|core| world.tx_ok(core));
        let report = panicked(graph, deployment, false);
        let blown = fuse.blown.lock().unwrap().expect("it went off");
        assert_named(&report, &world, "Bomb", &core_name(deployment, blown));
        assert!(report.dropped["panicked"] > 0 && report.created > 0, "{report}");
    }
}

#[test]
fn in_the_key() {
    // If one core owns all shards, the key is not called.
    for deployment in DEPLOYMENTS.into_iter().filter(|deployment| deployment.cores_in(1) > 1) {
        let world = World::new();
        let graph = source(|core| flood(&world, core))
            .shard_by(|parcel| {
                assert!(parcel.sequence != 777, "boom");
                parcel.key
            })
            .sink(|core| world.tx_ok(core));
        let report = panicked(graph, deployment, false);
        assert_named(&report, &world, "shard_by", &core_name(deployment, (0, 0)));
    }
}

/// A source that panics after it has delivered some packets.
struct FaultyRx(Rx);

impl Source for FaultyRx {
    type Item = Parcel;

    fn poll(&mut self, burst: &mut Burst<Parcel>) -> usize {
        let polled = self.0.poll(burst);
        assert!(burst.as_slice().iter().all(|parcel| parcel.sequence != 777), "boom");
        polled
    }

    fn devices(&self) -> Vec<Arc<dyn hotloop_stage::Device>> {
        self.0.devices()
    }
}

#[test]
fn in_the_source() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| flood(&world, core).map(FaultyRx))
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        let report = panicked(graph, deployment, false);
        assert_named(&report, &world, "source", &core_name(deployment, (0, 0)));
    }
}

/// A sink that panics with packets left in the burst, after it has dropped one.
struct FaultyTx(Tx, Fuse, (usize, usize));

impl Sink for FaultyTx {
    type Item = Parcel;

    fn send(&mut self, burst: &mut Burst<Parcel>) -> usize {
        let taken = burst.pop();
        self.1.burn(At::Packet, self.2);
        let mut first = Burst::new();
        first.extend(taken);
        self.0.send(&mut first) + self.0.send(burst)
    }

    fn devices(&self) -> Vec<Arc<dyn hotloop_stage::Device>> {
        self.0.devices()
    }
}

#[test]
fn in_the_sink() {
    for deployment in DEPLOYMENTS {
        let (world, fuse) = (World::new(), Fuse::new(At::Packet, 300));
        let graph = source(|core| flood(&world, core)).shard_by(|parcel| parcel.key).sink(|core| {
            let core_name = (core.group(), core.index());
            Ok::<_, Error>(FaultyTx(world.tx(core), fuse.clone(), core_name))
        });
        let report = panicked(graph, deployment, false);
        let blown = fuse.blown.lock().unwrap().expect("it went off");
        assert_named(&report, &world, "sink", &core_name(deployment, blown));
    }
}

/// Panics when it is dropped, on the core that owned it.
struct Sore;

impl Stage<Parcel> for Sore {
    type Out = Parcel;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, parcel: Parcel) -> Verdict<Parcel> {
        Ok(parcel)
    }
}

impl Drop for Sore {
    fn drop(&mut self) {
        panic!("boom");
    }
}

#[test]
fn in_a_stage_s_own_drop() {
    let world = World::new();
    let graph = source(|core| Ok::<_, Error>(world.rx(core, 1000)))
        .shard_by(|parcel| parcel.key)
        .stage(|_| Sore)
        .sink(|core| world.tx_ok(core));
    let report = panicked(graph, Deployment::pipeline([1, 1]), true);
    assert_eq!(report.findings, ["the engine on group 1 core 0 panicked: boom"]);
    assert_adds_up(&report);
    assert_eq!(report.sent, 1000);
}

#[test]
fn on_every_core_at_once() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let fuses: Vec<_> = (0..4).map(|_| Fuse::new(At::Packet, 500)).collect();
        let graph = source(|core| flood(&world, core))
            .stage(|core| Bomb::on(core, &fuses[core.index()]))
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        let report = panicked(graph, deployment, false);
        assert_adds_up(&report);
        assert_eq!(
            report.findings.len(),
            report.cores.iter().filter(|core| core.panic.is_some()).count()
        );
    }
}
