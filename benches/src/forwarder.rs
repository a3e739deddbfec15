//! hello-forward's graph over two net_null ports, and other graphs for comparison with testpmd's
//! modes, in a process of its own: EAL starts once per process, with hugepages or without.

use crate::engines::on_cpus;
use hotloop::dpdk::RxQueue;
use hotloop::engine::Graph;
use hotloop::prelude::*;
use hotloop_measure::alternate::{CPU, Forwarding, Measured};
use hotloop_measure::cpu_time::Thread;
use hotloop_measure::interactive::Interactive;
use hotloop_measure::program;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::io::Write;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

/// Duration of a forwarder's warm-up.
pub const WARM_UP: Duration = Duration::from_millis(300);

/// A forwarder's treatment of packets.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Mode {
    /// Receives and frees them.
    RxOnly,
    /// Passes them on unchanged.
    Io,
    /// Swaps their Ethernet addresses.
    MacSwap,
}

impl Mode {
    /// testpmd's name for the mode.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RxOnly => "rxonly",
            Self::Io => "io",
            Self::MacSwap => "macswap",
        }
    }
}

/// The receiving and the sending device.
pub(crate) fn devices() -> [String; 2] {
    [0, 1].map(|index| format!("net_null{index},size=64,copy=0"))
}

/// Settings of one measurement.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Case {
    /// The treatment of packets.
    pub mode: Mode,
    /// Number of packets that a poll asks for.
    pub burst: usize,
    /// Whether memory lies in hugepages.
    pub hugepages: bool,
}

/// A forwarding process of ours: this program, started again.
#[derive(Debug)]
pub struct Forwarder {
    program: Interactive,
    before: Measured,
}

impl Forwarder {
    /// Starts this program again to forward with these `settings`, and waits until it does.
    ///
    /// # Errors
    /// The process's error message.
    pub fn start(settings: &impl Serialize) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let settings = serde_json::to_string(settings).map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        let program = Interactive::start(command.args(["--forward", &settings]));
        let program = program.map_err(|error| error.to_string())?;
        let mut forwarder = Self { program, before: Measured { packets: 0, cpu_ns: 0 } };
        forwarder.so_far()?;
        Ok(forwarder)
    }

    /// The results since the process began to forward.
    fn so_far(&mut self) -> Result<Measured, String> {
        let Interactive { input, lines, .. } = &mut self.program;
        writeln!(input).map_err(|error| format!("our forwarder has ended: {error}"))?;
        let reply = lines.next().and_then(Result::ok);
        let reply = reply.ok_or("our forwarder ended; what it says is above")?;
        serde_json::from_str(&reply).map_err(|error| error.to_string())
    }
}

impl Forwarding for Forwarder {
    fn process(&self) -> &Child {
        &self.program.process
    }

    fn begin(&mut self) -> Result<(), String> {
        self.before = self.so_far()?;
        Ok(())
    }

    fn end(&mut self) -> Result<Measured, String> {
        let (now, before) = (self.so_far()?, self.before);
        Ok(Measured { packets: now.packets - before.packets, cpu_ns: now.cpu_ns - before.cpu_ns })
    }
}

/// The entry of a benchmark that starts itself as a [`Forwarder`], which calls `forward` with its
/// settings, and else calls `run` with its arguments.
pub fn main(
    forward: impl FnOnce(&str) -> hotloop::Result<()>,
    run: impl FnOnce(&[&str]) -> Result<(), String>,
) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [flag, settings] if flag == "--forward" => {
            program::ended(forward(settings).map_err(|error| error.to_string()))
        }
        _ => program::main(run),
    }
}

/// The process of a [`Forwarder`] for a case of this module.
///
/// # Errors
/// If EAL or a port does not start, or if the ledger is not whole.
pub fn forward(settings: &str) -> hotloop::Result<()> {
    let case: Case = serde_json::from_str(settings)?;
    let eal = if case.hugepages {
        Eal::with_args(&["--in-memory", "-m", "512", "--no-pci", "--no-telemetry", "-l", "0"])?
    } else {
        Eal::embedded()?
    };
    let [lan, wan] = devices().map(|device| Port::open(eal, &device));
    let (lan, wan) = (lan?, wan?);
    match case.mode {
        Mode::RxOnly => serve(receiving_graph(&lan, case.burst)),
        Mode::Io => serve(graph(&lan, &wan, case.burst)),
        Mode::MacSwap => serve(swapping_graph(&lan, &wan, case.burst)),
    }
}

