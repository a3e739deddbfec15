//! From capture files to capture files, compared packet by packet.

use super::hop::{Hop, HopDrop, expected};
use super::traffic::{SEED, by_addresses, frames, read, split};
use hotloop::engine::{Graph, Plan};
use hotloop::prelude::*;
use hotloop::stage::DropReason;
use hotloop::testing::Frame;
use hotloop_tests::{DEPLOYMENTS, alone, device, eal};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::ThreadId;

const FRAME_COUNT: usize = 3000;

/// The results of a replay.
struct Replayed {
    report: Report,
    /// The frames that each TX queue wrote.
    outputs: Vec<Vec<Vec<u8>>>,
    /// The threads that made stages.
    threads: HashSet<ThreadId>,
}

/// Ports, one for each index of a core: it reads the file of the receiver with that index and
/// writes the file of the worker with that index.
fn ports(folder: &Path, inputs: &[PathBuf], worker_count: usize) -> (Vec<Port>, Vec<PathBuf>) {
    let outputs = (0..worker_count).map(|index| folder.join(format!("out{index}.pcap")));
    let outputs = outputs.collect::<Vec<_>>();
    let argument = |key: &str, path: Option<&PathBuf>| {
        path.map_or(String::new(), |path| format!(",{key}={}", path.display()))
    };
    let open = |index| {
        let rx = argument("rx_pcap", inputs.get(index));
        let tx = argument("tx_pcap", outputs.get(index));
        let port = Port::open(eal(), &device("net_pcap", &(rx + &tx)));
        port.unwrap_or_else(|error| panic!("{error}"))
    };
    let ports = (0..inputs.len().max(worker_count)).map(open).collect();
    (ports, outputs)
}

fn graph<'a>(ports: &'a [Port], threads: &'a Mutex<HashSet<ThreadId>>) -> impl Graph + 'a {
    let note = move || threads.lock().unwrap().insert(std::thread::current().id());
    source(move |core| {
        note();
        ports[core.index()].rx_queue(core)
    })
    .stage(|_| Classify::innermost().seeded(SEED))
    .shard_by(|packet| packet.shard())
    .stage(move |_| {
        note();
        Hop
    })
    .sink(move |core| ports[core.index()].tx_queue(core))
}

/// The same work with two boundaries: classified packets cross the first, hopped ones the second.
fn three_groups<'a>(ports: &'a [Port], threads: &'a Mutex<HashSet<ThreadId>>) -> impl Graph + 'a {
    let note = move || threads.lock().unwrap().insert(std::thread::current().id());
    source(move |core| {
        note();
        ports[core.index()].rx_queue(core)
    })
    .stage(|_| Classify::innermost().seeded(SEED))
    .shard_by(|packet| packet.shard())
    .stage(move |_| {
        note();
        Hop
    })
    .handoff()
    .sink(move |core| {
        note();
        ports[core.index()].tx_queue(core)
    })
}

fn replay(frames: &[Frame], deployment: Deployment, ring_capacity: Option<usize>) -> Replayed {
    replay_to(frames, deployment, 1, |ports, threads| {
        let mut plan = Engine::plan(graph(ports, threads), deployment).unwrap();
        if let Some(ring_capacity) = ring_capacity {
            plan = plan.ring_capacity(ring_capacity).unwrap();
        }
        finish(plan)
    })
}

fn finish(plan: Plan<impl Graph>) -> Report {
    let report = plan.run(|control| {
        assert_eq!(control.wait_until_finished(), Waited::Finished);
    });
    report.unwrap_or_else(|error| panic!("{error}"))
}

/// Replays the frames with `run`, which gets the ports and the set of threads. The cores of
/// `last_group` send.
fn replay_to(
    frames: &[Frame],
    deployment: Deployment,
    last_group: usize,
    run: impl FnOnce(&[Port], &Mutex<HashSet<ThreadId>>) -> Report,
) -> Replayed {
    let folder = tempfile::tempdir().unwrap();
    let inputs = split(folder.path(), frames, deployment.cores_in(0));
    let (ports, outputs) = ports(folder.path(), &inputs, deployment.cores_in(last_group));
    let threads = Mutex::default();
    let report = run(&ports, &threads);
    let outputs = outputs.iter().map(|path| read(path)).collect();
    Replayed { report, outputs, threads: threads.into_inner().unwrap() }
}

/// The expected output, and the expected number of drops for each reason.
fn oracle(frames: &[Frame]) -> (Vec<Vec<u8>>, BTreeMap<String, u64>) {
    let (mut out, mut dropped) = (Vec::new(), BTreeMap::new());
    for frame in frames {
        match expected(frame) {
            Ok(bytes) => out.push(bytes),
            Err(reason) => {
                *dropped.entry(HopDrop::NAMES[reason.index()].to_owned()).or_default() += 1;
            }
        }
    }
    (out, dropped)
}

fn assert_as_expected(replayed: &Replayed, frames: &[Frame]) {
    let (expected, dropped) = oracle(frames);
    let report = &replayed.report;
    assert!(report.is_whole(), "{report}");
    assert_eq!(report.dropped, dropped, "{report}");
    assert_eq!(report.received, frames.len() as u64, "{report}");
    assert_eq!(report.devices.received, Some(frames.len() as u64));
    assert_eq!(report.devices.sent, Some(expected.len() as u64));
    assert_eq!((report.nic_loss.imissed, report.nic_loss.rx_nombuf), (Some(0), 0));
    // Each pair of addresses came out by one queue, and in order there.
    let mut found = BTreeMap::new();
    for output in &replayed.outputs {
        for (addresses, frames) in by_addresses(output.iter().cloned()) {
            assert!(found.insert(addresses, frames).is_none(), "two workers had one shard");
        }
    }
    let expected = by_addresses(expected);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (addresses, frames) in &expected {
        assert!(found[addresses] == *frames, "what has the addresses {addresses:02x?} differs");
    }
}

