//! The program: opens the device, runs the graph, prints what passes.

use crate::cli::Cli;
use crate::delivery::Counts;
use crate::graph::graph;
use crate::output::{Output, Totals};
use crate::rate::Passed;
use hotloop::dpdk::{self, PortStats};
use hotloop::engine::RunError;
use hotloop::prelude::*;
use hotloop_ops::Failure;
use hotloop_ops::{Operation, Request, Socket};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a line is printed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs the program.
///
/// # Errors
/// What is wrong with the command line, and what kept the run from being whole.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let common = &cli.common;
    let mut socket = common.control.bind("udp-sink")?;
    let eal = if common.eal.is_empty() { Eal::embedded() } else { Eal::with_args(&common.eal) }?;
    let port = common.devices.open(eal, &common.port)?;
    let queue_count = usize::from(common.queues);
    let counts = Arc::new(Counts::new(queue_count));
    let receive = |core: &Core| {
        let queue = port.rx_queue(core)?;
        counts.set_queue(core, queue.index());
        Ok::<_, dpdk::Error>(queue)
    };
    let nf = graph(receive, &cli.udp_port, &counts);
    let plan = Engine::plan(nf, Deployment::run_to_completion(queue_count))
        .map_err(|error| Failure::Input(error.to_string()))?;

    let output = Output::new(common.report);
    eprintln!("udp-sink: {} queues of {}, UDP ports {}", queue_count, port.name(), cli.udp_port);
    let (mut duration, mut printed) = (Duration::ZERO, Ok(()));
    let result = plan.run(|control| {
        let started = Instant::now();
        printed = Watch::new(&cli, &port, &counts, output, started)
            .until_the_end(control, socket.as_mut());
        duration = started.elapsed();
    });
    let totals = Totals { passed: counts.passed(), duration, queues: counts.queues() };
    match &result {
        Ok(report) => output.summary(report, &totals)?,
        Err(error) => error.report().map_or(Ok(()), |report| output.summary(report, &totals))?,
    }
    result.map_err(|error: RunError| Failure::from(error))?;
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Looks at the counters once a second.
struct Watch<'a> {
    cli: &'a Cli,
    port: &'a Port,
    counts: &'a Counts,
    output: Output,
    /// When the last line was printed.
    looked: Instant,
    /// When the next line is due.
    due: Instant,
    queues: Vec<(u64, Passed)>,
    stats: PortStats,
}

impl<'a> Watch<'a> {
    fn new(
        cli: &'a Cli,
        port: &'a Port,
        counts: &'a Counts,
        output: Output,
        started: Instant,
    ) -> Self {
        let (queues, stats) = (counts.queues(), port.stats().unwrap_or_default());
        let (looked, due) = (started, started + INTERVAL);
        Self { cli, port, counts, output, looked, due, queues, stats }
    }

    /// Prints, and answers who asks, until a signal comes, the time is up, the capture ends, or
    /// nobody reads any more.
    fn until_the_end(
        &mut self,
        control: &Control<'_>,
        socket: Option<&mut Socket>,
    ) -> io::Result<()> {
        let mut operation = Operation::new(control, socket, self.cli.common.duration);
        loop {
            let waited = operation.turn(&mut Request::unknown);
            if Instant::now() >= self.due {
                self.due += INTERVAL;
                self.print()?;
            }
            if waited.is_some() {
                return Ok(());
            }
        }
    }

    fn print(&mut self) -> io::Result<()> {
        let (now, queues) = (Instant::now(), self.counts.queues());
        let duration = now - std::mem::replace(&mut self.looked, now);
        let before = std::mem::replace(&mut self.queues, queues);
        let rates =
            |(now, before): (&(u64, Passed), &(u64, Passed))| (now.0, now.1.since(before.1));
        let passed: Vec<_> = self.queues.iter().zip(&before).map(rates).collect();
        let all: Passed = passed.iter().map(|(_, passed)| *passed).sum();
        self.output.line(&all.in_time(duration).to_string())?;
        if self.cli.per_queue {
            for (index, passed) in passed {
                self.output.line(&format!("  queue {index}: {}", passed.in_time(duration)))?;
            }
        }
        self.print_loss()
    }

    /// Prints what the device lost since the last line, if anything.
    fn print_loss(&mut self) -> io::Result<()> {
        let now = self.port.stats().unwrap_or(self.stats);
        let before = std::mem::replace(&mut self.stats, now);
        let missed = |stats: &PortStats| stats.imissed.unwrap_or_default();
        let lost = [
            ("imissed", missed(&now).saturating_sub(missed(&before))),
            ("rx_nombuf", now.rx_nombuf.saturating_sub(before.rx_nombuf)),
            ("rx_malformed", now.rx_malformed.saturating_sub(before.rx_malformed)),
            ("ierrors", now.ierrors.saturating_sub(before.ierrors)),
        ];
        let moved = lost.iter().filter(|(_, count)| *count > 0);
        let moved: Vec<_> = moved.map(|(name, count)| format!("{count} {name}")).collect();
        if moved.is_empty() {
            return Ok(());
        }
        self.output.line(&format!("  lost by the device: {}", moved.join(", ")))
    }
}
