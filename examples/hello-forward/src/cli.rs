//! The command line.

use clap::{Parser, ValueEnum};
use hotloop_ops::{ControlArgs, DeviceArgs, IdleArgs, LogArgs};
use std::time::Duration;

/// How much a duration may be, in seconds: thirty years.
const SECONDS_MAX: f64 = 1e9;

/// Forwards packets from port A to port B, until a signal comes or the time is up, and reports what
/// became of each.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "hello-forward",
    version,
    after_help = "hello-forward ctl --help: asking one that runs."
)]
pub struct Cli {
    /// Where packets come from: a device string, or an address on the PCI bus.
    #[arg(long, value_name = "DEVICE", default_value = "net_null0")]
    pub port_a: String,
    /// Where packets go.
    #[arg(long, value_name = "DEVICE", default_value = "net_null1")]
    pub port_b: String,
    /// Cores, each with an RX queue of A and a TX queue of B.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: usize,
    /// What is done to packets on their way.
    #[arg(long, value_enum, default_value_t = Mode::MacSwap)]
    pub mode: Mode,
    /// End after so many seconds; without it, at Ctrl-C.
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<Duration>,
    /// How the report is written.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ReportFormat::Text)]
    pub report: ReportFormat,
    /// How devices are opened.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// What cores do when there is nothing to do.
    #[command(flatten)]
    pub idle: IdleArgs,
    /// Where it is asked how it is.
    #[command(flatten)]
    pub control: ControlArgs,
    /// How it writes messages.
    #[command(flatten)]
    pub log: LogArgs,
    /// Arguments of DPDK's environment, such as -l 0-1 -a 0000:01:00.0; with none it needs neither
    /// privilege nor hugepages.
    #[arg(last = true, value_name = "EAL ARGS")]
    pub eal: Vec<String>,
}

/// What is done to packets, named like testpmd's forwarding modes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Mode {
    /// Nothing.
    Io,
    /// Their Ethernet addresses are swapped.
    #[value(name = "macswap", alias = "mac-swap")]
    MacSwap,
}

/// What `--report` takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ReportFormat {
    /// For people.
    Text,
    /// For programs: one line.
    Json,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= SECONDS_MAX);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "write a number of seconds above 0, such as 10 or 0.5".to_owned())
}
