//! The program: opens the device, waits for its link, sends, prints rates.

use crate::arguments::Way;
use crate::output::{Output, Totals};
use crate::rate::Passed;
use crate::source::cli::Cli;
use crate::source::datagrams::Datagrams;
use crate::source::graph::{Steering, graph};
use crate::source::make::{Frames, Payloads};
use crate::source::pool::Pool;
use crate::source::resolve::{Own, resolve};
use crate::source::sockets::Sockets;
use hotloop::engine::{Graph, Placement, PlacementError, Topology};
use hotloop::prelude::*;
use hotloop_ops::{CONTROL, Failure, Metrics, Operation, Request, Socket};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long the device stays up after the last packet: a virtual device loses the packets that it
/// has not passed to its peer when it stops.
const LINGER: Duration = Duration::from_millis(100);

/// Runs the program.
///
/// # Errors
/// An error in the command line, or the reason why the run was not whole.
pub fn run(cli: Cli) -> Result<(), Failure> {
    // Errors that need no device are found first.
    let (way, flows) = cli.flows()?;
    let common = &cli.common;
    let steering = Steering::returning_in(common.run.stall.given_or_default());
    let socket = common.run.begin("udp-source")?;
    match way {
        Way::Kernel => {
            let sockets = Arc::new(Sockets::open(&flows, common.core_count())?);
            let make = |core: &Core| Payloads::new(&flows, core.index(), core.count());
            let send =
                |core: &Core| Ok::<_, Infallible>(sockets.sender(core, cli.load.payload_bytes()));
            let nf = graph(make, cli.load.rate, &steering, send);
            Sending::new(&cli, None, &steering)?.run(
                nf,
                common.placement(way, common.core_count())?,
                socket,
            )
        }
        Way::Dpdk(device) => {
            let eal = common.run.eal()?;
            let port = common.run.devices.open(eal, device)?;
            let own = Own { address: flows.from, mac: cli.from_mac.unwrap_or_else(|| port.mac()) };
            let asked = cli.neighbours(&flows);
            let macs =
                asked.map(|all| resolve(&port, eal, own, &all, cli.link_wait)).transpose()?;
            let plan = cli.plan(flows, port.mac(), macs);
            let queue_count = common.core_count();
            let pool = Pool::new(eal, port.clone(), common.run.devices.port_config(), queue_count);
            let pool = Arc::new(pool);
            let make = |core: &Core| {
                let datagrams = Datagrams::new(&plan, core.index(), core.count());
                Frames::new(Arc::clone(&pool), datagrams)
            };
            let nf = graph(make, cli.load.rate, &steering, |core| port.tx_queue(core));
            let placement = match common.placement(way, common.core_count())? {
                Some(placement) => placement,
                None => placement(&Topology::read(Path::new("/")), queue_count)
                    .map_err(|error| Failure::Run(error.to_string()))?,
            };
            Sending::new(&cli, Some(&port), &steering)?.run(nf, Some(placement), socket)
        }
    }
}

/// The CPUs that a receiver with the same number of cores on the same machine leaves free, from the
/// last one down; then those that it takes.
fn placement(topology: &Topology, core_count: usize) -> Result<Placement, PlacementError> {
    let receiver = Placement::automatic(topology, core_count, None);
    let is_taken = |id: usize| receiver.seats().iter().any(|seat| seat.cpu == Some(id));
    let mut cpus: Vec<_> = topology.cpus.iter().rev().map(|cpu| cpu.id).collect();
    cpus.sort_by_key(|id| is_taken(*id));
    let cpus: Vec<_> = cpus.iter().copied().cycle().take(core_count).collect();
    Placement::explicit(topology, &cpus)
}

fn passed(cli: &Cli, packets: u64) -> Passed {
    Passed { packets, payload_bytes: packets * u64::from(cli.load.payload_bytes()) }
}

/// The control thread's work, and its results.
struct Sending<'a> {
    cli: &'a Cli,
    /// The device, unless the kernel's sockets are used.
    port: Option<&'a Port>,
    steering: &'a Steering,
    output: Output,
    /// How long the program sent.
    duration: Duration,
    gave_up: bool,
}

impl<'a> Sending<'a> {
    fn new(cli: &'a Cli, port: Option<&'a Port>, steering: &'a Steering) -> Result<Self, Failure> {
        let output = Output::start(cli.common.run.report)?;
        Ok(Self { cli, port, steering, output, duration: Duration::ZERO, gave_up: false })
    }

