//! Runs a whole network function on one thread, in an order that a seed decides.
//!
//! [`simulate`] runs a graph in some deployment over memory ports: it feeds frames, injects faults,
//! steps one core after the other in an order drawn from the seed, lets time pass, stops, drains,
//! and checks the ledger. The same seed repeats the same run, packet by packet. [`simulate_seeds`]
//! runs many, and cuts one that fails to a short run that still fails.
//!
//! ```
//! use hotloop_engine::{Chain, Graph, source};
//! use hotloop_stage::each;
//! use hotloop_testing::simulator::{Scenario, World, simulate};
//! use hotloop_testing::{Frame, Rng};
//!
//! struct Echo;
//!
//! impl Scenario for Echo {
//!     fn frame(&self, _: usize, _: usize, number: u64, rng: &mut Rng) -> Frame {
//!         Frame::new(vec![number as u8; 1 + rng.index(100)])
//!     }
//!
//!     fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
//!         let port = world.port(0);
//!         source(|core| port.rx_queue(core))
//!             .stage(|_| each(|packet| packet))
//!             .shard_by(|packet: &hotloop_testing::PooledPacket| packet.index() as u32)
//!             .sink(|core| port.tx_queue(core))
//!     }
//! }
//!
//! let run = simulate(42, &Echo).unwrap_or_else(|failure| panic!("{failure}"));
//! assert!(run.report.is_whole());
//! ```
//!
//! A world has the ports of the network function, and their peers may answer. A graph that is
//! generic over its queues is simulated as it is deployed:
//!
//! ```
//! use hotloop_engine::{Chain, Deployment, Graph, Routed, outlets, source, sources};
//! use hotloop_packet::{PacketBuf, PortId};
//! use hotloop_stage::{Core, Error, Sink, Source, each};
//! use hotloop_testing::simulator::{Scenario, Settings, Simulated, World, simulate};
//! use hotloop_testing::{Frame, Rng};
//!
//! /// From the LAN to the WAN, and back.
//! fn forward<S: Source<Item: PacketBuf>, Z: Sink<Item = S::Item>>(
//!     lan: PortId,
//!     receive: impl Fn(&Core) -> Result<[S; 2], Error> + Sync,
//!     send: impl Fn(&Core) -> Result<[Z; 2], Error> + Sync,
//! ) -> impl Graph {
//!     source(move |core| receive(core).map(sources))
//!         .stage(move |_| {
//!             each(move |packet: S::Item| Routed { route: packet.ingress() == Some(lan), packet })
//!         })
//!         .sink(move |core| send(core).map(|[lan, wan]| outlets([(false, lan), (true, wan)])))
//! }
//!
//! /// Hosts in the LAN ask a server in the WAN, which answers half of the time.
//! struct Asked;
//!
//! impl Scenario for Asked {
//!     fn settings(&self, rng: &mut Rng) -> Settings {
//!         Settings { deployment: Deployment::run_to_completion(2), ..Settings::drawn(rng) }
//!     }
//!
//!     fn port_count(&self) -> usize {
//!         2
//!     }
//!
//!     fn is_fed(&self, port_index: usize) -> bool {
//!         port_index == 0
//!     }
//!
//!     fn frame(&self, _: usize, _: usize, number: u64, _: &mut Rng) -> Frame {
//!         Frame::new(number.to_be_bytes())
//!     }
//!
//!     fn peer(&self, port_index: usize) -> Option<impl FnMut(&Frame, &mut Rng) -> Vec<Frame>> {
//!         (port_index == 1).then_some(|request: &Frame, rng: &mut Rng| {
//!             if rng.permille(500) { vec![request.clone()] } else { Vec::new() }
//!         })
//!     }
//!
//!     fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
//!         let (lan, wan) = (world.port(0), world.port(1));
//!         forward(
//!             lan.id(),
//!             |core| Ok([lan.rx_queue(core)?, wan.rx_queue(core)?]),
//!             |core| Ok([lan.tx_queue(core)?, wan.tx_queue(core)?]),
//!         )
//!     }
//!
//!     fn check(&self, run: &Simulated) -> Result<(), String> {
//!         let [answered, asked] = [0, 1].map(|port| run.sent[port].iter().flatten().count());
//!         if answered <= asked { Ok(()) } else { Err(format!("{answered} answers to {asked}")) }
//!     }
//! }
//!
//! simulate(42, &Asked).unwrap_or_else(|failure| panic!("{failure}"));
//! ```

