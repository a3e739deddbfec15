//! Reloads under full load, on real threads: no packet is lost, and no connection moves
//! while its backend stays.
//!
//! Each configuration has its own tunnel source, so that every outgoing packet shows which
//! configuration balanced it.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::deployed::{egresses, preamble, service};
use hotloop::engine::{Deployment, Engine, Report, Waited, outlets, sources};
use hotloop::packet::PacketBuf;
use hotloop::packet::build::tcp;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::stage::{Burst, Error, Sink};
use hotloop::testing::{Frame, MemoryPort, PacketPool, PooledPacket, PortConfig, Rng};
use hotloop_balancer::balance::Route;
use hotloop_balancer::services::Standing;
use ipip_lb::config::Config;
use ipip_lb::network_function::{ControlHandles, NetworkFunction};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const RELOADS: usize = 100;

/// Minimum number of packets that leave between two reloads, of all workers together.
const PACKETS_BETWEEN: u64 = 3_000;

/// One service for each scheduler.
const SCHEDULERS: [&str; 4] = ["maglev", "round-robin", "least-connections", "source"];

/// Backends of each service are numbered from 0.
const BACKENDS: u32 = 16;

/// Number of long-lived flows of each queue and service.
const FLOWS: u32 = 500;

/// Number of packets without a service in each round of a queue: they are dropped by name, with
/// reloads and without.
const STRAYS: u32 = 10;

/// Offsets of addresses and ports in a frame, and in the inner packet of a tunnel, in bytes.
const SOURCE: std::ops::Range<usize> = 26..30;
const DESTINATION: std::ops::Range<usize> = 30..34;
const SOURCE_PORT: std::ops::Range<usize> = 34..36;
const DESTINATION_PORT: std::ops::Range<usize> = 36..38;
const FLAGS: usize = 47;
const INNER: usize = 20;

/// The configurations in sequence, and the backends of each.
struct Versions {
    configs: Vec<Config>,
    /// For each version and service: a bit for each backend.
    present: Vec<[u32; 4]>,
}

impl Versions {
    fn new(count: usize, seed: u64) -> Self {
        let mut rng = Rng::seeded(seed);
        let mut versions = Self { configs: Vec::new(), present: Vec::new() };
        for version in 0..count {
            let present = [(); 4].map(|()| (rng.next_u64() | rng.next_u64()) as u32 & 0xFFFF | 1);
            let text = Self::text(version, present, &mut rng);
            versions.configs.push(Config::parse("lb.toml", &text).unwrap());
            versions.present.push(present);
        }
        versions
    }

    fn text(version: usize, present: [u32; 4], rng: &mut Rng) -> String {
        let mut text = preamble(&format!(
            "source_v4 = \"10.255.{}.{}\"\nconnections_max = 262144",
            version / 200,
            version % 200 + 1
        ));
        for (index, scheduler) in SCHEDULERS.iter().enumerate() {
            let backends = (0..BACKENDS).filter(|backend| present[index] & 1 << backend != 0);
            // The first backend stays, and always takes connections; others may take none at
            // present.
            let backends = backends.map(|backend| {
                let weight = if backend == 0 { 1 } else { rng.below(4) };
                format!("10.0.{index}.{}*{weight}", backend + 1)
            });
            let backends: Vec<_> = backends.collect();
            let backends: Vec<_> = backends.iter().map(String::as_str).collect();
            let keys = format!("scheduler = \"{scheduler}\"");
            let what = format!("203.0.113.{} tcp 80", index + 1);
            text += &service(scheduler, &what, &keys, &backends);
        }
        text
    }

    /// Whether a backend of a service was present in all versions from one to another.
    fn has_stayed(&self, service: usize, backend: u32, versions: (usize, usize)) -> bool {
        let mut all = self.present[versions.0..=versions.1].iter();
        all.all(|present| present[service] & 1 << backend != 0)
    }
}