    fn run(
        mut self,
        nf: impl Graph,
        placement: Option<Placement>,
        mut socket: Option<Socket>,
    ) -> Result<(), Failure> {
        let common = &self.cli.common;
        let mut plan = common.run.plan(nf, Deployment::run_to_completion(common.core_count()))?;
        if let Some(placement) = placement {
            plan = plan.placement(placement).map_err(|error| Failure::Run(error.to_string()))?;
        }
        let mut metrics = common.run.metrics.bind()?;
        let result = hotloop_ops::run_watched(plan, CONTROL, common.run.watching(), |control| {
            self.until_the_end(control, socket.as_mut(), metrics.as_mut());
            self.steering.end();
            control.wait_for(LINGER);
        });
        let report = match &result {
            Ok(report) => Some(report),
            Err(error) => error.report(),
        };
        let printed = report.map_or(Ok(()), |report| {
            let passed = passed(self.cli, report.sent);
            let totals = Totals { passed, duration: self.duration, ..Totals::default() };
            self.output.summary(report, &totals)
        });
        result?;
        match self.port.filter(|_| self.gave_up) {
            Some(port) => Err(Failure::Run(format!(
                "{} had no link for {} s: start its peer, or wait longer with --link-wait",
                port.name(),
                self.cli.link_wait.as_secs_f64()
            ))),
            None => Ok(printed?),
        }
    }

    fn until_the_end(
        &mut self,
        control: &Control<'_>,
        mut socket: Option<&mut Socket>,
        mut metrics: Option<&mut Metrics>,
    ) {
        let has_link = self.has_link(control, socket.as_deref_mut(), metrics.as_deref_mut());
        if !has_link || Control::signal_came() {
            return;
        }
        let started = Instant::now();
        self.steering.open();
        let operation = Operation::new(control, socket, self.cli.common.run.duration);
        self.print_until_the_end(control, operation.with_metrics(metrics), started);
        self.duration = started.elapsed();
    }

    /// Waits for the link; returns false if the run ends before the link is up.
    fn has_link(
        &mut self,
        control: &Control<'_>,
        socket: Option<&mut Socket>,
        metrics: Option<&mut Metrics>,
    ) -> bool {
        let Some(port) = self.port else { return true };
        let operation = Operation::new(control, socket, Some(self.cli.link_wait));
        let mut operation = operation.with_metrics(metrics);
        let mut has_warned = false;
        while !self.is_link_up() {
            if !has_warned {
                let (name, seconds) = (port.name(), self.cli.link_wait.as_secs_f64());
                tracing::info!("waiting up to {seconds} s for the link of {name}");
                has_warned = true;
            }
            if let Some(waited) = operation.turn(&mut Request::unknown) {
                self.gave_up = waited == Waited::Elapsed;
                return false;
            }
        }
        true
    }

    fn is_link_up(&self) -> bool {
        self.port.is_none_or(|port| port.link().is_ok_and(|link| link.up))
    }

    /// Prints a line a second, and answers clients, until a signal comes, the time is up, or the
    /// reader of the output is gone.
    fn print_until_the_end(
        &self,
        control: &Control<'_>,
        mut operation: Operation<'_>,
        started: Instant,
    ) {
        let (mut looked, mut due, mut before) = (started, started + INTERVAL, Passed::default());
        loop {
            let waited = operation.turn(&mut Request::unknown);
            let now = Instant::now();
            if now >= due {
                due += INTERVAL;
                let passed = passed(self.cli, control.snapshot().sent);
                let rate = passed.since(before).in_time(now - looked);
                let link = if self.is_link_up() { "" } else { "  (the link is down)" };
                self.output.lines(&[format!("{rate}{link}")]);
                (looked, before) = (now, passed);
            }
            if waited.is_some() || self.output.is_unread() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::engine::Cpu;

    #[test]
    fn sender_and_receiver_share_no_cpu_where_there_are_enough() {
        for cpu_count in 1..=8 {
            let cpus = (0..cpu_count).map(|id| Cpu { id, node: None, sibling_index: 0 });
            let topology = Topology { cpus: cpus.collect() };
            for core_count in 1..=8 {
                let receiver = Placement::automatic(&topology, core_count, None);
                let sender = placement(&topology, core_count).unwrap();
                assert_eq!(sender.seats().len(), core_count);
                let shared = sender
                    .seats()
                    .iter()
                    .filter(|seat| receiver.seats().iter().any(|other| other.cpu == seat.cpu));
                assert_eq!(shared.count() == 0, 2 * core_count <= cpu_count);
            }
        }
    }
}
