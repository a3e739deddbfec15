//! Packets that leave a chain before its end, and packets that a source creates.

use crate::common::{DEPLOYMENTS, Nic, Parcel, World, core_name, run, watched, whole};
use hotloop_engine::{Chain, Engine, Fork, Routed, RunError, outlets, source};
use hotloop_stage::{
    Burst, Cx, Device, Error, NoDrops, Sink, Source, Stage, Verdict, drop_reasons,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const COUNT: u64 = 3000;

drop_reasons! { enum OddDrop { Odd = "odd" } }

/// Sends every third packet out by the exit, and drops every fifth.
struct Answer;

impl Stage<Parcel> for Answer {
    type Out = Fork<Parcel, Parcel>;
    type Drop = OddDrop;

    fn packet(&mut self, cx: &mut Cx<'_, OddDrop>, parcel: Parcel) -> Verdict<Self::Out> {
        match parcel.sequence & 0xffff {
            number if number % 3 == 0 => Ok(Fork::Exit(parcel)),
            number if number % 5 == 0 => cx.drop(parcel, OddDrop::Odd),
            _ => Ok(Fork::On(parcel)),
        }
    }
}

/// Numbers of one queue's packets that leave by the exit, are dropped, and go on.
fn shares() -> [u64; 3] {
    let exit = (0..COUNT).filter(|number| number % 3 == 0).count() as u64;
    let odd = (0..COUNT).filter(|number| number % 3 != 0 && number % 5 == 0).count() as u64;
    [exit, odd, COUNT - exit - odd]
}

#[test]
fn a_stage_answers_by_an_exit_before_and_after_a_boundary() {
    for deployment in DEPLOYMENTS {
        let (world, exits) = (World::new(), World::named("exit"));
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .stage(|_| Answer)
            .exit(|core| exits.tx_ok(core))
            .named("answers")
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, deployment));
        let queues = deployment.cores_in(0) as u64;
        let [exit, odd, on] = shares().map(|share| share * queues);
        assert_eq!((report.received, report.sent), (COUNT * queues, exit + on), "{report}");
        assert_eq!(report.dropped["odd"], odd);
        assert_eq!(exits.nic.sent.load(SeqCst), exit);
        assert_eq!(world.nic.sent.load(SeqCst), on);
        let row = |name: &str| report.stages.iter().find(|stage| stage.name == name).unwrap();
        assert_eq!((row("answers sink").received, row("answers sink").emitted), (exit, exit));
        assert_eq!((row("answers").received, row("answers").emitted), (exit + on, exit + on));
        // Each exit is on the core of its stage.
        let cores = exits.seen.lock().unwrap().iter().map(|seen| seen.core).max();
        assert_eq!(cores, Some(deployment.cores_in(0) - 1));

        let (world, exits) = (World::new(), World::named("exit"));
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .shard_by(|parcel| parcel.key)
            .stage(|_| Answer)
            .exit(|core| exits.tx_ok(core))
            .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, deployment));
        assert_eq!((report.sent, report.dropped["odd"]), (exit + on, odd), "{report}");
        assert_eq!(exits.nic.sent.load(SeqCst), exit);
    }
}

#[test]
fn a_full_exit_drops_by_name_and_holds_nothing_up() {
    for deployment in DEPLOYMENTS {
        let (world, exits) = (World::new(), World::named("exit"));
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .stage(|_| Answer)
            .exit(|core| {
                let mut tx = exits.tx(core);
                tx.room = 10;
                Ok::<_, Error>(tx)
            })
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, deployment));
        let queues = deployment.cores_in(0) as u64;
        let [exit, _, on] = shares().map(|share| share * queues);
        assert_eq!(report.dropped["tx_full"], exit - 10 * queues, "{report}");
        assert_eq!(report.sent, on + 10 * queues);
    }
}

/// A sink that panics at its hundredth packet.
struct Fails<S>(S, u64);

impl<S: Sink<Item = Parcel>> Sink for Fails<S> {
    type Item = Parcel;

