//! The program: opens the device, waits for its link, sends, prints rates.

use crate::arguments::Way;
use crate::output::{Output, Totals};
use crate::rate::Passed;
use crate::running::{self, LINGER, Lines};
use crate::source::cli::Cli;
use crate::source::datagrams::Datagrams;
use crate::source::graph::{Steering, graph};
use crate::source::make::{Frames, Payloads};
use crate::source::pool::Pool;
use crate::source::resolve::{Own, resolve};
use crate::source::sockets::Sockets;
use hotloop::engine::{Graph, Placement, PlacementError, Topology};
use hotloop::prelude::*;
use hotloop_ops::{Failure, Metrics, Operation, Socket, Steer};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
            let placement = common.placement(way, common.core_count())?;
            Sending { cli: &cli, port: None, steering: &steering }.run(nf, placement, socket)
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
            let sending = Sending { cli: &cli, port: Some(&port), steering: &steering };
            sending.run(nf, Some(placement), socket)
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

/// The control thread's work.
struct Sending<'a> {
    cli: &'a Cli,
    /// The device, unless the kernel's sockets are used.
    port: Option<&'a Port>,
    steering: &'a Steering,
}

impl Sending<'_> {
    fn run(
        self,
        nf: impl Graph,
        placement: Option<Placement>,
        mut socket: Option<Socket>,
    ) -> Result<(), Failure> {
        let common = &self.cli.common;
        let control = |control: &Control<'_>, output: &Output, metrics: Option<&mut Metrics>| {
            let sent = self.until_the_end(control, output, socket.as_mut(), metrics);
            self.steering.end();
            control.wait_for(LINGER);
            sent
        };
        let totals = |report: &Report, duration| Totals {
            passed: passed(self.cli, report.sent),
            duration,
            ..Totals::default()
        };
        let deployment = Deployment::run_to_completion(common.core_count());
        running::run(common, nf, deployment, placement, control, totals)
    }

    /// Returns how long the program sent.
    fn until_the_end(
        &self,
        control: &Control<'_>,
        output: &Output,
        mut socket: Option<&mut Socket>,
        mut metrics: Option<&mut Metrics>,
    ) -> Result<Duration, Failure> {
        let has_link = self.has_link(control, socket.as_deref_mut(), metrics.as_deref_mut())?;
        if !has_link || Control::signal_came() {
            return Ok(Duration::ZERO);
        }
        let started = Instant::now();
        self.steering.open();
        let operation = Operation { socket, metrics, duration: self.cli.common.run.duration };
        let mut before = Passed::default();
        let lines = |duration| {
            let passed = passed(self.cli, control.snapshot().sent);
            let rate = passed.since(before).in_time(duration);
            before = passed;
            let link = if self.is_link_up() { "" } else { "  (the link is down)" };
            vec![format!("{rate}{link}")]
        };
        operation.run(control, &mut Lines::new(output, started, lines));
        Ok(started.elapsed())
    }

    /// Waits for the link. Returns false if a signal ends the run before the link is up.
    fn has_link(
        &self,
        control: &Control<'_>,
        socket: Option<&mut Socket>,
        metrics: Option<&mut Metrics>,
    ) -> Result<bool, Failure> {
        let Some(port) = self.port else { return Ok(true) };
        let (name, seconds) = (port.name(), self.cli.link_wait.as_secs_f64());
        if self.is_link_up() {
            return Ok(true);
        }
        tracing::info!("waiting up to {seconds} s for the link of {name}");
        let operation = Operation { socket, metrics, duration: Some(self.cli.link_wait) };
        match operation.run(control, &mut UntilLinkUp(self)) {
            Waited::Elapsed if !self.is_link_up() => Err(Failure::Run(format!(
                "{name} had no link for {seconds} s: start its peer, or wait longer with --link-wait"
            ))),
            waited => Ok(waited == Waited::Elapsed),
        }
    }

    fn is_link_up(&self) -> bool {
        self.port.is_none_or(|port| port.link().is_ok_and(|link| link.up))
    }
}

/// Waits for the link.
struct UntilLinkUp<'a>(&'a Sending<'a>);

impl Steer for UntilLinkUp<'_> {
    fn is_over(&mut self) -> bool {
        self.0.is_link_up()
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
