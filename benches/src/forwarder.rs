//! hello-forward's graph over two net_null ports, measured in a process of its own: EAL starts once
//! in a process, with hugepages or without.

use crate::cpu_time::Thread;
use hotloop::dpdk::RxQueue;
use hotloop::engine::{Graph, Placement, Topology};
use hotloop::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a forwarder runs before it is measured.
pub const WARM_UP: Duration = Duration::from_millis(300);

/// How long it is measured.
pub const WINDOW: Duration = Duration::from_millis(1500);

/// What a forwarder does with packets.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Mode {
    /// Passes them on untouched.
    Io,
    /// Swaps their Ethernet addresses.
    MacSwap,
}

/// One measurement's settings.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Case {
    /// What is done with packets.
    pub mode: Mode,
    /// Packets a poll asks for.
    pub burst: usize,
    /// Whether memory lies in hugepages.
    pub hugepages: bool,
    /// Trivial stages between source and sink.
    pub stages: usize,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Measured {
    /// Packets forwarded.
    pub packets: u64,
    /// Time on the CPU for them.
    pub cpu_ns: u64,
}

impl Measured {
    /// Millions of packets a second of CPU time.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "counts of seconds, far below 2^53")]
    pub fn mpps(self) -> f64 {
        self.packets as f64 * 1e3 / self.cpu_ns as f64
    }

    /// Nanoseconds of CPU time a packet.
    #[must_use]
    pub fn ns_per_packet(self) -> f64 {
        1e3 / self.mpps()
    }
}

/// Measures a case in a process of its own: this program, started again.
///
/// # Errors
/// What that process says.
pub fn measure(case: Case) -> Result<Measured, String> {
    measure_apart(&case)
}

/// Starts this program again, to measure what `settings` say, and takes what it prints.
///
/// # Errors
/// What that process says.
pub fn measure_apart(settings: &impl Serialize) -> Result<Measured, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let settings = serde_json::to_string(settings).map_err(|error| error.to_string())?;
    let output = Command::new(program).args(["--measure", &settings]).output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// The other side of [`measure`]: forwards, and prints what it measured.
///
/// # Errors
/// Where EAL or a port does not start, or the account is not whole.
pub fn run(settings: &str) -> Result<(), hotloop::Error> {
    let case: Case = serde_json::from_str(settings)?;
    let eal = if case.hugepages {
        Eal::with_args(&["--in-memory", "-m", "512", "--no-pci", "--no-telemetry", "-l", "0"])?
    } else {
        Eal::embedded()?
    };
    let lan = Port::open(eal, "net_null0,size=64,copy=0")?;
    let wan = Port::open(eal, "net_null1,size=64,copy=0")?;
    let receive = |core: &Core| lan.rx_queue(core).map(|queue| Limited(queue, case.burst));
    let send = |core: &Core| wan.tx_queue(core);
    let swap = |mut packet: Packet| {
        ethernet::swap_addresses(&mut packet);
        packet
    };
    let measured = match (case.mode, case.stages) {
        (Mode::Io, 0) => measured(source(receive).sink(send)),
        (Mode::MacSwap, 0) => measured(source(receive).stage(|_| each(swap)).sink(send)),
        (Mode::Io, 5) => measured(
            source(receive)
                .stage(|_| Pass(0))
                .stage(|_| Pass(0))
                .stage(|_| Pass(0))
                .stage(|_| Pass(0))
                .stage(|_| Pass(0))
                .sink(send),
        ),
        (mode, stages) => Err(hotloop::Error::message(format!("{mode:?} with {stages} stages"))),
    };
    println!("{}", serde_json::to_string(&measured?)?);
    Ok(())
}

/// Runs a graph to completion on CPU 1, and measures its core.
///
/// # Errors
/// Where it does not start, or its account is not whole.
pub fn measured(graph: impl Graph) -> hotloop::Result<Measured> {
    let placement = Placement::explicit(&Topology::read(Path::new("/")), &[1])?;
    let plan = Engine::plan(graph, Deployment::run_to_completion(1))?.placement(placement)?;
    let mut measured = Err("nothing was measured".to_owned());
    plan.run(|control| measured = observe(control))?;
    measured.map_err(hotloop::Error::message)
}

fn observe(control: &Control) -> Result<Measured, String> {
    control.wait_for(WARM_UP);
    let worker = Thread::find(std::process::id(), "core-0")?;
    let (packets, cpu_ns) = (control.snapshot().sent, worker.cpu_ns()?);
    control.wait_for(WINDOW);
    let (packets_then, cpu_ns_then) = (control.snapshot().sent, worker.cpu_ns()?);
    Ok(Measured { packets: packets_then - packets, cpu_ns: cpu_ns_then - cpu_ns })
}

/// Asks its queue for so many packets at once.
struct Limited(RxQueue, usize);

impl Source for Limited {
    type Item = Packet;

    #[inline]
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

/// A stage that does as little as one can: counts.
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