/// A queue's traffic: in each round, each of its flows has a packet, with new flows and strays
/// between them. The first round consists of SYNs.
fn traffic(queue: u8, stop: Arc<AtomicBool>) -> impl FnMut(u64, &mut Frame) -> bool + Send {
    let template = tcp().from("100.64.0.1:1").to("203.0.113.1:80").build();
    let round = u64::from(FLOWS * 4 + STRAYS);
    let mut stray_count = 0_u16;
    move |number, frame| {
        frame.bytes.extend_from_slice(&template);
        let (turn, place) = (number / round, (number % round) as u32);
        if place == 0 && stop.load(Relaxed) {
            return false;
        }
        if place >= FLOWS * 4 {
            stray_count = stray_count.wrapping_add(1);
            frame.bytes[SOURCE_PORT].copy_from_slice(&stray_count.to_be_bytes());
            frame.bytes[DESTINATION_PORT].copy_from_slice(&81_u16.to_be_bytes());
            return true;
        }
        let (flow, service) = (place / 4, place % 4);
        let [.., high, low] = flow.to_be_bytes();
        // One in sixteen packets belongs to a flow with no other packet.
        let is_new = turn > 0 && place % 16 == 7;
        let [.., turn_high, turn_low] = turn.to_be_bytes();
        let port = if is_new { [turn_high | 0x80, turn_low] } else { [1, 0] };
        frame.bytes[SOURCE].copy_from_slice(&[100, 64 + queue, high, low]);
        frame.bytes[SOURCE_PORT].copy_from_slice(&port);
        frame.bytes[DESTINATION].copy_from_slice(&[203, 0, 113, service as u8 + 1]);
        frame.bytes[FLAGS] = if turn == 0 || is_new { SYN } else { ACK };
        true
    }
}

/// Checks all packets that leave one core.
struct Check<'a> {
    versions: &'a Versions,
    progress: &'a Progress,
    /// For each long-lived flow, by queue, flow and service: version and backend of its last
    /// packet.
    last: Vec<Option<(usize, u32)>>,
    version: usize,
    moved_count: u64,
}

/// The checks' progress, for control.
#[derive(Default)]
struct Progress {
    checked: AtomicU64,
    moved: AtomicU64,
}

impl Check<'_> {
    fn packet(&mut self, frame: &[u8]) {
        let [_, _, high, low] = frame[SOURCE] else { unreachable!() };
        let version = usize::from(high) * 200 + usize::from(low) - 1;
        let [10, 0, service, backend] = frame[DESTINATION] else { panic!("{frame:02x?}") };
        let (service, backend) = (usize::from(service), u32::from(backend) - 1);
        assert!(version >= self.version, "{version} after {}", self.version);
        self.version = version;
        assert!(self.versions.has_stayed(service, backend, (version, version)), "in {version}");
        let inner = &frame[INNER..];
        assert_eq!(usize::from(inner[DESTINATION][3]) - 1, service);
        if inner[SOURCE_PORT] != [1, 0] {
            return;
        }
        let [_, queue, high, low] = inner[SOURCE] else { unreachable!() };
        let flow = usize::from(queue - 64) << 16 | usize::from(high) << 8 | usize::from(low);
        let last = self.last[flow * 4 + service].replace((version, backend));
        if let Some((last_version, last_backend)) = last
            && last_backend != backend
        {
            let stayed = self.versions.has_stayed(service, last_backend, (last_version, version));
            assert!(!stayed, "flow {flow} of {service} moved from {last_backend} to {backend}");
            self.moved_count += 1;
        }
    }
}

impl Sink for Check<'_> {
    type Item = PooledPacket;

    fn send(&mut self, burst: &mut Burst<PooledPacket>) -> usize {
        let count = burst.len();
        while let Some(packet) = burst.pop() {
            self.packet(packet.data());
        }
        self.progress.checked.fetch_add(count as u64, Relaxed);
        self.progress.moved.store(self.progress.moved.load(Relaxed).max(self.moved_count), Relaxed);
        count
    }
}