mod cut;
mod seeds;
mod settings;
mod stepping;
mod wires;
mod world;

pub use cut::Cut;
pub use seeds::{SEED_VARIABLE, Totals, simulate_seeds};
pub use settings::Settings;
pub use world::{SimulatedPort, World};

use crate::{Frame, Rng};
use hotloop_engine::{Engine, Graph, Report};
use hotloop_stage::Error;
use std::fmt;
use stepping::Stepping;
use wires::Wires;

/// A simulation: a network function, its traffic, and checks on a run beside the ledger.
pub trait Scenario {
    /// The settings for the run of a seed: drawn from everything possible by default. A graph
    /// without a boundary only supports run-to-completion.
    fn settings(&self, rng: &mut Rng) -> Settings {
        Settings::drawn(rng)
    }

    /// The number of ports, from 1.
    fn port_count(&self) -> usize {
        1
    }

    /// Whether frames of [`frame`](Self::frame) arrive at a port, besides its peer's answers.
    fn is_fed(&self, port_index: usize) -> bool {
        let _ = port_index;
        true
    }

    /// The frame with this number, from 0, that arrives at an RX queue of a port. Only called for
    /// queues that the graph claims.
    fn frame(&self, port_index: usize, queue_index: usize, number: u64, rng: &mut Rng) -> Frame;

    /// The peer at the other end of a port, for one run: it is called with each frame that the port
    /// sent, in the order of each TX queue, and returns its answers. `None` for no peer.
    ///
    /// Answers arrive later, at the port's RX queue with the index of the TX queue, modulo the
    /// number of RX queues, so that answers to one flow keep their order. At a port without RX
    /// queues they are lost. A run with a peer that isn't stopped early ends when all frames and
    /// answers have arrived and either nothing is inside any more or nothing has arrived for 2,000
    /// steps, 20 s on average.
    fn peer(&self, port_index: usize) -> Option<impl FnMut(&Frame, &mut Rng) -> Vec<Frame>> {
        let _ = port_index;
        None::<fn(&Frame, &mut Rng) -> Vec<Frame>>
    }

    /// The network function, between the world's queues.
    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a;

    /// Whether a stage may panic, with `std::panic::resume_unwind`, which prints nothing. The
    /// ledger must be whole all the same.
    fn may_panic(&self) -> bool {
        false
    }

    /// Checks a run with a whole ledger.
    ///
    /// # Errors
    /// The problem with the run.
    fn check(&self, run: &Simulated) -> Result<(), String> {
        let _ = run;
        Ok(())
    }
}

/// A successful run.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// The run's settings.
    pub settings: Settings,
    /// The engine's account.
    pub report: Report,
    /// Number of frames that arrived, answers included.
    pub fed_count: u64,
    /// Number of peers' answers among them.
    pub answered_count: u64,
    /// The frames that each port sent, in order for each TX queue.
    pub sent: Vec<Vec<Vec<Frame>>>,
    /// Number of turns of the cores.
    pub step_count: u64,
    /// Whether a stage panicked.
    pub has_panicked: bool,
}

/// A failed run. It prints how to repeat it.
#[derive(Clone)]
pub struct Failure {
    /// The seed that repeats the run, with the cut.
    pub seed: u64,
    /// The settings that were lowered, and the run still fails.
    pub cut: Cut,
    /// The problems found.
    pub findings: Vec<String>,
    /// The run, if it came to an end.
    pub run: Option<Simulated>,
}

