//! The peer of forwarding: DPDK's own `dpdk-testpmd`, controlled through its command line.

use crate::forwarder::{Case, devices};
use hotloop_measure::alternate::{Forwarding, Measured};
use hotloop_measure::cpu_time::Thread;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

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
    process: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    worker: Thread,
    before_ns: u64,
}

impl Testpmd {
    /// Starts testpmd.
    ///
    /// # Errors
    /// If testpmd isn't installed, or does not start.
    pub fn start(settings: &Settings) -> Result<Self, String> {
        let mut process = spawn(settings)?;
        let commands = process.stdin.take().expect("it was piped");
        let lines = BufReader::new(process.stdout.take().expect("it was piped")).lines();
        let ready = ready(&process, commands, lines);
        match ready {
            Ok((commands, lines, worker)) => {
                Ok(Self { process, commands, lines, worker, before_ns: 0 })
            }
            Err(error) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(error)
            }
        }
    }

    fn command(&mut self, command: &str) -> Result<(), String> {
        let written = writeln!(self.commands, "{command}");
        written.map_err(|error| format!("dpdk-testpmd has ended: {error}"))
    }
}

/// The forwarding thread runs only between `start` and `stop`, and both are counted whole.
impl Forwarding for Testpmd {
    fn process(&self) -> &Child {
        &self.process
    }

    fn begin(&mut self) -> Result<(), String> {
        self.before_ns = self.worker.cpu_ns()?;
        self.command("start")?;
        wait_for(&mut self.lines, "port 0:").map(drop)
    }

    fn end(&mut self) -> Result<Measured, String> {
        self.command("stop")?;
        wait_for(&mut self.lines, "Accumulated forward statistics")?;
        let line = wait_for(&mut self.lines, "RX-packets:")?;
        // testpmd prints this before its thread has come to rest.
        wait_for(&mut self.lines, "Done.")?;
        let cpu_ns = self.worker.cpu_ns()? - self.before_ns;
        let count =
            line.split("RX-packets:").nth(1).and_then(|rest| rest.split_whitespace().next());
        let packets = count.and_then(|count| count.parse().ok());
        let packets = packets.ok_or_else(|| format!("no count of packets in {line:?}"))?;
        Ok(Measured { packets, cpu_ns })
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // The process may be stopped, and has nothing to save.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(settings: &Settings) -> Result<Child, String> {
    let memory: &[&str] =
        if settings.hugepages { &["--in-memory"] } else { &["--no-huge", "--no-shconf"] };
    // When writing to a pipe, testpmd would buffer its lines.
    Command::new("stdbuf")
        .args(["-oL", "dpdk-testpmd", "-l", "0,1", "-m", &settings.memory_mib.to_string()])
        .args(["--no-pci", "--no-telemetry", "--log-level=error"])
        .args(settings.devices.iter().map(|device| format!("--vdev={device}")))
        .args(memory)
        .args(["--", "-i", "--nb-cores=1"])
        .arg(format!("--total-num-mbufs={}", settings.mbuf_count))
        .arg(format!("--forward-mode={}", settings.mode))
        .args(&settings.others)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| {
            format!("dpdk-testpmd: {error}; install it by `cargo xtask setup --bench`")
        })
}

type Ready = (ChildStdin, Lines<BufReader<ChildStdout>>, Thread);

/// Waits until testpmd accepts commands.
fn ready(
    process: &Child,
    mut commands: ChildStdin,
    mut lines: Lines<BufReader<ChildStdout>>,
) -> Result<Ready, String> {
    writeln!(commands, "show port info 0")
        .map_err(|error| format!("dpdk-testpmd has ended: {error}"))?;
    wait_for(&mut lines, "Max possible number of TXDs")?;
    let names = ["rte-worker-1", "lcore-worker-1", "dpdk-worker1"];
    let workers = names.map(|name| Thread::find(process.id(), name));
    let worker = workers.into_iter().find_map(Result::ok);
    let worker = worker.ok_or("dpdk-testpmd has no thread on CPU 1")?;
    Ok((commands, lines, worker))
}

fn wait_for(
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
    text: &str,
) -> Result<String, String> {
    lines
        .map_while(Result::ok)
        .find(|line| line.contains(text))
        .ok_or_else(|| format!("dpdk-testpmd ended before it printed {text:?}"))
}