/// Switches to one version after the other, each after all workers use the previous one and packets
/// have left.
fn reload_all(
    control: &hotloop::engine::Control<'_>,
    handles: &mut ControlHandles,
    versions: &Versions,
    progress: &Progress,
) {
    let wait = || assert_eq!(control.wait_for(Duration::from_micros(200)), Waited::Elapsed);
    let mut checked = 0;
    let mut wait_for_packets = || {
        while progress.checked.load(Relaxed) < checked + PACKETS_BETWEEN {
            wait();
        }
        checked = progress.checked.load(Relaxed);
    };
    wait_for_packets();
    for config in &versions.configs[1..] {
        let services = handles.builder.build(&config.spec(), &Standing::default()).unwrap();
        handles.publisher.publish(Arc::new(services));
        while !handles.publisher.collect() {
            wait();
        }
        for slot in handles.builder.settle() {
            handles.counts.iter().for_each(|counts| counts.clear(slot as usize));
        }
        wait_for_packets();
    }
}

/// Runs the traffic until the last version is in force, and then ends the run.
fn run(deployment: Deployment, versions: &Versions) -> Report {
    let mut config = versions.configs[0].clone();
    config.engine.workers = deployment.cores_in(1);
    let (function, mut handles) = NetworkFunction::new(&config, egresses()).unwrap();
    let port = MemoryPort::with_config(
        "clients",
        PortConfig {
            pool: PacketPool::of(8192),
            lossless: true,
            tx_kept_count: 0,
            records_sent: false,
            ..PortConfig::default()
        },
    );
    let stop = Arc::new(AtomicBool::new(false));
    for queue in 0..deployment.cores_in(0) {
        port.generate(queue, traffic(queue as u8, Arc::clone(&stop)));
    }
    let progress = Progress::default();
    let graph = function.graph(
        |core| Ok::<_, Error>(sources([port.rx_queue(core)?])),
        |_| {
            let last = vec![None; (2 << 16) * 4];
            let check = Check { versions, progress: &progress, last, version: 0, moved_count: 0 };
            Ok::<_, Error>(outlets::<Route, _>([(Route(1), check)]))
        },
    );
    let plan = Engine::plan(graph, deployment).unwrap();
    let report = plan.run(|control| {
        reload_all(control, &mut handles, versions, &progress);
        if versions.configs.len() == 1 {
            while progress.checked.load(Relaxed) < PACKETS_BETWEEN * RELOADS as u64 {
                assert_eq!(control.wait_for(Duration::from_millis(1)), Waited::Elapsed);
            }
        }
        stop.store(true, Relaxed);
        control.wait_until_finished()
    });
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.is_whole(), "{report}");
    assert_eq!(report.received, report.sent + report.dropped_sum(), "{report}");
    // Whole rounds came, and the strays of each round were dropped.
    let round = u64::from(FLOWS * 4 + STRAYS);
    let strays = report.received / round * u64::from(STRAYS);
    assert_eq!((report.received % round, report.dropped_sum()), (0, strays), "{report}");
    assert_eq!(report.dropped.get("no_service"), Some(&strays), "{report}");
    let moved = progress.moved.load(Relaxed);
    println!(
        "{deployment}: {} packets, {} reloads, {moved} connections went to others on a core",
        report.received,
        versions.configs.len() - 1
    );
    assert_eq!(moved > 0, versions.configs.len() > 1);
    report
}

/// The share of dropped packets, by reason: all of one kind.
fn dropped_of_a_thousand_rounds(report: &Report) -> Vec<(String, u64)> {
    let round = u64::from(FLOWS * 4 + STRAYS);
    let share = |count: u64| count * 1000 / (report.received / round);
    report.dropped.iter().map(|(reason, count)| (reason.clone(), share(*count))).collect()
}

fn reloads_lose_and_move_nothing(deployment: Deployment) {
    let without = run(deployment, &Versions::new(1, 1));
    let with = run(deployment, &Versions::new(1 + RELOADS, 2));
    assert_eq!(dropped_of_a_thousand_rounds(&with), dropped_of_a_thousand_rounds(&without));
}

#[test]
fn a_hundred_reloads_lose_and_move_nothing_run_to_completion() {
    reloads_lose_and_move_nothing(Deployment::run_to_completion(2));
}

#[test]
fn a_hundred_reloads_lose_and_move_nothing_in_a_pipeline() {
    reloads_lose_and_move_nothing(Deployment::pipeline([1, 1]));
}

#[test]
fn a_hundred_reloads_lose_and_move_nothing_in_a_pipeline_of_two_and_two() {
    reloads_lose_and_move_nothing(Deployment::pipeline([2, 2]));
}