impl std::error::Error for Failure {}

impl fmt::Debug for Failure {
    /// Like `Display`: printed frame by frame, the seed would be impossible to find.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = seeds::command(self.seed, &self.cut);
        writeln!(f, "seed {} fails (again with {again}):", self.seed)?;
        for finding in &self.findings {
            writeln!(f, "  {finding}")?;
        }
        if let Some(run) = &self.run {
            writeln!(f, "{:?}, {} steps", run.settings, run.step_count)?;
            write!(f, "{}", run.report)?;
        }
        Ok(())
    }
}

/// Runs a scenario with `seed`.
///
/// # Errors
/// A run whose ledger is not whole ([`Report::balanced`], [`Report::pools_whole`] and no finding);
/// with more packets inside than possible; with ports that counted other numbers than were fed and
/// taken; that was lossless but lost packets; or that fails the scenario's own check.
pub fn simulate<S: Scenario>(seed: u64, scenario: &S) -> Result<Simulated, Box<Failure>> {
    simulate_cut(seed, &Cut::default(), scenario)
}

/// As [`simulate`], with lowered settings.
fn simulate_cut<S: Scenario>(
    seed: u64,
    cut: &Cut,
    scenario: &S,
) -> Result<Simulated, Box<Failure>> {
    let mut rng = Rng::seeded(seed);
    let mut settings = scenario.settings(&mut rng);
    cut.apply(&mut settings);
    let failure = |findings, run| Box::new(Failure { seed, cut: cut.clone(), findings, run });
    let world = World::new(&settings, scenario.port_count(), &mut rng);
    let early = |finding: String| failure(vec![finding], None);

    let plan = Engine::plan(scenario.graph(&world), settings.deployment)
        .and_then(|plan| plan.clock(settings.clock).ring_capacity(settings.ring_capacity))
        .map_err(|error| early(error.to_string()))?;
    let assembly = plan.assemble().map_err(|error: Error| early(error.to_string()))?;
    let wires = Wires::new(scenario, &world, |port_index| scenario.peer(port_index));
    let mut stepping = Stepping::new(assembly, wires, &world, rng);
    let mut findings = stepping.run();
    let run = stepping.finish();

    findings.extend(wrongs(&run, &world, scenario.may_panic()));
    if findings.is_empty() {
        findings.extend(scenario.check(&run).err());
    }
    if findings.is_empty() {
        return Ok(run);
    }
    Err(failure(findings, Some(run)))
}

/// Checks that apply to every run.
fn wrongs(run: &Simulated, world: &World, may_panic: bool) -> Vec<String> {
    let Simulated { report, settings, .. } = run;
    let mut wrongs = Vec::new();
    let excused = may_panic && run.has_panicked && report.balanced && report.pools_whole;
    if !report.is_whole() && !excused {
        wrongs.push(format!("the ledger is not whole: {}", report.findings.join("; ")));
    }
    let losses = report.nic_loss.imissed.unwrap_or_default() + report.nic_loss.rx_nombuf;
    let waiting = world.waiting_count();
    if run.fed_count != waiting + report.received + losses {
        wrongs.push(format!(
            "{} frames fed, {waiting} still wait, {} received, {losses} lost by the device",
            run.fed_count, report.received
        ));
    }
    let recorded = run.sent.iter().flatten().map(Vec::len).sum::<usize>() as u64;
    if recorded != report.sent {
        wrongs.push(format!("{recorded} frames left the ports, {} were sent", report.sent));
    }
    let ring_full = report.dropped.get("ring_full").copied().unwrap_or_default();
    if settings.lossless && ring_full + losses > 0 {
        wrongs.push(format!("a lossless run lost: {ring_full} ring_full, {losses} by the device"));
    }
    wrongs
}
