//! Ports that are stopped, closed and opened again, a thousand times, with packets still in the
//! rings between cores and in the devices' own, and ports that come and go beside a running engine.

use hotloop::dpdk::{Error, Mempool, MempoolConfig, PortConfig};
use hotloop::engine::{Graph, Shard};
use hotloop::prelude::*;
use hotloop_tests::{alone, device, eal};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const CYCLE_COUNT: usize = 1000;

/// Number of cycles that restart the same port before it is opened anew.
const RESTARTS_PER_PORT: usize = 4;

/// Capacity of a ring of net_ring, in packets.
const DEVICE_RING_COUNT: u64 = 1023;

/// Small pools make it cheap to check each mbuf.
fn small() -> PortConfig {
    PortConfig {
        rx_descriptor_count: 64,
        tx_descriptor_count: 64,
        cache_count: Some(32),
        ..Default::default()
    }
}

/// From a port that always has packets, through rings of 64, into one that nobody receives from.
fn graph<'a>(full: &'a Port, stuck: &'a Port, next: &'a AtomicUsize) -> impl Graph + 'a {
    source(|core| full.rx_queue(core))
        .shard_by(|_| Shard::Worker(next.fetch_add(1, Relaxed)))
        .stage(|_| each(|packet: Packet| packet))
        .sink(|core| stuck.tx_queue(core))
}

/// The same with another boundary, to one sending core.
fn three_groups<'a>(full: &'a Port, stuck: &'a Port, next: &'a AtomicUsize) -> impl Graph + 'a {
    source(|core| full.rx_queue(core))
        .shard_by(|_| Shard::Worker(next.fetch_add(1, Relaxed)))
        .stage(|_| each(|packet: Packet| packet))
        .handoff()
        .sink(|core| stuck.tx_queue(core))
}

/// Runs until two thousand packets have come.
fn cycle(graph: impl Graph, deployment: Deployment) -> Report {
    let plan = Engine::plan(graph, deployment).unwrap();
    let report = plan.ring_capacity(64).unwrap().run(|control| {
        while control.snapshot().received < 2000 {
            std::thread::yield_now();
        }
    });
    let report = report.unwrap_or_else(|error| panic!("{deployment}: {error}"));
    assert!(report.is_whole(), "{report}");
    report
}

#[test]
fn a_thousand_stops_and_restarts_leave_everything_whole() {
    alone(|| {
        let deployments = [
            Deployment::pipeline([1, 1]),
            Deployment::run_to_completion(1),
            Deployment::pipeline([1, 1, 1]),
            Deployment::run_to_completion(2),
            Deployment::pipeline([1, 2, 1]),
        ];
        let next = AtomicUsize::new(0);
        let mut ring_full_count = 0;
        for port in 0..CYCLE_COUNT / RESTARTS_PER_PORT {
            let full = Port::open_with(eal(), "net_null_cycle", small()).unwrap();
            let stuck = Port::open_with(eal(), "net_ring_cycle", small()).unwrap();
            for restart in 0..RESTARTS_PER_PORT {
                let deployment = deployments[(port + restart) % deployments.len()];
                let report = if deployment.group_count() == 3 {
                    cycle(three_groups(&full, &stuck, &next), deployment)
                } else {
                    cycle(graph(&full, &stuck, &next), deployment)
                };
                // The packets sent are those that the device's rings still held when it was
                // stopped.
                let senders = deployment.cores_in(deployment.group_count() - 1);
                let held_max = DEVICE_RING_COUNT * senders as u64;
                assert!(report.sent > 0 && report.sent <= held_max, "{report}");
                ring_full_count += report.dropped.get("ring_full").copied().unwrap_or_default();
            }
        }
        // The rings between cores were full at times, also when some runs were stopped.
        assert!(ring_full_count > 0);
    });
}

