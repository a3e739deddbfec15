//! The load balancer in steady state: no allocation and no system call on any of the engine's
//! threads, while a million packets take every path.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

mod beside;
mod paint;
mod shared;
mod traffic;

use beside::{Everything, Probes};
use hotloop::dpdk::{Mempool, MempoolConfig, PortConfig};
use hotloop::engine::{Graph, LoadMeter};
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::prefix::{Prefix, PrefixSet};
use hotloop::prelude::*;
use hotloop::stage::DropReason;
use hotloop::testing::syscalls::{Traced, traced};
use hotloop::testing::{AllocGuard, Steady};
use hotloop_balancer::balance::{
    BUFFERS_MAX, Balance, BalanceDrop, BalancerConfig, Buffer, CLIENTS_MAX, Egress, Egresses,
    Exchange, Probing, Route, SEED, Sharing,
};
use hotloop_balancer::counts::WorkerCounts;
use hotloop_balancer::services::{Builder, ServiceTable, Standing, TargetName};
use hotloop_tests::{alone, device, eal};
use ipip_lb::config::Config;
use paint::Painted;
use shared::Shared;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use traffic::{Template, round};

#[global_allocator]
static GUARD: AllocGuard = AllocGuard;

/// Number of packets for which each thread is watched: packets that a source yields; for a worker,
/// the share that leaves towards backends.
const WATCHED_COUNT: u64 = 1_000_000;
const WATCHED_SENT_COUNT: u64 = 580_000;

/// Number of packets before that: a few thousand rounds.
const WARM_UP_COUNT: u64 = 60_000;

/// Maximum number of changes of exceptions that wait for control: fewer than occur.
const JOURNAL_MAX: usize = 1000;

const TO_BACKENDS: Route = Route(0);
const TO_CLIENTS: Route = Route(1);
/// A route that no outlet has.
const TO_NOBODY: Route = Route(2);

/// Creates a packet beside every 16th, and sends one of 64 of them nowhere.
struct Mirror {
    pool: Mempool,
    seen_count: u64,
    /// Whether the stage yields now and then, which is not allowed in steady state.
    yields: bool,
}

impl BurstStage<Routed<Packet, Route>> for Mirror {
    type Out = Routed<Packet, Route>;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Routed<Packet, Route>>,
        out: &mut Output<'_, Routed<Packet, Route>>,
    ) {
        while let Some(routed) = input.pop() {
            self.seen_count += 1;
            if self.yields && self.seen_count.is_multiple_of(100_000) {
                std::thread::yield_now();
            }
            if self.seen_count.is_multiple_of(16)
                && let Some(mut packet) = self.pool.alloc()
            {
                packet.append(60).expect("a fresh mbuf has room").fill(7);
                let is_stray = self.seen_count.is_multiple_of(1024);
                let route = if is_stray { TO_NOBODY } else { TO_BACKENDS };
                out.push_created(Routed { packet, route });
            }
            out.push(routed);
        }
    }
}

/// The parts of every core's balancer.
struct Lb {
    subscribers: Subscribers<ServiceTable>,
    probes: Mailboxes<Buffer, Buffer>,
    exchanges: Mailboxes<Exchange, Exchange>,
    deployment: Deployment,
    counts: Arc<[WorkerCounts]>,
    connections_max: usize,
    slot_capacity: usize,
    round: Vec<Template>,
    /// Yields frames, and takes packets to backends.
    uplink: Port,
    /// Takes packets to clients, and nobody takes them from there: soon it is full.
    stuck: Port,
    pool: Mempool,
    yields: bool,
}

impl Lb {
    /// The balancer, and the control side of its probes and of its shared exceptions.
    fn new(deployment: Deployment, yields: bool) -> (Self, Probes, Shared) {
        let config = Config::parse("lb.toml", traffic::CONFIG).unwrap();
        let mut builder = Builder::new(&config.services);
        let blocked: PrefixSet =
            [traffic::BLOCKED.parse::<Prefix>().unwrap()].into_iter().collect();
        let standing = Standing { blocked: Some(Arc::new(blocked)), ..Standing::default() };
        let services = builder.build(&config.spec(), &standing).unwrap();
        let (asker, probes) = mailbox(BUFFERS_MAX);
        let (exchange_asker, exchanges) = mailbox(1);
        let services = Arc::new(services);
        let (publisher, subscribers) = publish(Arc::clone(&services));
        let slot_capacity = builder.slot_capacity();
        let counts =
            (0..deployment.cores_in(1)).map(|_| WorkerCounts::new(slot_capacity)).collect();
        let connections_max = config.balancer.connections_max;
        let pool = MempoolConfig { mbuf_count: 32_767, ..MempoolConfig::default() };
        let pool = Mempool::new(eal(), &pool).unwrap();
        let open = |driver| {
            let config = PortConfig { mempool: Some(pool.clone()), ..PortConfig::default() };
            Port::open_with(eal(), &device(driver, ""), config).unwrap()
        };
        let (uplink, stuck) = (open("net_null"), open("net_ring"));
        let round = round();
        let lb = Self {
            subscribers,
            probes,
            exchanges,
            deployment,
            counts,
            connections_max,
            slot_capacity,
            round,
            uplink,
            stuck,
            pool,
            yields,
        };
        let worker_count = deployment.cores_in(1);
        let heavier = TargetName { service: "web".to_owned(), address: [10, 0, 0, 2].into() };
        let standing = Standing { weights: HashMap::from([(heavier, 3)]), ..standing };
        let other = builder.build(&config.spec(), &standing).unwrap();
        let tables = [services, Arc::new(other)];
        let shared = Shared::new(exchange_asker, worker_count, publisher, tables);
        (lb, Probes::new(asker), shared)
    }

