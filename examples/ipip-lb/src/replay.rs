//! `ipip-lb replay`: a capture through the balancer, exactly.
//!
//! The input is split by shard into a capture for each receiving core, as RSS would spread it, such
//! that all packets of a worker come from one core: so each runs at its own time, and in order. One
//! net_pcap port with as many queues stands for all ports of the configuration; it waits where a ring
//! is full, so that nothing is lost. What its TX queues wrote is merged into the output by the time
//! of sending. Packets of one flow keep their order; those of different flows need not.

mod merge;
mod split;

use crate::balance::{Egress, Egresses, Route, SEED};
use crate::capture::Capture;
use crate::cli::{Clock, Replay};
use crate::config::{Config, Side};
use crate::failure::{BadInput, Failure};
use crate::network_function::NetworkFunction;
use crate::outcome::{Outcome, Replayed};
use hotloop::dpdk::{Eal, HEADROOM_BYTES, Port, PortConfig};
use hotloop::engine::{self, Engine, Plan, PlanError, Report, RunError, Shard, Waited, outlets};
use hotloop::packet::classify::classify;
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::seed::Seed;
use hotloop::stage::Error;
use split::{Split, split};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

/// Buffers are at least this large, in bytes, headroom included: the size that DPDK proposes.
const DATA_ROOM_BYTES_MIN: usize = 2048 + HEADROOM_BYTES as usize;

/// Where frames are longer than this, in bytes, rings are kept short, since each packet in them takes
/// a buffer of that size.
const FRAME_BYTES_LONG: usize = 10_000;

/// Runs the capture through the balancer.
///
/// # Errors
/// Something that is wrong with the arguments, the configuration or the capture; a run that fails is
/// told by the outcome.
pub fn replay(args: &Replay) -> Result<Outcome, Failure> {
    let config = args.common.configuration()?;
    let capture = Capture::open(&args.input)?;
    let output = open_output(&args.output, &args.input)?;
    let folder = tempfile::tempdir().map_err(|error| {
        BadInput::file(&std::env::temp_dir(), "TMPDIR", &error, "set it to a folder with room")
    })?;
    let deployment = config.engine.deployment();
    let queue_count = deployment.receiver_count();
    let seed = Seed::new(SEED);
    let split = split(capture, folder.path(), queue_count, |frame| {
        let shard = Shard::from(classify(frame, &seed).shard());
        shard.worker(deployment.worker_count()) % queue_count
    })?;
    let tx_paths: Vec<_> = (0..deployment.worker_count())
        .map(|it| folder.path().join(format!("tx{it}.pcap")))
        .collect();

    let port = open_port(&split, &tx_paths)?;
    let (function, _) = NetworkFunction::new(&config, egresses(&config, port.mac()))
        .map_err(|error| BadInput::new(error.to_string()))?;
    let (run, waited) = run(&function, &config, &port, args.clock, split.longest_bytes)?;
    drop(port);
    let replayed = Replayed {
        frame_count: split.contents.frame_count,
        too_long_count: split.too_long_count,
        cut: split.contents.cut,
        interrupted: waited == Some(Waited::Signal),
    };
    let mut outcome = Outcome::new(run, &function.summary()).replayed(replayed);
    let Some(report) = outcome.report() else { return Ok(outcome) };
    let (received, sent) = (report.received, report.sent);
    let replayable = replayed.frame_count - replayed.too_long_count;
    if !replayed.interrupted && received != replayable {
        outcome
            .add_failure(format!("{received} frames were received of the {replayable} replayed"));
    }
    let unwritable =
        |error: &dyn Display| Failure::Run(format!("{}: --output: {error}", args.output.display()));
    empty(&output).map_err(|error| unwritable(&error))?;
    let merged = merge::merge(&tx_paths, output).map_err(|error| unwritable(&error))?;
    if merged != sent {
        outcome.add_failure(format!("{merged} frames were written of the {sent} sent"));
    }
    Ok(outcome)
}