#[test]
fn a_panic_amid_full_rings_loses_nothing() {
    alone(|| {
        for deployment in [Deployment::pipeline([1, 1]), Deployment::pipeline([1, 2])] {
            let full = Port::open_with(eal(), &device("net_null", ""), small()).unwrap();
            let stuck = Port::open_with(eal(), &device("net_ring", ""), small()).unwrap();
            let next = AtomicUsize::new(0);
            let graph = source(|core| full.rx_queue(core))
                .shard_by(|_| Shard::Worker(next.fetch_add(1, Relaxed)))
                .stage(|_| {
                    let mut count = 0;
                    each(move |packet: Packet| {
                        count += 1;
                        // While this core sleeps, the dispatcher fills the ring.
                        if count == 500 {
                            std::thread::sleep(Duration::from_millis(20));
                            panic!("amid a burst");
                        }
                        packet
                    })
                })
                .sink(|core| stuck.tx_queue(core));
            let plan = Engine::plan(graph, deployment).unwrap().ring_capacity(64).unwrap();
            let error = plan.run(|control| _ = control.wait_until_finished()).unwrap_err();
            let report = error.report().expect("it did run");
            assert!(report.balanced && report.pools_whole, "{report}");
            assert!(report.dropped["panicked"] > 0 && report.dropped["ring_full"] > 0, "{report}");
        }
    });
}

/// Opens, uses, stops and closes ports of every kind, on a thread that also comes and goes.
fn come_and_go(stop: &AtomicBool) -> u64 {
    let mut count = 0;
    while !stop.load(Relaxed) {
        let use_port = || -> hotloop::Result<()> {
            let port = Port::open(eal(), &device(["net_null", "net_ring"][count % 2], ""))?;
            let core = Core::new(0, 1);
            let (mut rx, mut tx) = (port.rx_queue(&core)?, port.tx_queue(&core)?);
            let facts = Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false };
            rx.start(&facts)?;
            tx.start(&facts)?;
            let mut burst = Burst::new();
            rx.poll(&mut burst);
            tx.send(&mut burst);
            Ok(())
        };
        let used = std::thread::scope(|scope| scope.spawn(use_port).join());
        used.expect("it does not panic").unwrap_or_else(|error| panic!("{error}"));
        count += 1;
    }
    count as u64
}

#[test]
fn ports_come_and_go_beside_a_running_engine() {
    alone(|| {
        let stop = AtomicBool::new(false);
        let counts = std::thread::scope(|scope| {
            let threads = [0, 1].map(|_| scope.spawn(|| come_and_go(&stop)));
            for _ in 0..20 {
                let next = AtomicUsize::new(0);
                let [full, stuck] =
                    [("net_null", ""), ("net_null", ",size=60")].map(|(driver, arguments)| {
                        Port::open_with(eal(), &device(driver, arguments), small()).unwrap()
                    });
                let plan = Engine::plan(graph(&full, &stuck, &next), Deployment::pipeline([1, 1]));
                let report = plan.unwrap().run(|control| {
                    // A port in use is not stopped, whatever name it is requested by.
                    assert!(matches!(full.stop(), Err(Error::QueuesHeld { .. })));
                    let again = Port::open(eal(), full.name());
                    assert!(matches!(again, Err(Error::DeviceInUse { .. })));
                    while control.snapshot().sent < 20_000 {
                        std::thread::yield_now();
                    }
                });
                let report = report.unwrap_or_else(|error| panic!("{error}"));
                assert!(report.is_whole(), "{report}");
            }
            stop.store(true, Relaxed);
            threads.map(|thread| thread.join().expect("it does not panic"))
        });
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    });
}

#[test]
fn packets_outlive_the_engine_and_its_ports() {
    alone(|| {
        let config = MempoolConfig { mbuf_count: 8_179, ..MempoolConfig::default() };
        let pool = Mempool::new(eal(), &config).unwrap();
        let config = PortConfig { mempool: Some(pool.clone()), ..small() };
        let full = Port::open_with(eal(), &device("net_null", ""), config).unwrap();
        let stuck = Port::open_with(eal(), &device("net_ring", ""), small()).unwrap();
        let mut mine = pool.alloc().expect("the pool is full");
        mine.append(4).unwrap().copy_from_slice(b"mine");
        let mine = mine.into_shared();
        let theirs = mine.clone();
        let next = AtomicUsize::new(0);
        let plan = Engine::plan(graph(&full, &stuck, &next), Deployment::pipeline([1, 1])).unwrap();
        let run = plan.run(|control| {
            while control.snapshot().sent == 0 {
                std::thread::yield_now();
            }
        });
        // The engine did not own one mbuf of the pool, and reports that it is not back.
        let error = run.expect_err("a packet is out");
        assert!(error.report().is_some_and(|report| report.balanced && !report.pools_whole));
        drop((full, stuck));
        std::thread::spawn(move || drop(mine)).join().unwrap();
        assert_eq!(theirs.data(), b"mine");
        assert!(!pool.report().is_whole());
        drop(theirs);
        assert!(pool.report().is_whole(), "{}", pool.report());
    });
}
