//! The program: opens the device, runs the graph, prints what passes.

use crate::cli::Cli;
use crate::delivery::Counts;
use crate::graph::graph;
use crate::output::{Output, Totals};
use crate::rate::Passed;
use hotloop::dpdk::{self, PortStats};
use hotloop::engine::RunError;
use hotloop::prelude::*;
use hotloop_ops::{CONTROL, Failure, Operation, Request, Socket};
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
    let mut socket = common.run.begin("udp-sink")?;
    let port = common.run.devices.open(common.run.eal()?, &common.port)?;
    let queue_count = usize::from(common.queues);
    let counts = Arc::new(Counts::new(queue_count));
    let receive = |core: &Core| {
        let queue = port.rx_queue(core)?;
        counts.set_queue(core, queue.index());
        Ok::<_, dpdk::Error>(queue)
    };
    let nf = graph(receive, &cli.udp_port, &counts);
    let plan = common.run.plan(nf, Deployment::run_to_completion(queue_count))?;

    let output = Output::start(common.run.report)?;
    tracing::info!("{}: RX queues {queue_count}, UDP ports {}", port.name(), cli.udp_port);
    let mut duration = Duration::ZERO;
    let result = hotloop_ops::run(plan, CONTROL, |control| {
        let started = Instant::now();
        Watch::new(&cli, &port, &counts, &output, started).until_the_end(control, socket.as_mut());
        duration = started.elapsed();
    });
    let totals = Totals { passed: counts.passed(), duration, queues: counts.queues() };
    let printed = match &result {
        Ok(report) => output.summary(report, &totals),
        Err(error) => error.report().map_or(Ok(()), |report| output.summary(report, &totals)),
    };
    result.map_err(|error: RunError| Failure::from(error))?;
    Ok(printed?)
}

/// Looks at the counters once a second.
struct Watch<'a> {
    cli: &'a Cli,
    port: &'a Port,
    counts: &'a Counts,
    output: &'a Output,
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
        output: &'a Output,
        started: Instant,
    ) -> Self {
        let (queues, stats) = (counts.queues(), port.stats().unwrap_or_default());
        let (looked, due) = (started, started + INTERVAL);
        Self { cli, port, counts, output, looked, due, queues, stats }
    }

    /// Prints, and answers clients, until a signal comes, the time is up, the capture ends, or
    /// the reader of the output is gone.
    fn until_the_end(&mut self, control: &Control<'_>, socket: Option<&mut Socket>) {
        let mut operation = Operation::new(control, socket, self.cli.common.run.duration);
        loop {
            let waited = operation.turn(&mut Request::unknown);
            if Instant::now() >= self.due {
                self.due += INTERVAL;
                self.print();
            }
            if waited.is_some() || self.output.is_unread() {
                return;
            }
        }
    }

    fn print(&mut self) {
        let (now, queues) = (Instant::now(), self.counts.queues());
        let duration = now - std::mem::replace(&mut self.looked, now);
        let before = std::mem::replace(&mut self.queues, queues);
        let rates =
            |(now, before): (&(u64, Passed), &(u64, Passed))| (now.0, now.1.since(before.1));
        let passed: Vec<_> = self.queues.iter().zip(&before).map(rates).collect();
        let all: Passed = passed.iter().map(|(_, passed)| *passed).sum();
        let mut lines = vec![all.in_time(duration).to_string()];
        if self.cli.per_queue {
            let line = |(index, passed): (u64, Passed)| {
                format!("  queue {index}: {}", passed.in_time(duration))
            };
            lines.extend(passed.into_iter().map(line));
        }
        lines.extend(self.loss());
        self.output.lines(&lines);
    }

    /// What the device lost since the last line, if anything.
    fn loss(&mut self) -> Option<String> {
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
        (!moved.is_empty()).then(|| format!("  lost by the device: {}", moved.join(", ")))
    }
}
