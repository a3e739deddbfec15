//! The ledger: every run balances, and a stage that loses or doubles a packet is named.

use crate::common::{DEPLOYMENTS, Parcel, World, not_whole, run, uncreated, whole};
use hotloop_engine::{Chain, Deployment, Graph, Report, source};
use hotloop_stage::{
    Burst, BurstStage, Carries, Cx, Dropped, Error, NoDrops, Output, Stage, Verdict, each,
};
use std::sync::atomic::Ordering::SeqCst;

const COUNT: u64 = 2000;

/// The packet that triggers the event: of queue 0, in the middle of a burst.
const FATEFUL: u64 = 333;

hotloop_stage::drop_reasons! { enum OddDrop { Odd = "odd" } }

/// Drops every fifth key.
struct Sieve;

impl Stage<Parcel> for Sieve {
    type Out = Parcel;
    type Drop = OddDrop;

    fn packet(&mut self, cx: &mut Cx<'_, OddDrop>, parcel: Parcel) -> Verdict<Parcel> {
        if parcel.key.is_multiple_of(5) { cx.drop(parcel, OddDrop::Odd) } else { Ok(parcel) }
    }
}

fn sieve(world: &World) -> impl Graph {
    source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
        .stage(|_| each(|parcel: Parcel| parcel))
        .shard_by(|parcel| parcel.key)
        .stage(|_| Sieve)
        .sink(|core| world.tx_ok(core))
}

#[test]
fn a_run_balances_in_every_deployment() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let report = whole(run(sieve(&world), deployment));
        let received = COUNT * deployment.cores_in(0) as u64;
        let odd = (0..COUNT)
            .filter(|&number| crate::common::mix(number % 1000).is_multiple_of(5))
            .count() as u64;
        let odd = odd * deployment.cores_in(0) as u64;
        assert_eq!((report.received, report.created), (received, 0), "{report}");
        assert_eq!(report.dropped.iter().collect::<Vec<_>>(), [(&"odd".to_owned(), &odd)]);
        assert_eq!(report.sent, received - odd);
        assert_eq!(world.seen.lock().unwrap().len() as u64, report.sent);
        assert_eq!(
            (report.devices.received, report.devices.sent),
            (Some(received), Some(report.sent))
        );
        assert_crossings(&report, deployment);
        assert_eq!(world.nic.stopped.load(SeqCst), 1, "stopped once, however many queues");
        assert_eq!(world.nic.queues_at_stop.load(SeqCst), 0, "queues are dropped before the stop");
    }
}

fn assert_crossings(report: &Report, deployment: Deployment) {
    let crossed: u64 = report.cores.iter().map(|core| core.crossed).sum();
    assert_eq!(crossed, report.crossed);
    let cores = deployment.cores_in(1) as u64;
    if !deployment.is_run_to_completion() {
        assert_eq!(report.crossed, report.received);
    } else if cores == 1 {
        assert_eq!(report.crossed, 0);
    } else {
        let expected = report.received - report.received / cores;
        assert!(report.crossed.abs_diff(expected) < report.received / 10, "{report}");
    }
    let sent: u64 = report.cores.iter().map(|core| core.sent).sum();
    assert_eq!(sent, report.sent);
    assert_eq!(report.cores.len(), deployment.core_count());
}

#[test]
fn a_graph_without_a_boundary_balances_too() {
    for workers in 1..=3 {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .stage(|_| Sieve)
            .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, Deployment::run_to_completion(workers)));
        assert_eq!(report.received, COUNT * workers as u64);
        assert_eq!(report.crossed, 0);
    }
}