    fn balance(&self, core: &Core) -> hotloop::Result<Balance<Packet>> {
        let mac = |last| MacAddress::new([2, 0, 0, 0, 9, last]);
        let egress = |route| Egress { route, source: mac(1), destination: mac(2) };
        let egresses = Egresses { clients: egress(TO_CLIENTS), backends: egress(TO_BACKENDS) };
        let pool = self.pool.clone();
        let create = move |frame: &[u8]| {
            let mut packet = pool.alloc()?;
            packet.append(frame.len()).ok()?.copy_from_slice(frame);
            Some(packet)
        };
        let probes = Probing::new(self.probes.open(core)?, Box::new(create));
        let balance = Balance::new(BalancerConfig {
            services: self.subscribers.subscribe(),
            egresses,
            counts: Arc::clone(&self.counts),
            worker: core.index(),
            connections_max: self.connections_max,
            slot_capacity: self.slot_capacity,
            clients_max: CLIENTS_MAX,
            node: core.node(),
            mailbox: None,
            sharing: Some(Sharing {
                mailbox: self.exchanges.open(core)?,
                journal_max: JOURNAL_MAX,
            }),
            table_seed: None,
        })?;
        Ok(balance.probing(Some(probes)))
    }

    /// The balancer's graph, with a stage that creates packets. Each thread is watched: at its
    /// source, or at its sink if it has none.
    fn graph<'a>(&'a self, at_sources: &'a Steady, at_sinks: &'a Steady) -> impl Graph + 'a {
        source(move |core| {
            let rx = Painted::new(self.uplink.rx_queue(core)?, &self.round);
            Ok::<_, hotloop::Error>(at_sources.watch(format!("group {}", core.group()), rx))
        })
        .stage(|_| Classify::innermost().seeded(SEED))
        .shard_by(|packet| packet.shard())
        .try_burst_stage(|core| self.balance(core))
        .burst_stage(|_| Mirror { pool: self.pool.clone(), seen_count: 0, yields: self.yields })
        .sink(move |core| {
            let never = Steady::after(u64::MAX, 0);
            let has_source = self.deployment.is_run_to_completion();
            let first = if has_source { &never } else { at_sinks };
            Ok::<_, hotloop::Error>(outlets([
                (
                    TO_BACKENDS,
                    first.watch(format!("group {}", core.group()), self.uplink.tx_queue(core)?),
                ),
                (TO_CLIENTS, never.watch("", self.stuck.tx_queue(core)?)),
            ]))
        })
    }
}

/// The load on a balancer, beside its packets.
#[derive(Clone, Copy, Default)]
struct Kind {
    /// Whether a stage yields now and then.
    yields: bool,
    /// Whether packets are captured, and metrics scraped.
    has_everything: bool,
}

/// Runs until every thread has been watched to the end and exceptions were shared in each way,
/// while the load is read. Checks that no thread allocated and that every path was taken.
fn run(deployment: Deployment, kind: Kind) {
    let (lb, mut probes, mut shared) = Lb::new(deployment, kind.yields);
    let at_sources = Steady::after(WARM_UP_COUNT, WATCHED_COUNT);
    let at_sinks = Steady::after(WARM_UP_COUNT, WATCHED_SENT_COUNT);
    let threads = || [at_sources.threads(), at_sinks.threads()].concat();
    let plan = Engine::plan(lb.graph(&at_sources, &at_sinks), deployment).unwrap();
    let (mut loads, mut meter) = (Vec::new(), LoadMeter::default());
    let report = plan.idle(Idle::Spin).ring_capacity(64).unwrap().run(|control| {
        let mut turn = |everything: &mut Option<Everything<'_>>| {
            let begin = Instant::now();
            assert_eq!(control.wait_for(Duration::from_millis(5)), Waited::Elapsed);
            let passed_ns = begin.elapsed().as_nanos() as u64;
            loads = control.load();
            let read = meter.read(&loads, passed_ns, |_| 1.0);
            assert_eq!(read.len(), deployment.core_count());
            probes.turn();
            shared.turn();
            everything.iter_mut().for_each(|it| it.turn(control));
            shared.is_complete()
        };
        std::thread::scope(|scope| {
            let mut everything = kind.has_everything.then(|| Everything::begin(control, scope));
            let mut is_complete = false;
            while threads().len() < deployment.core_count() || !is_complete {
                is_complete = turn(&mut everything);
            }
            everything.into_iter().for_each(|it| it.end(control, WATCHED_SENT_COUNT));
        });
    });
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    for thread in threads() {
        assert!(thread.is_complete && thread.allocations.is_zero(), "{thread:?}");
    }
    assert_every_path(&report, &lb, deployment);
    probes.check();
    shared.check();
    // Turns were timed meanwhile, including place by place.
    for core in loads {
        assert!(core.timed.busy_count > 10 && core.timed.by_place_packets > 0, "{core:?}");
    }
}