/// Swaps a packet's Ethernet addresses.
#[inline]
pub fn swap_addresses(mut packet: Packet) -> Packet {
    ethernet::swap_addresses(&mut packet);
    packet
}

/// A graph that frees received packets.
pub fn receiving_graph(lan: &Port, burst: usize) -> impl Graph + use<'_> {
    source(limited(lan, burst)).sink(|_| Ok::<_, Infallible>(Freed))
}

/// hello-forward's graph from `lan` to `wan` without a stage.
pub fn graph<'a>(lan: &'a Port, wan: &'a Port, burst: usize) -> impl Graph + use<'a> {
    source(limited(lan, burst)).sink(|core| wan.tx_queue(core))
}

/// hello-forward's graph from `lan` to `wan`.
pub fn swapping_graph<'a>(lan: &'a Port, wan: &'a Port, burst: usize) -> impl Graph + use<'a> {
    source(limited(lan, burst)).stage(|_| each(swap_addresses)).sink(|core| wan.tx_queue(core))
}

/// A graph from `lan` to `wan` with five minimal stages.
pub fn five_stages<'a>(lan: &'a Port, wan: &'a Port, burst: usize) -> impl Graph + use<'a> {
    let pass = |_: &Core| Pass(0);
    let stages = source(limited(lan, burst)).stage(pass).stage(pass).stage(pass).stage(pass);
    stages.stage(pass).sink(|core| wan.tx_queue(core))
}

fn limited(
    port: &Port,
    burst: usize,
) -> impl Fn(&Core) -> Result<Limited, hotloop::dpdk::Error> + use<'_> {
    move |core| port.rx_queue(core).map(|queue| Limited(queue, burst))
}

/// Runs a graph to completion on [`CPU`], and prints its core's results so far for each input line,
/// until the input ends.
///
/// # Errors
/// If the graph does not start, or if its ledger is not whole.
pub fn serve(graph: impl Graph) -> hotloop::Result<()> {
    let plan = on_cpus(graph, Deployment::run_to_completion(1), &[CPU])?;
    let mut served = Ok(());
    plan.run(|control| served = serve_lines(control))?;
    served
}

fn serve_lines(control: &Control) -> hotloop::Result<()> {
    control.wait_for(WARM_UP);
    let worker = Thread::find(std::process::id(), "core-0").map_err(hotloop::Error::message)?;
    for line in std::io::stdin().lines() {
        line.map_err(|error| hotloop::Error::message(error.to_string()))?;
        let cpu_ns = worker.cpu_ns().map_err(hotloop::Error::message)?;
        let so_far = Measured { packets: control.snapshot().sent, cpu_ns };
        println!("{}", serde_json::to_string(&so_far)?);
    }
    Ok(())
}

/// Polls its queue for this many packets at a time.
struct Limited(RxQueue, usize);

impl Source for Limited {
    type Item = Packet;

    #[inline(always)]
    fn poll(&mut self, burst: &mut Burst<Packet>) -> usize {
        burst.set_limit(self.1);
        self.0.poll(burst)
    }

    fn start(&mut self, limits: &hotloop::stage::Limits) -> hotloop::Result<()> {
        self.0.start(limits)
    }

    fn devices(&self) -> Vec<std::sync::Arc<dyn hotloop::stage::Device>> {
        self.0.devices()
    }
}

/// Frees packets.
struct Freed;

impl Sink for Freed {
    type Item = Packet;

    #[inline]
    fn send(&mut self, burst: &mut Burst<Packet>) -> usize {
        let count = burst.len();
        burst.clear();
        count
    }
}

/// A minimal stage: it counts.
struct Pass(u64);

impl Stage<Packet> for Pass {
    type Out = Packet;
    type Drop = NoDrops;

    #[inline]
    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: Packet) -> Verdict<Packet> {
        self.0 += 1;
        Ok(packet)
    }
}
