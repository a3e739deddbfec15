//! Packets that the network function creates and sends round through rings of the device, and
//! devices that always have packets.

use hotloop::dpdk::{Mempool, MempoolConfig, PortConfig};
use hotloop::engine::{Graph, Shard};
use hotloop::prelude::*;
use hotloop_tests::{DEPLOYMENTS, alone, device, eal};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Number of packets that each receiving core creates.
const MADE_COUNT: u64 = 500;

/// How often each comes back before it is dropped.
const ROUND_COUNT: u8 = 40;

/// Passes packets on, and creates some until it has created its share.
struct Maker {
    pool: Mempool,
    made_count: u64,
}

impl BurstStage<Packet> for Maker {
    type Out = Packet;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Packet>,
        out: &mut Output<'_, Packet>,
    ) {
        while let Some(packet) = input.pop() {
            out.push(packet);
        }
    }

    fn tick(&mut self, _: &mut Cx<'_, NoDrops>, out: &mut Output<'_, Packet>) {
        if self.made_count < MADE_COUNT {
            self.made_count += 1;
            let mut packet = self.pool.alloc().expect("the pool has room for all");
            let data = packet.append(60).expect("a fresh mbuf has room");
            (data[0], data[1]) = (0, self.made_count as u8);
            out.push_created(packet);
        }
    }
}

drop_reasons! {
    /// Why packets leave the loop.
    pub enum LoopDrop {
        /// The packet has been round often enough.
        Done = "done",
    }
}

/// Counts a packet's rounds in the packet.
struct Rounds;

impl Stage<Packet> for Rounds {
    type Out = Packet;
    type Drop = LoopDrop;

    fn packet(&mut self, cx: &mut Cx<'_, LoopDrop>, mut packet: Packet) -> Verdict<Packet> {
        let rounds = packet.data()[0];
        if rounds == ROUND_COUNT {
            return cx.drop(packet, LoopDrop::Done);
        }
        packet.data_mut()[0] = rounds + 1;
        Ok(packet)
    }
}

fn circle<'a>(port: &'a Port, pool: &'a Mempool) -> impl Graph + 'a {
    source(move |core| port.rx_queue(core))
        .burst_stage(move |_| Maker { pool: pool.clone(), made_count: 0 })
        .shard_by(|packet: &Packet| u32::from(packet.data()[1]) << 24)
        .stage(|_| Rounds)
        .sink(move |core| port.tx_queue(core))
}

#[test]
fn packets_go_round_through_the_devices_rings() {
    alone(|| {
        for deployment in DEPLOYMENTS {
            // The core that polls a ring receives the packets that another core sends into it: the
            // rings have equal numbers of readers and writers.
            if deployment.cores_in(0) != deployment.cores_in(1) {
                continue;
            }
            let config = MempoolConfig { mbuf_count: 32_749, ..MempoolConfig::default() };
            let pool = Mempool::new(eal(), &config).unwrap();
            let config = PortConfig { mempool: Some(pool.clone()), ..PortConfig::default() };
            let port = Port::open_with(eal(), &device("net_ring", ""), config).unwrap();
            let made = MADE_COUNT * deployment.cores_in(0) as u64;
            let report = Engine::plan(circle(&port, &pool), deployment).unwrap().run(|control| {
                while control.snapshot().dropped_sum() < made {
                    assert!(control.snapshot().is_plausible());
                    std::thread::yield_now();
                }
            });
            let report = report.unwrap_or_else(|error| panic!("{deployment}: {error}"));
            let rounds = made * u64::from(ROUND_COUNT);
            assert_eq!((report.created, report.dropped["done"]), (made, made), "{report}");
            assert_eq!((report.received, report.sent), (rounds, rounds), "{report}");
            assert_eq!((report.dropped.len(), report.in_flight), (1, 0), "{report}");
            assert!(report.is_whole(), "{report}");
        }
    });
}

#[test]
fn the_ledger_is_whole_under_load() {
    alone(|| {
        for deployment in DEPLOYMENTS {
            let (lan, wan) = (device("net_null", ""), device("net_null", ",size=1000"));
            let [lan, wan] = [lan, wan].map(|device| Port::open(eal(), &device).unwrap());
            let next = AtomicUsize::new(0);
            let graph = source(|core| {
                Ok::<_, hotloop::Error>(sources([lan.rx_queue(core)?, wan.rx_queue(core)?]))
            })
            .stage(|_| {
                each(|mut packet: Packet| {
                    ethernet::swap_addresses(&mut packet);
                    packet
                })
            })
            // In turn: each worker by its number.
            .shard_by(|_| Shard::Worker(next.fetch_add(1, Relaxed)))
            .sink(|core| wan.tx_queue(core));
            let plan = Engine::plan(graph, deployment).unwrap().ring_capacity(64).unwrap();
            let report = plan.run(|control| {
                // At least once, however late this thread runs.
                loop {
                    let counts = control.snapshot();
                    assert!(counts.is_plausible(), "{counts:?}");
                    if counts.sent >= 50_000 {
                        break;
                    }
                    std::thread::yield_now();
                }
            });
            let report = report.unwrap_or_else(|error| panic!("{deployment}: {error}"));
            assert!(report.is_whole(), "{report}");
            let [received, sent] = [lan.stats().unwrap(), wan.stats().unwrap()];
            assert_eq!(report.received, received.received + sent.received, "{report}");
            assert_eq!(report.sent, sent.sent, "{report}");
            let reasons: Vec<_> = report.dropped.keys().map(String::as_str).collect();
            let crosses = deployment != Deployment::run_to_completion(1);
            assert!(reasons.iter().all(|&reason| reason == "ring_full" && crosses), "{report}");
        }
    });
}