/// Each path was taken by thousands of packets, in each part of the run: the frames repeat.
fn assert_every_path(report: &Report, lb: &Lb, deployment: Deployment) {
    // These need an empty pool, an operator, or ports with addresses or sides.
    let elsewhere = ["no_mbuf", "flushed", "not_for_us", "tunnel_from_clients"];
    for reason in BalanceDrop::NAMES.iter().filter(|reason| !elsewhere.contains(reason)) {
        let count = report.dropped.get(*reason).copied().unwrap_or_default();
        assert!(count > 5000, "{reason}: {count}: {report}");
    }
    let mut others = vec!["no_outlet", "tx_full"];
    others.extend((deployment.core_count() > 1).then_some("ring_full"));
    for reason in others {
        assert!(report.dropped.get(reason).is_some_and(|&count| count > 100), "{reason}: {report}");
    }
    assert!(report.created > 10_000, "{report}");
    let counts = &lb.counts[0];
    let tunnels = counts.unknown_tunnel_sources();
    let dropped = report.dropped["unknown_tunnel_source"];
    assert_eq!(tunnels, Some((dropped, [10, 7, 7, 7].into())));
    let (admitted, stateless) = (counts.admitted.count(), counts.stateless.count());
    assert!(
        admitted > 50_000 && stateless == 0,
        "{admitted} new flows, {stateless} not remembered"
    );
    assert!(counts.to_clients.count() > 5000 && counts.answered.count() > 5000);
}

/// The system calls of each thread while it was watched, by name; `None` if they can't be counted,
/// and in the traced copy itself.
fn calls(test_name: &str, deployment: Deployment, kind: Kind) -> Option<Vec<(String, u64)>> {
    let cpu_count = std::thread::available_parallelism().map_or(1, usize::from);
    if cpu_count < deployment.core_count() {
        // Cores that share a CPU yield to each other with a system call.
        println!("skipped: {deployment} needs as many CPUs, here are {cpu_count}");
        return None;
    }
    alone(|| match traced(test_name, || run(deployment, kind)) {
        Traced::InCopy => None,
        Traced::Unavailable(why) => {
            println!("skipped the count of system calls: {why}");
            run(deployment, kind);
            None
        }
        Traced::Windows(windows) => {
            let calls = windows.into_iter().map(|window| (window.name, window.call_count));
            let mut calls = calls.collect::<Vec<_>>();
            calls.sort_unstable();
            Some(calls)
        }
    })
}

#[test]
fn run_to_completion_is_steady() {
    let deployment = Deployment::run_to_completion(1);
    let Some(calls) = calls("run_to_completion_is_steady", deployment, Kind::default()) else {
        return;
    };
    assert_eq!(calls, [("group 0".to_owned(), 0)]);
}

#[test]
fn a_pipeline_is_steady() {
    let deployment = Deployment::pipeline([1, 1]);
    let Some(calls) = calls("a_pipeline_is_steady", deployment, Kind::default()) else { return };
    assert_eq!(calls, ["group 0", "group 1"].map(|name| (name.to_owned(), 0)));
}

#[test]
fn run_to_completion_is_steady_with_everything_on() {
    let (deployment, kind) =
        (Deployment::run_to_completion(1), Kind { has_everything: true, ..Kind::default() });
    let name = "run_to_completion_is_steady_with_everything_on";
    let Some(calls) = calls(name, deployment, kind) else { return };
    assert_eq!(calls, [("group 0".to_owned(), 0)]);
}

#[test]
fn a_pipeline_is_steady_with_everything_on() {
    let (deployment, kind) =
        (Deployment::pipeline([1, 1]), Kind { has_everything: true, ..Kind::default() });
    let Some(calls) = calls("a_pipeline_is_steady_with_everything_on", deployment, kind) else {
        return;
    };
    assert_eq!(calls, ["group 0", "group 1"].map(|name| (name.to_owned(), 0)));
}

#[test]
fn a_stage_that_yields_now_and_then_is_seen() {
    let deployment = Deployment::run_to_completion(1);
    let kind = Kind { yields: true, ..Kind::default() };
    let Some(calls) = calls("a_stage_that_yields_now_and_then_is_seen", deployment, kind) else {
        return;
    };
    assert!(calls.iter().all(|(_, count)| (1..20).contains(count)), "{calls:?}");
}
