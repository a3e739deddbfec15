//! The load balancer under everything at once, for a long time: `soak PACKETS`.
//!
//! Both deployments, half of the packets each: connections that must survive, attacks
//! ([`traffic`]), and an operator who reloads, queries and drains while health checks flap
//! ([`trouble`]). Then, as root, the same trouble for the program, on a port of the kernel and
//! beside a TAP interface ([`live`]). It ends with one line, and with exit code 1 if a packet is
//! unaccounted for or an mbuf is not back in its pool.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a tool of developers")]

mod live;
mod traffic;
mod trouble;

use hotloop::dpdk::{Eal, Mempool, MempoolConfig, lcore};
use hotloop::engine::{Control, Deployment, Engine, Report, outlets};
use hotloop::packet::ethernet::MacAddress;
use hotloop_balancer::balance::{Egress, Egresses, Route};
use hotloop_ops::{Operation, Reply, Request, Socket, Steer};
use ipip_lb::control;
use ipip_lb::network_function::NetworkFunction;
use ipip_lb::source::ConfigSource;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use traffic::{Discard, Gauges, Traffic};
use trouble::{Setting, Trouble};

type Failed = Box<dyn std::error::Error>;

/// Interval between progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Each runs half of the packets.
const DEPLOYMENTS: [Deployment; 2] =
    [Deployment::run_to_completion(1), Deployment::pipeline([1, 1])];

/// The results of a run.
struct Run {
    packet_count: u64,
    unaccounted_count: u64,
    memory_bytes: [u64; 2],
    worst_burst: Duration,
}

fn main() -> ExitCode {
    match soak() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns the number of packets unaccounted for.
fn soak() -> Result<u64, Failed> {
    let packets = std::env::args().nth(1).and_then(|text| text.parse::<u64>().ok());
    let packets = packets.ok_or("write a number of packets, such as 1000000")?;
    let eal = Eal::embedded()?;
    let mut runs = Vec::new();
    for deployment in DEPLOYMENTS {
        runs.push(run(eal, deployment, packets / DEPLOYMENTS.len() as u64)?);
    }
    let live_unaccounted = match live::wire() {
        Ok(wire) => live::run(&wire, packets)?,
        Err(why) => {
            println!("soak: left out: on a wire: {why}");
            0
        }
    };
    let unaccounted = runs.iter().map(|run| run.unaccounted_count).sum::<u64>() + live_unaccounted;
    let [start, end] = [runs[0].memory_bytes[0], runs[runs.len() - 1].memory_bytes[1]];
    println!(
        "soak: {} packets, {unaccounted} unaccounted, memory {} MiB at start and {} MiB at end, worst \
         burst {:?}",
        runs.iter().map(|run| run.packet_count).sum::<u64>(),
        start >> 20,
        end >> 20,
        runs.iter().map(|run| run.worst_burst).max().unwrap_or_default(),
    );
    Ok(unaccounted)
}

fn run(eal: Eal, deployment: Deployment, packets: u64) -> Result<Run, Failed> {
    let folder = tempfile::tempdir()?;
    let source = ConfigSource::file(folder.path().join("lb.toml"));
    let socket_path = folder.path().join("lb.sock");
    let setting = Setting::new(source.config.clone(), "device = \"net_null0\"")?;
    let config = source.configuration()?;
    let mempool = Mempool::new(eal, &MempoolConfig::default())?;
    let (function, handles) =
        NetworkFunction::new(&config, egresses()).map_err(|error| error.to_string())?;
    let mut socket = Socket::bind(&socket_path)?;
    let mut operator = control::Control::start(source.clone(), config, handles)
        .map_err(|error| error.to_string())?;
    let gauges = Gauges::default();
    let graph = function.graph(
        |core| {
            core.set_lcore(lcore::register(eal)?);
            Ok(Traffic::new(mempool.clone(), &gauges, packets))
        },
        |core| {
            core.set_lcore(lcore::register(eal)?);
            Ok(outlets([(Route(0), Discard)]))
        },
    );
    let plan = Engine::plan(graph, deployment)?;
    let mut memory = [0; 2];
    let mut trouble = None;
    let ran = plan.run(|control| {
        let started = Trouble::start(&setting, socket_path.clone());
        let mut operation = |steer: &mut Soaking<'_>| {
            let operation = Operation { socket: Some(&mut socket), ..Operation::default() };
            operation.run(control, steer);
        };
        let progress = Progress::new(deployment, packets);
        let mut soaking =
            Soaking { operator: &mut operator, progress, gauges: &gauges, warm_bytes: 0 };
        operation(&mut soaking);
        memory = [soaking.warm_bytes, resident_bytes()];
        if memory[0] == 0 {
            memory[0] = memory[1];
        }
        started.stop();
        while !started.has_stopped() {
            operation(&mut soaking);
        }
        trouble = Some(started.finish());
    });
    if let Some(trouble) = trouble {
        eprintln!("soak: {deployment}: {}", trouble?);
    }
    let (report, failure) = match ran {
        Ok(report) => (report, None),
        Err(error) => (error.report().ok_or_else(|| error.to_string())?.clone(), Some(error)),
    };
    eprintln!("{report}");
    let unaccounted_count = unaccounted(&report, &gauges, &mempool);
    if let Some(failure) = failure {
        eprintln!("soak: {deployment}: {failure}");
    }
    let worst_burst = Duration::from_nanos(gauges.worst_burst_ns.load(Relaxed));
    Ok(Run { packet_count: report.received, unaccounted_count, memory_bytes: memory, worst_burst })
}