/// Runs a source and a sink with one stage, which takes packets one by one, before the boundary and
/// after it, in every deployment; the findings must be `found`.
fn both_sides<S: Stage<Parcel, Out = Parcel>>(make: impl Fn(&World) -> S + Sync, found: &[&str]) {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .stage(|_| make(&world))
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        assert_eq!(not_whole(run(graph, deployment)).findings, found, "before, {deployment}");

        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .shard_by(|parcel| parcel.key)
            .stage(|_| make(&world))
            .sink(|core| world.tx_ok(core));
        assert_eq!(not_whole(run(graph, deployment)).findings, found, "after, {deployment}");
    }
}

/// Like [`both_sides`], for a stage that takes bursts.
fn both_sides_burst<S: BurstStage<Parcel, Out = Parcel>>(
    make: impl Fn() -> S + Sync,
    expect: impl Fn(&Report),
) {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .burst_stage(|_| make())
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        expect(&not_whole(run(graph, deployment)));

        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .shard_by(|parcel| parcel.key)
            .burst_stage(|_| make())
            .sink(|core| world.tx_ok(core));
        expect(&not_whole(run(graph, deployment)));
    }
}

/// Not a packet; dropped to obtain a verdict.
struct Decoy;

impl Carries for Decoy {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// Keeps a verdict for later, and forgets a packet under it.
#[derive(Default)]
struct Taker {
    alibi: Option<Dropped>,
    on_tick: bool,
}

impl Stage<Parcel> for Taker {
    type Out = Parcel;
    type Drop = OddDrop;

    fn packet(&mut self, cx: &mut Cx<'_, OddDrop>, parcel: Parcel) -> Verdict<Parcel> {
        if parcel.sequence != FATEFUL {
            return Ok(parcel);
        }
        std::mem::forget(parcel);
        match self.alibi.take() {
            Some(alibi) => Err(alibi),
            None => cx.drop(Decoy, OddDrop::Odd),
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_, OddDrop>) {
        if std::mem::take(&mut self.on_tick) {
            self.alibi = cx.drop::<_, ()>(Decoy, OddDrop::Odd).err();
        }
    }
}

#[test]
fn a_packet_forgotten_under_a_decoy_is_missed_by_its_pool() {
    both_sides(|_| Taker::default(), &["nic: 1 lost, 0 doubled"]);
}

/// Swallows one packet under the verdict of another, which it doubles for that.
#[derive(Default)]
struct Copier {
    alibi: Option<Dropped>,
}

impl Stage<Parcel> for Copier {
    type Out = Parcel;
    type Drop = OddDrop;

    fn packet(&mut self, cx: &mut Cx<'_, OddDrop>, parcel: Parcel) -> Verdict<Parcel> {
        if parcel.sequence == FATEFUL {
            self.alibi = cx.drop::<_, ()>(parcel.twin(), OddDrop::Odd).err();
        }
        Ok(parcel)
    }
}

#[test]
fn a_packet_dropped_and_given_on_is_uncreated_and_doubled() {
    let account = "received + 0 created is not";
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .stage(|_| Copier::default())
            .shard_by(|parcel| parcel.key)
            .sink(|core| world.tx_ok(core));
        let report = not_whole(run(graph, deployment));
        assert!(report.findings[0].contains(account), "{report}");
        assert_eq!(
            report.findings[1..],
            [uncreated("Copier", 1).as_str(), "nic: 0 lost, 1 doubled"]
        );
        assert_eq!((report.uncreated, report.unattributed), (1, 0));
        assert!(!report.balanced && !report.pools_whole);
    }
}

#[test]
fn a_verdict_kept_for_later_shows_on_both_sides() {
    let world = World::new();
    let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
        .shard_by(|parcel| parcel.key)
        .stage(|core| Taker { alibi: None, on_tick: core.index() == owner(FATEFUL, 2) })
        .sink(|core| world.tx_ok(core));
    let report = not_whole(run(graph, Deployment::pipeline([1, 2])));
    let lost = "packets lost by Taker: 1";
    assert_eq!(report.findings, [lost, &uncreated("Taker", 1), "nic: 1 lost, 0 doubled"]);
    assert!(!report.balanced, "the sums agree, the stage's own arithmetic does not");
}

/// The worker that owns the packet with this number.
fn owner(number: u64, worker_count: usize) -> usize {
    hotloop_engine::Shard::Hash(crate::common::mix(number % 1000)).worker(worker_count)
}

/// Emits another packet in place of the one it takes.
struct Swapper(Parcel);

impl Stage<Parcel> for Swapper {
    type Out = Parcel;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, mut parcel: Parcel) -> Verdict<Parcel> {
        std::mem::swap(&mut self.0, &mut parcel);
        if self.0.sequence == FATEFUL {
            let twin = self.0.twin();
            std::mem::forget(std::mem::replace(&mut self.0, twin.twin()));
            drop(twin);
        }
        Ok(parcel)
    }
}

