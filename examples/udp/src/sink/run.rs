//! The program: opens the device, runs the graph, prints rates.

use crate::arguments::Way;
use crate::inspect::Findings;
use crate::output::{Output, Totals, lost_text};
use crate::rate::Passed;
use crate::running::{self, LINGER, Lines};
use crate::sink::cli::Cli;
use crate::sink::delivery::Counts;
use crate::sink::graph::{graph, of_sockets, sharded};
use crate::sink::sockets::Sockets;
use crate::sink::spread;
use crate::sink::with_source::{self, Loopback};
use crate::source::graph::Steering;
use crate::source::pool::Pool;
use hotloop::dpdk::{self, RssFields};
use hotloop::engine::{Graph, Placement};
use hotloop::prelude::*;
use hotloop_ops::{Failure, Metrics, Operation, Socket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs the program.
///
/// # Errors
/// An error in the command line, or the reason why the run was not whole.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let (way, addresses) = (cli.way()?, cli.listen_on()?);
    let common = &cli.common;
    let placement = common.placement(way, cli.core_count())?;
    let socket = common.run.begin("udp-sink")?;
    let counts = Arc::new(Counts::new(cli.delivering_count()));
    let findings = Arc::new(Findings::new(cli.questions()));
    let (steering, mut receiving) = (
        Steering::returning_in(common.run.stall.given_or_default()),
        Receiving { cli: &cli, placement, counts: &counts, findings: &findings, steering: None },
    );
    let device = match way {
        Way::Kernel => {
            let sockets = Sockets::open(&addresses, common.core_count(), &cli.socket_options())?;
            let sockets = Arc::new(sockets);
            let waits = common.run.idle.given().is_none_or(|idle| idle == Idle::Adaptive);
            let nf = of_sockets(&sockets, waits, &counts, &findings);
            let listening: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            tracing::info!("listening on {}", listening.join(", "));
            return receiving.run(nf, &Input::Sockets(Arc::clone(&sockets)), socket);
        }
        Way::Dpdk(device) => device,
    };
    let eal = common.run.eal()?;
    let port = common.run.devices.open(eal, device)?;
    let hashed = common.run.devices.port_config().rss.fields.and(port.capabilities().rss_fields);
    let input = Input::Port(port.clone(), hashed);
    let (name, queue_count) = (port.name(), common.core_count());
    tracing::info!("{name}: RX queues {queue_count}, UDP ports {}", cli.udp_port);
    if cli.with_source {
        let plan = with_source::plan(&cli.load, &cli.udp_port, port.mac());
        let pool = Pool::new(eal, port.clone(), common.run.devices.port_config(), queue_count);
        let loopback = Loopback {
            port: &port,
            plan: &plan,
            rate: cli.load.rate,
            pool: &Arc::new(pool),
            steering: &steering,
            ports: &cli.udp_port,
            counts: &counts,
            findings: &findings,
        };
        receiving.steering = Some(&steering);
        return receiving.run(loopback.graph(), &input, socket);
    }
    if cli.workers.is_some() {
        let nf = sharded(|core| port.rx_queue(core), &cli.udp_port, &counts, &findings);
        return receiving.run(nf, &input, socket);
    }
    let receive = |core: &Core| {
        let queue = port.rx_queue(core)?;
        counts.set_queue(core, queue.index());
        Ok::<_, dpdk::Error>(queue)
    };
    receiving.run(graph(receive, &cli.udp_port, &counts, &findings), &input, socket)
}

/// A run, with either kind of input.
struct Receiving<'a> {
    cli: &'a Cli,
    placement: Option<Placement>,
    counts: &'a Counts,
    findings: &'a Findings,
    /// Controls a source in the same process.
    steering: Option<&'a Steering>,
}

impl Receiving<'_> {
    fn run(self, nf: impl Graph, input: &Input, mut socket: Option<Socket>) -> Result<(), Failure> {
        let Self { cli, placement, counts, findings, steering } = self;
        let control = |control: &Control<'_>, output: &Output, metrics: Option<&mut Metrics>| {
            let started = Instant::now();
            steering.inspect(|steering| steering.open());
            let mut watch =
                Watch { cli, input, counts, queues: counts.queues(), lost: input.lost() };
            let duration = cli.common.run.duration;
            let operation = Operation { socket: socket.as_mut(), metrics, duration };
            operation.run(control, &mut Lines::new(output, started, |passed| watch.lines(passed)));
            let duration = started.elapsed();
            if let Some(steering) = steering {
                steering.end();
                control.wait_for(LINGER);
            }
            Ok(duration)
        };
        let totals = |_: &Report, duration| {
            let queues = counts.queues();
            Totals {
                passed: counts.passed(),
                duration,
                spread: input.spread(&queues, cli),
                queues,
                lost: input.lost(),
                found: findings.found(),
            }
        };
        running::run(&cli.common, nf, cli.deployment(), placement, control, totals)
    }
}

