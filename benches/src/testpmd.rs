//! The peer of forwarding: DPDK's own `dpdk-testpmd`, driven over its command line.

use crate::cpu_time::Thread;
use crate::forwarder::{Case, Measured, Mode, WARM_UP, WINDOW};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// What testpmd is to do.
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    /// Its forwarding mode.
    pub mode: &'a str,
    /// Its devices, as EAL calls them.
    pub devices: Vec<String>,
    /// How much memory EAL takes, in MiB.
    pub memory_mib: u32,
    /// Whether that lies in hugepages.
    pub hugepages: bool,
    /// Mbufs in its pool.
    pub mbuf_count: u32,
    /// Other arguments of its own.
    pub others: Vec<String>,
}

/// Runs testpmd between two net_null ports and measures its forwarding thread.
///
/// # Errors
/// As [`measure_with`].
pub fn measure(case: Case) -> Result<Measured, String> {
    let mode = match case.mode {
        Mode::Io => "io",
        Mode::MacSwap => "macswap",
    };
    let device = |index| format!("net_null{index},size=64,copy=0");
    measure_with(&Settings {
        mode,
        devices: vec![device(0), device(1)],
        memory_mib: 512,
        hugepages: case.hugepages,
        mbuf_count: 16_384,
        others: vec![format!("--burst={}", case.burst)],
    })
}

/// Runs testpmd once and measures its forwarding thread.
///
/// # Errors
/// Where it isn't installed, does not start, or prints no statistics.
pub fn measure_with(settings: &Settings<'_>) -> Result<Measured, String> {
    let mut testpmd = start(settings)?;
    let measured = drive(&mut testpmd);
    // It ends by itself after `quit`; where something failed, it must not go on.
    let _ = testpmd.kill();
    let _ = testpmd.wait();
    measured
}

fn start(settings: &Settings<'_>) -> Result<Child, String> {
    let memory: &[&str] =
        if settings.hugepages { &["--in-memory"] } else { &["--no-huge", "--no-shconf"] };
    // Into a pipe testpmd would write its lines only once a buffer is full.
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

fn drive(testpmd: &mut Child) -> Result<Measured, String> {
    let process = testpmd.id();
    let mut commands = testpmd.stdin.take().expect("it was piped");
    let mut lines = BufReader::new(testpmd.stdout.take().expect("it was piped")).lines();
    let mut tell = |command: &str| {
        writeln!(commands, "{command}").map_err(|error| format!("dpdk-testpmd has ended: {error}"))
    };
    // The forwarding thread runs only between start and stop, and both are counted whole.
    std::thread::sleep(WARM_UP);
    tell("show port info 0")?;
    wait_for(&mut lines, "Max possible number of TXDs")?;
    let worker = Thread::find(process, "rte-worker-1")
        .or_else(|_| Thread::find(process, "lcore-worker-1"))
        .or_else(|_| Thread::find(process, "dpdk-worker1"))?;
    let before_ns = worker.cpu_ns()?;
    tell("start")?;
    std::thread::sleep(WINDOW);
    tell("stop")?;
    wait_for(&mut lines, "Accumulated forward statistics")?;
    let line = wait_for(&mut lines, "RX-packets:")?;
    let cpu_ns = worker.cpu_ns()? - before_ns;
    tell("quit")?;
    let count = line.split("RX-packets:").nth(1).and_then(|rest| rest.split_whitespace().next());
    let packets = count.and_then(|count| count.parse().ok());
    let packets = packets.ok_or_else(|| format!("no count of packets in {line:?}"))?;
    Ok(Measured { packets, cpu_ns })
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