#[test]
fn a_packet_swapped_for_its_double_is_seen_by_the_pool_alone() {
    let make = |world: &World| Swapper(world.nic.pool.take(0, u64::MAX, None));
    both_sides(make, &["nic: 0 lost, 1 doubled"]);
}

/// The burst stage's error with the packet.
#[derive(Clone, Copy)]
enum Wrong {
    Swallow,
    Forget,
    Double,
    LeaveInInput,
    SayItHolds,
    HoldUnsaid,
    DoubleAsCreated,
}

/// Passes bursts on, except for one packet.
struct Faulty(Wrong, Vec<Parcel>, usize);

impl BurstStage<Parcel> for Faulty {
    type Out = Parcel;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Parcel>,
        out: &mut Output<'_, Parcel>,
    ) {
        let mut left = None;
        while let Some(parcel) = input.pop() {
            if parcel.sequence != FATEFUL {
                out.push(parcel);
                continue;
            }
            match self.0 {
                Wrong::Swallow => drop(parcel),
                Wrong::Forget => std::mem::forget(parcel),
                Wrong::LeaveInInput => left = Some(parcel),
                Wrong::HoldUnsaid => self.1.push(parcel),
                Wrong::SayItHolds => {
                    self.2 = 1;
                    drop(parcel);
                }
                Wrong::Double => {
                    out.push(parcel.twin());
                    out.push(parcel);
                }
                Wrong::DoubleAsCreated => {
                    out.push_created(parcel.twin());
                    out.push(parcel);
                }
            }
        }
        input.extend(left);
    }

    fn held(&self) -> usize {
        self.2
    }
}

/// The findings of a run with a [`Faulty`]; with `sums_fail`, the first one is the account of the
/// sums.
fn faulty(wrong: Wrong, sums_fail: bool, found: &[&str]) {
    both_sides_burst(
        || Faulty(wrong, Vec::new(), 0),
        |report| {
            let sums = usize::from(sums_fail);
            assert_eq!(report.findings[sums..], *found, "{report}");
            assert!(!sums_fail || report.findings[0].contains("created is not"), "{report}");
        },
    );
}

#[test]
fn a_burst_stage_that_swallows_is_named() {
    faulty(Wrong::Swallow, true, &["packets lost by Faulty: 1"]);
    faulty(Wrong::LeaveInInput, true, &["packets lost by Faulty: 1"]);
    faulty(Wrong::HoldUnsaid, true, &["packets lost by Faulty: 1"]);
    faulty(Wrong::Forget, true, &["packets lost by Faulty: 1", "nic: 1 lost, 0 doubled"]);
}

#[test]
fn a_burst_stage_that_doubles_is_named() {
    faulty(Wrong::Double, true, &[&uncreated("Faulty", 1), "nic: 0 lost, 1 doubled"]);
    faulty(Wrong::DoubleAsCreated, false, &["nic: 0 lost, 1 doubled"]);
}

#[test]
fn a_burst_stage_that_says_it_holds_what_it_lost_is_named() {
    faulty(Wrong::SayItHolds, false, &["packets left inside: 1", "Faulty still holds 1"]);
}
