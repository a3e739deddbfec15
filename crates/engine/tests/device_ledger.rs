//! The ledger at its edges: queues that lie, and devices with other counts.

use crate::common::{DEPLOYMENTS, Parcel, Rx, Tx, World, not_whole, run, uncreated};
use hotloop_engine::{Chain, Deployment, Engine, Graph, Report, source};
use hotloop_stage::{Core, Error, each};
use std::sync::atomic::Ordering::SeqCst;

const COUNT: u64 = 2000;

/// The packet that triggers the event: of queue 0, in the middle of a burst.
const FATEFUL: u64 = 333;

/// Runs with queues changed by `change`, in all deployments.
fn with_queues(
    change_rx: impl Fn(&Core, &mut Rx) + Sync,
    change_tx: impl Fn(&Core, &mut Tx) + Sync,
    expect: impl Fn(&Report, Deployment),
) {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| {
            let mut rx = world.rx(core, COUNT);
            change_rx(core, &mut rx);
            Ok::<_, Error>(rx)
        })
        .shard_by(|parcel| parcel.key)
        .sink(|core| {
            let mut tx = world.tx(core);
            change_tx(core, &mut tx);
            Ok::<_, Error>(tx)
        });
        expect(&not_whole(run(graph, deployment)), deployment);
    }
}

fn lies(core: &Core, rx: &mut Rx, more: isize) {
    if core.index() == 0 {
        (rx.lies_at, rx.said_more) = (FATEFUL, more);
    }
}

fn assert_findings(report: &Report, found: &[&str]) {
    assert!(report.findings[0].contains("created is not"), "{report}");
    assert_eq!(report.findings[1..], *found, "{report}");
}

#[test]
fn a_source_that_says_more_or_less_than_it_hands_over_is_named() {
    with_queues(
        |core, rx| lies(core, rx, 3),
        |_, _| {},
        |report, deployment| {
            let true_count = COUNT * deployment.cores_in(0) as u64;
            let devices = format!(
                "packets received by the engine: {}, by its devices: {true_count}",
                true_count + 3
            );
            assert_findings(report, &["packets lost by source: 3", &devices]);
        },
    );
    with_queues(
        |core, rx| lies(core, rx, -2),
        |_, _| {},
        |report, deployment| {
            let true_count = COUNT * deployment.cores_in(0) as u64;
            let devices = format!(
                "packets received by the engine: {}, by its devices: {true_count}",
                true_count - 2
            );
            assert_findings(report, &[&uncreated("source", 2), &devices]);
        },
    );
}

#[test]
fn a_sink_that_says_more_or_less_than_it_sent_is_named() {
    let sent = |more: i64, deployment: Deployment| {
        let true_count = COUNT * deployment.cores_in(0) as u64;
        let said = true_count.wrapping_add_signed(more);
        format!("packets sent by the engine: {said}, by its devices: {true_count}")
    };
    let lies = |more| move |_: &Core, tx: &mut Tx| (tx.lies_at, tx.said_more) = (FATEFUL, more);
    with_queues(
        |_, _| {},
        lies(-1),
        |report, deployment| {
            assert_findings(report, &["packets lost by sink: 1", &sent(-1, deployment)]);
        },
    );
    with_queues(
        |_, _| {},
        lies(2),
        |report, deployment| {
            assert_findings(report, &[&uncreated("sink", 2), &sent(2, deployment)]);
        },
    );
}

fn plain(world: &World) -> impl Graph {
    source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
        .stage(|_| each(|parcel: Parcel| parcel))
        .shard_by(|parcel| parcel.key)
        .sink(|core| world.tx_ok(core))
}

/// Runs with a device that counts or loses packets of its own.
fn with_device(spoil: impl Fn(&World), found: &[&str]) -> Report {
    let world = World::new();
    let plan = Engine::plan(plain(&world), Deployment::pipeline([1, 2])).unwrap();
    let result = crate::common::watched(|| {
        plan.run(|control| {
            control.wait_until_finished();
            spoil(&world);
        })
    });
    let report = not_whole(result);
    assert_eq!(report.findings, found);
    report
}

#[test]
fn a_device_that_counts_otherwise_is_named() {
    let report = with_device(
        |world| {
            world.nic.received.fetch_add(1, SeqCst);
        },
        &["packets received by the engine: 2000, by its devices: 2001"],
    );
    assert!(!report.balanced && report.pools_whole);
}

#[test]
fn a_device_that_forgets_what_it_had_counted_is_found() {
    let world = World::new();
    world.nic.sent.store(5000, SeqCst);
    let plan = Engine::plan(plain(&world), Deployment::pipeline([1, 2])).unwrap();
    let result = crate::common::watched(|| {
        plan.run(|control| {
            control.wait_until_finished();
            world.nic.sent.store(0, SeqCst);
        })
    });
    let report = not_whole(result);
    assert!(report.findings[0].starts_with("packets sent by the engine: "), "{report}");
}

#[test]
fn a_packet_that_never_was_in_a_graph_is_missed_all_the_same() {
    let report = with_device(
        |world| std::mem::forget(world.nic.pool.take(0, 0, None)),
        &["nic: 1 lost, 0 doubled"],
    );
    assert!(report.balanced && !report.pools_whole);
}

#[test]
fn a_device_that_does_not_stop_fails_the_run() {
    let report = with_device(
        |world| world.nic.refuses_to_stop.store(true, SeqCst),
        &["nic does not stop: stuck"],
    );
    assert!(report.balanced && report.pools_whole && !report.is_whole());
}

#[test]
fn what_a_device_does_not_know_is_reported_as_unknown_and_not_as_none() {
    let loss = |hides: bool| {
        let world = World::new();
        world.nic.hides_misses.store(hides, SeqCst);
        let report = run(plain(&world), Deployment::pipeline([1, 2])).unwrap();
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        (json["nic_loss"]["imissed"].clone(), report.to_string())
    };
    let (json, text) = loss(true);
    assert!(json.is_null() && text.contains("engine: unknown imissed, 0 rx_nombuf\n"), "{text}");
    // The device had missed seven before the run.
    let (json, text) = loss(false);
    assert!(json == 0 && text.contains("engine: 0 imissed, 0 rx_nombuf\n"), "{text}");
}