/// The operator's part, and the messages of this tool.
struct Soaking<'a> {
    operator: &'a mut control::Control,
    progress: Progress,
    gauges: &'a Gauges,
    /// The memory in use once all is warm; 0 before.
    warm_bytes: u64,
}

impl Steer for Soaking<'_> {
    fn answer(&mut self, control: &Control<'_>, request: &Request) -> Result<Reply, String> {
        self.operator.answer(control, request)
    }

    fn turn(&mut self, control: &Control<'_>) {
        self.operator.turn(control);
        self.progress.show(control);
        if self.warm_bytes == 0 && self.gauges.is_warm() {
            self.warm_bytes = resident_bytes();
        }
    }
}

/// Packets from the source that are missing in the report, packets that the report's sums don't
/// explain, and mbufs that are not back.
fn unaccounted(report: &Report, gauges: &Gauges, mempool: &Mempool) -> u64 {
    let made = gauges.made_count.load(Relaxed);
    let (entered, left) = (report.received + report.created, report.sent + report.dropped_sum());
    let home = mempool.report();
    let away =
        if home.is_whole() { 0 } else { 1.max((home.expected_count - home.seen_count).into()) };
    made.abs_diff(report.received) + entered.abs_diff(left) + away
}

fn egresses() -> Egresses {
    let egress = Egress {
        route: Route(0),
        source: MacAddress::new([2, 0, 0, 0, 9, 1]),
        destination: MacAddress::new([2, 0, 0, 0, 9, 2]),
    };
    Egresses { clients: egress, backends: egress }
}

/// The process's memory that is in RAM, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim_end_matches(" kB").trim().parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

/// Prints the run's progress now and then.
struct Progress {
    deployment: Deployment,
    packets: u64,
    next: Instant,
}

impl Progress {
    fn new(deployment: Deployment, packets: u64) -> Self {
        Self { deployment, packets, next: Instant::now() + PROGRESS_INTERVAL }
    }

    fn show(&mut self, control: &Control<'_>) {
        if Instant::now() < self.next {
            return;
        }
        self.next += PROGRESS_INTERVAL;
        let received = control.snapshot().received;
        let percent = received * 100 / self.packets.max(1);
        eprintln!("soak: {}: {received} packets, {percent} %", self.deployment);
    }
}