    fn send(&mut self, burst: &mut Burst<Parcel>) -> usize {
        self.1 += burst.len() as u64;
        assert!(self.1 < 100, "boom");
        self.0.send(burst)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.0.devices()
    }
}

#[test]
fn a_panic_in_an_exit_is_its_own_and_strands_no_packet() {
    for deployment in DEPLOYMENTS {
        let (world, exits) = (World::new(), World::named("exit"));
        let graph = source(|core| Ok::<_, Error>(world.rx(core, u64::MAX)))
            .stage(|_| Answer)
            .exit(|core| Ok::<_, Error>(Fails(exits.tx(core), 0)))
            .named("answers")
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        let plan = Engine::plan(graph, deployment).unwrap();
        let ended = watched(|| plan.run(|control| control.wait_until_finished()));
        let Err(RunError::Panicked(report)) = ended else { panic!("{ended:?}") };
        crate::common::assert_adds_up(&report);
        let names = (0..deployment.cores_in(0)).map(|index| core_name(deployment, (0, index)));
        let findings: Vec<_> =
            names.map(|name| format!("answers sink on {name} panicked: boom")).collect();
        assert!(report.findings.iter().all(|finding| findings.contains(finding)), "{report}");
        assert!(!report.findings.is_empty() && report.dropped["panicked"] > 0, "{report}");
    }
}

/// A source that makes its packets.
struct Generator {
    nic: Arc<Nic>,
    left: u64,
}

impl Source for Generator {
    type Item = Parcel;

    fn poll(&mut self, burst: &mut Burst<Parcel>) -> usize {
        let count = self.left.min(burst.room() as u64);
        let numbers = self.left - count..self.left;
        self.left -= count;
        burst.extend(
            numbers.map(|number| self.nic.pool.take(crate::common::mix(number), number, None)),
        );
        count as usize
    }

    fn lossless(&self) -> bool {
        true
    }

    fn creates(&self) -> bool {
        true
    }

    fn finished(&self) -> bool {
        self.left == 0
    }
}

#[test]
fn packets_of_a_source_that_creates_them_count_as_created() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph =
            source(|_| Ok::<_, Error>(Generator { nic: Arc::clone(&world.nic), left: COUNT }))
                .named("generator")
                .shard_by(|parcel| parcel.key)
                .stage(|_| Sieve)
                .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, deployment));
        let created = COUNT * deployment.cores_in(0) as u64;
        assert_eq!((report.received, report.created, report.sent), (0, created, created));
        assert_eq!(
            (report.stages[0].name.as_str(), report.stages[0].created),
            ("generator", created)
        );
        assert_eq!(report.devices.sent, Some(created));
    }
}

/// Passes packets on.
struct Sieve;

impl Stage<Parcel> for Sieve {
    type Out = Parcel;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, parcel: Parcel) -> Verdict<Parcel> {
        Ok(parcel)
    }
}

/// Sends half of the packets out by an exit, by two routes.
struct TwoWays;

impl Stage<Parcel> for TwoWays {
    type Out = Fork<Parcel, Routed<Parcel, u64>>;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: Parcel) -> Verdict<Self::Out> {
        Ok(match packet.sequence % 4 {
            route @ 0..=1 => Fork::Exit(Routed { packet, route }),
            _ => Fork::On(packet),
        })
    }
}

#[test]
fn an_exit_may_lead_to_several_sinks() {
    for deployment in DEPLOYMENTS {
        let (world, [a, b]) = (World::new(), ["a", "b"].map(World::named));
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .stage(|_| TwoWays)
            .exit(|core| Ok::<_, Error>(outlets([(0, a.tx(core)), (1, b.tx(core))])))
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, deployment));
        let count = COUNT * deployment.cores_in(0) as u64;
        assert_eq!((report.received, report.sent), (count, count), "{report}");
        let sent = [&a, &b, &world].map(|world| world.nic.sent.load(SeqCst));
        assert_eq!(sent, [count / 4, count / 4, count / 2]);
    }
}