#[test]
fn every_deployment_gives_the_packets_that_are_expected() {
    alone(|| {
        let frames = frames(FRAME_COUNT);
        let long_count = frames.iter().filter(|frame| frame.bytes.len() > 2048).count();
        assert!(long_count > 500, "{long_count} frames take two mbufs");
        for deployment in DEPLOYMENTS {
            let replayed = replay(&frames, deployment, None);
            assert_as_expected(&replayed, &frames);
            assert_cores(&replayed, deployment);
        }
    });
}

#[test]
fn three_groups_give_the_packets_that_are_expected() {
    alone(|| {
        let frames = frames(FRAME_COUNT);
        for deployment in [
            Deployment::run_to_completion(1),
            Deployment::run_to_completion(2),
            Deployment::pipeline([1, 1, 1]),
            Deployment::pipeline([1, 2, 1]),
            Deployment::pipeline([2, 2, 2]),
        ] {
            let replayed = replay_to(&frames, deployment, 2, |ports, threads| {
                finish(Engine::plan(three_groups(ports, threads), deployment).unwrap())
            });
            assert_as_expected(&replayed, &frames);
            assert_eq!(replayed.threads.len(), deployment.core_count(), "{deployment}");
            let crossed = if deployment.is_run_to_completion() { 0 } else { replayed.report.sent };
            assert!(replayed.report.crossed >= crossed, "{}", replayed.report);
        }
    });
}

/// Checks that each core had a thread, an lcore and a share of its own.
fn assert_cores(replayed: &Replayed, deployment: Deployment) {
    let cores = &replayed.report.cores;
    let core_count = deployment.core_count();
    assert_eq!((cores.len(), replayed.threads.len()), (core_count, core_count), "{deployment}");
    let lcores = cores.iter().map(|core| core.lcore.expect("it has queues"));
    assert_eq!(lcores.collect::<BTreeSet<_>>().len(), core_count, "{deployment}");
    assert!(cores.iter().all(|core| core.cpu.is_some()), "{deployment}");
    let owners = &cores[core_count - deployment.cores_in(1)..];
    for owner in owners {
        assert!(owner.sent > 0, "{}", replayed.report);
    }
    let sent = owners.iter().map(|owner| owner.sent).sum::<u64>();
    assert_eq!(sent, replayed.report.sent);
}

#[test]
fn the_shares_of_two_workers_are_alike() {
    alone(|| {
        let frames = frames(FRAME_COUNT);
        for deployment in [Deployment::run_to_completion(2), Deployment::pipeline([1, 2])] {
            let report = replay(&frames, deployment, None).report;
            let sent = report.cores.iter().rev().take(2).map(|core| core.sent);
            assert!(sent.min() > Some(report.sent / 3), "{report}");
        }
    });
}

#[test]
fn rings_of_eight_lose_nothing() {
    alone(|| {
        let frames = frames(FRAME_COUNT);
        for deployment in DEPLOYMENTS {
            let replayed = replay(&frames, deployment, Some(8));
            assert!(!replayed.report.dropped.contains_key("ring_full"));
            assert_as_expected(&replayed, &frames);
            let crosses = deployment != Deployment::run_to_completion(1);
            assert_eq!(replayed.report.crossed > 0, crosses, "{}", replayed.report);
        }
    });
}

#[test]
fn what_found_no_mbuf_is_reported_beside_what_was_received() {
    use hotloop::dpdk::{Mempool, MempoolConfig, PortConfig};
    alone(|| {
        let frames = frames(FRAME_COUNT);
        let folder = tempfile::tempdir().unwrap();
        let inputs = split(folder.path(), &frames, 1);
        let config = MempoolConfig { mbuf_count: 16_381, cache_count: 0, ..Default::default() };
        let pool = Mempool::new(eal(), &config).unwrap();
        let arguments = format!(",rx_pcap={}", inputs[0].display());
        let config = PortConfig { mempool: Some(pool.clone()), ..PortConfig::default() };
        let port = Port::open_with(eal(), &device("net_pcap", &arguments), config).unwrap();
        let threads = Mutex::default();
        let ports = [port];
        let plan = Engine::plan(graph(&ports, &threads), Deployment::run_to_completion(1)).unwrap();
        let mut held: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        let report = plan.run(|control| {
            // Until some frames have been lost, no mbuf is available; then all are.
            while ports[0].stats().unwrap().rx_nombuf < 10 {
                std::thread::yield_now();
            }
            held.clear();
            control.wait_until_finished();
        });
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        let lost = report.nic_loss.rx_nombuf;
        assert!(report.is_whole() && lost >= 10, "{report}");
        assert_eq!(report.received + lost, FRAME_COUNT as u64, "{report}");
    });
}

#[test]
fn records_that_a_driver_cannot_hold_are_in_the_account() {
    alone(|| {
        let mut frames = frames(FRAME_COUNT);
        for frame in frames.iter_mut().step_by(10) {
            frame.bytes.resize(65_536 + 2048, 0x55);
        }
        for deployment in DEPLOYMENTS {
            let report = replay(&frames, deployment, None).report;
            let malformed = report.nic_loss.rx_malformed;
            assert!(report.is_whole(), "{report}");
            assert_eq!(report.received + malformed, FRAME_COUNT as u64, "{report}");
            let names = report.to_string().contains(&format!(", {malformed} rx_malformed\n"));
            assert_eq!(names, malformed > 0, "{report}");
        }
    });
}
