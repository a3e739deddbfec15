//! What both programs do with a command line.

use clap::{Args, Parser, ValueEnum};
use hotloop_ops::{ControlArgs, DeviceArgs, Failure, IdleArgs, LogArgs, usage};
use std::ffi::OsString;
use std::time::Duration;

/// How much a duration may be, in seconds: thirty years.
const SECONDS_MAX: f64 = 1e9;

/// What both programs take.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// The device: a virtual one by its device string (net_memif0,role=server,...), one on the PCI
    /// bus by its address (0000:01:00.0).
    #[arg(long, value_name = "DEVICE")]
    pub port: String,
    /// Queues of the device, each with a core of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=120))]
    pub queues: u16,
    /// End after so many seconds; without it, at Ctrl-C.
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<Duration>,
    /// How the summary is written to standard output. With json, the lines of each second go to
    /// standard error.
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
    /// Arguments of DPDK's environment, such as -l 0-3 -a 0000:01:00.0; with none it needs neither
    /// privilege nor hugepages.
    #[arg(last = true, value_name = "EAL ARGS")]
    pub eal: Vec<String>,
}

/// What `--report` takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ReportFormat {
    /// For people.
    Text,
    /// For programs: one line.
    Json,
}

/// Reads the arguments, the program's name first.
///
/// # Errors
/// [`Failure::Help`] where help or the version is asked for, [`Failure::Input`] where an argument is
/// wrong or missing.
pub fn parse<C: Parser>(
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<C, Failure> {
    C::try_parse_from(args).map_err(|error| usage(&error))
}

/// Reads a number of seconds above 0.
///
/// # Errors
/// What to write instead.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= SECONDS_MAX);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "write a number of seconds above 0, such as 10 or 0.5".to_owned())
}
