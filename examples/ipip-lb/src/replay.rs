//! `ipip-lb replay`: a capture through the balancer, exactly.
//!
//! The input is split by shard into a capture for each receiving core, as RSS would spread it, such
//! that all packets of a worker come from one core: so each worker runs at its own time, and in
//! order. Net_pcap ports, one for each core's files, replace all ports of the configuration; they
//! wait if a ring is full, so that nothing is lost. The packets sent by workers are merged into the
//! output by the time of sending. Packets of one flow keep their order; packets of different flows
//! need not. If workers share limits, connections take from these in the order of the capture:
//! [`hotloop_balancer::capture_order`].

mod devices;
mod split;

use crate::cli::{Clock, Replay};
use crate::config::Config;
use crate::dropped::Dropped;
use crate::failure::{BadInput, Failure};
use crate::network_function::NetworkFunction;
use crate::outcome::{Outcome, Replayed};
use devices::Devices;
use hotloop::engine::{self, Engine, Report, RunError, Shard, Waited, outlets};
use hotloop::packet::classify::{Depth, Layout};
use hotloop::packet::ethernet::{MacAddress, Station};
use hotloop::stage::{Error, Instant};
use hotloop_balancer::balance::{Egress, Egresses, Route};
use hotloop_balancer::capture_order::CaptureOrder;
use hotloop_balancer::classify::shard;
use hotloop_balancer::hashes::Hashes;
use hotloop_balancer::spec::Side;
use hotloop_capture::{Capture, merge};
use hotloop_ops::Watching;
use split::split;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Runs the capture through the balancer.
///
/// # Errors
/// If the arguments, the configuration or the capture are invalid; the outcome reports a run that
/// fails.
pub fn replay(args: &Replay) -> Result<Outcome, Failure> {
    let config = args.common.source.configuration()?;
    let capture = Capture::open(&args.input).map_err(BadInput::from)?;
    let output = open_output(&args.output, &args.input)?;
    let deployment = config.engine.deployment();
    let queue_count = deployment.cores_in(0);
    let seed = Hashes::new(config.balancer.hash_key).seed();
    let worker_count = deployment.cores_in(1);
    let mut workers = Vec::new();
    let split = split(capture, queue_count, |frame| {
        let layout = Layout::at(frame, frame.len(), Depth::Innermost, &Station::ANY);
        let worker = Shard::from(shard(frame, layout, &seed)).worker(worker_count);
        workers.push(worker as u8);
        worker % queue_count
    })?;
    let order = Arc::new(CaptureOrder::new(workers, worker_count));
    let ring_capacity = devices::ring_capacity(deployment, split.longest_bytes);
    let devices = Devices::open(&split, deployment)?;
    // With wall-clock time, workers have one time, and so do the buckets of limits.
    let followed = (args.clock == Clock::Capture && worker_count > 1).then_some(&order);
    let egresses = egresses(&config, devices.mac());
    let function = NetworkFunction::replaying(&config, egresses, followed)
        .map_err(|error| BadInput::new(error.to_string()))?;
    let (run, waited) = run(&function, &config, &devices, &order, args.clock, ring_capacity)?;
    Dropped::default().report(function.summary().workers, Instant::from_ns(0), true);
    let sent_files = devices.close();
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
    let unwritable = |error: &dyn Display| {
        Failure::Run(format!(
            "{}: --output: {error}; name a file where there is room",
            args.output.display()
        ))
    };
    empty(&output).map_err(|error| unwritable(&error))?;
    let sent_captures = sent_files.into_iter().map(reread).collect::<Result<_, _>>();
    let merged = sent_captures.and_then(|captures| merge(captures, output));
    let merged = merged.map_err(|error| unwritable(&error))?;
    if merged != sent {
        outcome.add_failure(format!("{merged} frames were written of the {sent} sent"));
    }
    Ok(outcome)
}

/// Opens the output for writing. Its old content stays until there is something to write.
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

/// Truncates the output; pipes and terminals have no content.
fn empty(output: &File) -> io::Result<()> {
    if output.metadata()?.is_file() { output.set_len(0) } else { Ok(()) }
}

/// A capture that a port has written.
fn reread(mut file: File) -> io::Result<Capture> {
    file.rewind()?;
    Capture::from_file(Path::new("what a port sent"), file).map_err(io::Error::other)
}

/// How packets leave: by the one port of each worker, to the next hops in the configuration.
fn egresses(config: &Config, source: MacAddress) -> Egresses {
    let next_hop = |reaches: fn(Side) -> bool| {
        let port = config.ports.iter().find(|port| reaches(port.side));
        let port = port.expect("a configuration has a port towards each side");
        Egress { route: Route(0), source, destination: port.next_hop.mac() }
    };
    Egresses { clients: next_hop(Side::has_clients), backends: next_hop(Side::has_backends) }
}

/// The result of a run, and the reason that the wait for it ended.
type Ran = (Result<Report, RunError>, Option<Waited>);

fn run(
    function: &NetworkFunction,
    config: &Config,
    devices: &Devices,
    order: &CaptureOrder,
    clock: Clock,
    ring_capacity: usize,
) -> Result<Ran, Failure> {
    let graph = function.graph(
        |core| Ok(devices.port(core).rx_queue(core)?),
        |core| Ok::<_, Error>(outlets([(Route(0), devices.port(core).tx_queue(core)?)])),
    );
    let plan = Engine::plan(graph, config.engine.deployment());
    let plan = plan.map(|plan| {
        plan.clock(match clock {
            Clock::Capture => engine::Clock::Capture,
            Clock::Wall => engine::Clock::Wall,
        })
    });
    let plan = plan.and_then(|plan| plan.ring_capacity(ring_capacity));
    let plan = plan.map_err(|error| BadInput::new(format!("--workers, --dispatchers: {error}")))?;
    let mut waited = None;
    let none = hotloop_privileges::Capabilities::empty();
    let mut watching = Watching::default();
    if function.is_in_order() {
        // A worker may wait within a burst, for as long as others have work to do.
        watching = watching.stall_max(Duration::ZERO);
    }
    let run = hotloop_ops::run(plan, none, watching, |control| {
        let ended = control.wait_for_signal();
        if ended != Waited::Finished {
            order.give_up();
        }
        waited = Some(ended);
    });
    Ok((run, waited))
}
