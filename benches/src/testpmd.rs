//! The peer of forwarding: DPDK's own `dpdk-testpmd`, controlled through its command line.

use crate::forwarder::{Case, devices};
use hotloop_measure::alternate::{Forwarding, Measured};
use hotloop_measure::cpu_time::Thread;
use hotloop_measure::interactive::Interactive;
use std::io::Write;
use std::process::{Child, Command, Stdio};

/// testpmd's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// testpmd's forwarding mode.
    pub mode: &'static str,
    /// The devices, by EAL's names.
    pub devices: Vec<String>,
    /// EAL's memory in MiB.
    pub memory_mib: u32,
    /// Whether the memory lies in hugepages.
    pub hugepages: bool,
    /// Mbufs in its pool.
    pub mbuf_count: u32,
    /// Other arguments of its own.
    pub others: Vec<String>,
}

impl Settings {
    /// A case's mode, over the same devices.
    #[must_use]
    pub fn of(case: &Case) -> Self {
        Self {
            mode: case.mode.name(),
            devices: devices().into(),
            // Room for the mbufs, and not much more: all of it is cleared at the start.
            memory_mib: 128,
            hugepages: case.hugepages,
            mbuf_count: 16_384,
            others: vec![format!("--burst={}", case.burst)],
        }
    }
}

/// A running testpmd.
#[derive(Debug)]
pub struct Testpmd {
    pmd: Interactive,
    worker: Thread,
    before_ns: u64,
}

impl Testpmd {
    /// Starts testpmd, and waits until it accepts commands.
    ///
    /// # Errors
    /// If testpmd isn't installed, or does not start.
    pub fn start(settings: &Settings) -> Result<Self, String> {
        let mut pmd = spawn(settings)?;
        command(&mut pmd, "show port info 0")?;
        wait_for(&mut pmd, "Max possible number of TXDs")?;
        let names = ["rte-worker-1", "lcore-worker-1", "dpdk-worker1"];
        let workers = names.map(|name| Thread::find(pmd.process.id(), name));
        let worker = workers.into_iter().find_map(Result::ok);
        let worker = worker.ok_or("dpdk-testpmd has no thread on CPU 1")?;
        Ok(Self { pmd, worker, before_ns: 0 })
    }
}

/// The forwarding thread runs only between `start` and `stop`, and both are counted whole.
impl Forwarding for Testpmd {
    fn process(&self) -> &Child {
        &self.pmd.process
    }

    fn begin(&mut self) -> Result<(), String> {
        self.before_ns = self.worker.cpu_ns()?;
        command(&mut self.pmd, "start")?;
        wait_for(&mut self.pmd, "port 0:").map(drop)
    }

    fn end(&mut self) -> Result<Measured, String> {
        command(&mut self.pmd, "stop")?;
        wait_for(&mut self.pmd, "Accumulated forward statistics")?;
        let line = wait_for(&mut self.pmd, "RX-packets:")?;
        // testpmd prints this before its thread has come to rest.
        wait_for(&mut self.pmd, "Done.")?;
        let cpu_ns = self.worker.cpu_ns()? - self.before_ns;
        let count =
            line.split("RX-packets:").nth(1).and_then(|rest| rest.split_whitespace().next());
        let packets = count.and_then(|count| count.parse().ok());
        let packets = packets.ok_or_else(|| format!("no count of packets in {line:?}"))?;
        Ok(Measured { packets, cpu_ns })
    }
}

fn spawn(settings: &Settings) -> Result<Interactive, String> {
    let memory: &[&str] =
        if settings.hugepages { &["--in-memory"] } else { &["--no-huge", "--no-shconf"] };
    // When writing to a pipe, testpmd would buffer its lines.
    let mut command = Command::new("stdbuf");
    command
        .args(["-oL", "dpdk-testpmd", "-l", "0,1", "-m", &settings.memory_mib.to_string()])
        .args(["--no-pci", "--no-telemetry", "--log-level=error"])
        .args(settings.devices.iter().map(|device| format!("--vdev={device}")))
        .args(memory)
        .args(["--", "-i", "--nb-cores=1"])
        .arg(format!("--total-num-mbufs={}", settings.mbuf_count))
        .arg(format!("--forward-mode={}", settings.mode))
        .args(&settings.others)
        .stderr(Stdio::null());
    Interactive::start(&mut command).map_err(|error| {
        format!("dpdk-testpmd: {error}; install it by `cargo xtask setup --bench`")
    })
}

fn command(pmd: &mut Interactive, command: &str) -> Result<(), String> {
    let written = writeln!(pmd.input, "{command}");
    written.map_err(|error| format!("dpdk-testpmd has ended: {error}"))
}

fn wait_for(pmd: &mut Interactive, text: &str) -> Result<String, String> {
    pmd.lines
        .by_ref()
        .map_while(Result::ok)
        .find(|line| line.contains(text))
        .ok_or_else(|| format!("dpdk-testpmd ended before it printed {text:?}"))
}