/// The source of datagrams.
enum Input {
    /// A device, and the fields that its RSS hashes.
    Port(Port, RssFields),
    Sockets(Arc<Sockets>),
}

impl Input {
    /// The name of one of its parts, which a core polls.
    const fn part(&self, cli: &Cli) -> &'static str {
        match self {
            Self::Port(..) if cli.workers.is_some() => "worker",
            Self::Port(..) => "queue",
            Self::Sockets(_) => "thread",
        }
    }

    /// The distribution of datagrams over queues or threads.
    fn spread(&self, queues: &[(u64, Passed)], cli: &Cli) -> Vec<String> {
        let (by, remedy) = match self {
            Self::Port(..) if cli.workers.is_some() => (
                "a hash of addresses and ports, by the cores that receive".to_owned(),
                "it may be one flow, or few",
            ),
            Self::Port(port, hashed) => (
                format!("{}, which hashes {hashed}", port.name()),
                "it may be one flow; where flows differ in ports only, --rss ip,udp hashes these too",
            ),
            Self::Sockets(_) if cli.reuseport => (
                "the kernel's hash of addresses and ports".to_owned(),
                "it may be one flow, or few",
            ),
            Self::Sockets(_) => (
                "who is first at a socket, and by the addresses that each thread listens on"
                    .to_owned(),
                "--reuseport spreads flows over threads",
            ),
        };
        spread::lines(self.part(cli), queues, &by, remedy)
    }

    /// Losses since the input was opened, by reason.
    fn lost(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Port(port, _) => port.stats().map_or_else(
                |_| Vec::new(),
                |stats| {
                    vec![
                        ("imissed", stats.imissed.unwrap_or_default()),
                        ("rx_nombuf", stats.rx_nombuf),
                        ("rx_malformed", stats.rx_malformed),
                        ("ierrors", stats.ierrors),
                    ]
                },
            ),
            Self::Sockets(sockets) => sockets.lost().map_or_else(Vec::new, |lost| {
                vec![
                    ("socket_drops", lost.socket_drops),
                    ("receive_buffer_errors", lost.receive_buffer_errors),
                ]
            }),
        }
    }
}

/// Reads the counters once a second.
struct Watch<'a> {
    cli: &'a Cli,
    input: &'a Input,
    counts: &'a Counts,
    queues: Vec<(u64, Passed)>,
    lost: Vec<(&'static str, u64)>,
}

impl Watch<'_> {
    /// The lines for a second, which took `duration`.
    fn lines(&mut self, duration: Duration) -> Vec<String> {
        let before = std::mem::replace(&mut self.queues, self.counts.queues());
        let rates =
            |(now, before): (&(u64, Passed), &(u64, Passed))| (now.0, now.1.since(before.1));
        let passed: Vec<_> = self.queues.iter().zip(&before).map(rates).collect();
        let all: Passed = passed.iter().map(|(_, passed)| *passed).sum();
        let mut lines = vec![all.in_time(duration).to_string()];
        if self.cli.per_queue {
            let line = |(index, passed): (u64, Passed)| {
                format!("  {} {index}: {}", self.input.part(self.cli), passed.in_time(duration))
            };
            lines.extend(passed.into_iter().map(line));
        }
        lines.extend(self.loss());
        lines
    }

    /// The losses since the last line, if any.
    fn loss(&mut self) -> Option<String> {
        let now = self.input.lost();
        let before = std::mem::replace(&mut self.lost, now);
        let since = |(name, count): &(&'static str, u64)| {
            let before = before.iter().find(|lost| lost.0 == *name).map_or(0, |lost| lost.1);
            (*name, count.saturating_sub(before))
        };
        let moved: Vec<_> = self.lost.iter().map(since).collect();
        lost_text(&moved).map(|lost| format!("  lost: {lost}"))
    }
}