/// Opens the output for writing, which leaves what it holds until there is something to write.
fn open_output(output: &Path, input: &Path) -> Result<File, BadInput> {
    let same = |other: &Path| other.canonicalize().ok().zip(output.canonicalize().ok());
    if same(input).is_some_and(|(input, output)| input == output) {
        let problem = "is the input too; name another file";
        return Err(BadInput::new(format!("{}: --output: {problem}", output.display())));
    }
    let options = OpenOptions::new().write(true).create(true).truncate(false).open(output);
    options.map_err(|error| {
        BadInput::file(output, "--output", &error, "name a file in a folder that can be written to")
    })
}

/// Takes away what the output holds; pipes and terminals hold nothing.
fn empty(output: &File) -> std::io::Result<()> {
    if output.metadata()?.is_file() { output.set_len(0) } else { Ok(()) }
}

/// The one port that stands for all of the configuration: a capture for each queue.
fn open_port(split: &Split, tx_paths: &[PathBuf]) -> Result<Port, Failure> {
    let mut device = "net_pcap_replay".to_owned();
    for (direction, paths) in [("rx_pcap", split.paths.as_slice()), ("tx_pcap", tx_paths)] {
        for path in paths {
            let path = path.to_str().filter(|path| !path.contains([',', '[', ']', '=']));
            let path = path.ok_or_else(|| {
                let folder = std::env::temp_dir();
                let folder = folder.display();
                BadInput::new(format!("{folder}: TMPDIR: DPDK can't take this name; set another"))
            })?;
            device.push_str(&format!(",{direction}={path}"));
        }
    }
    let data_room_bytes = DATA_ROOM_BYTES_MIN.max(split.longest_bytes + HEADROOM_BYTES as usize);
    // Descriptors of net_pcap hold nothing.
    let config = PortConfig {
        rx_descriptor_count: 64,
        tx_descriptor_count: 64,
        data_room_bytes: data_room_bytes as u16,
        ..PortConfig::default()
    };
    let opened = Eal::embedded_or_current().and_then(|eal| Port::open_with(eal, &device, config));
    opened.map_err(|error| Failure::Run(error.to_string()))
}

/// How packets leave: all by the one port, to the next hops that the configuration has for them.
fn egresses(config: &Config, source: MacAddress) -> Egresses {
    let next_hop = |reaches: fn(Side) -> bool| {
        let port = config.ports.iter().find(|port| reaches(port.side));
        let port = port.expect("a configuration has a port towards each side");
        Egress { route: Route(0), source, destination: MacAddress::new(port.next_hop_mac) }
    };
    Egresses { clients: next_hop(Side::has_clients), backends: next_hop(Side::has_backends) }
}

/// What came of a run, and why it was waited for no longer.
type Ran = (Result<Report, RunError>, Option<Waited>);

fn run(
    function: &NetworkFunction,
    config: &Config,
    port: &Port,
    clock: Clock,
    longest_bytes: usize,
) -> Result<Ran, Failure> {
    let graph = function.graph(
        |core| Ok(port.rx_queue(core)?),
        |core| Ok::<_, Error>(outlets([(Route(0), port.tx_queue(core)?)])),
    );
    let plan = Engine::plan(graph, config.engine.deployment());
    let plan = plan.and_then(|plan| paced(plan, clock, longest_bytes));
    let plan = plan.map_err(|error| BadInput::new(format!("--workers, --dispatchers: {error}")))?;
    let mut waited = None;
    let run = plan.run(|control| waited = Some(control.wait_for_signal()));
    Ok((run, waited))
}

fn paced<G: engine::Graph>(
    plan: Plan<G>,
    clock: Clock,
    longest_bytes: usize,
) -> Result<Plan<G>, PlanError> {
    let plan = plan.clock(match clock {
        Clock::Capture => engine::Clock::Capture,
        Clock::Wall => engine::Clock::Wall,
    });
    if longest_bytes > FRAME_BYTES_LONG { plan.ring_capacity(64) } else { Ok(plan) }
}
