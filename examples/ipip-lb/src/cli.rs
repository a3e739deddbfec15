//! The command line.

use crate::ctl::Ctl;
use crate::failure::BadInput;
use crate::source::ConfigSource;
use crate::store::Cluster;
use crate::vip_guard::GuardVips;
use clap::{Args, Parser, Subcommand, ValueEnum};
use hotloop_ops::{
    ControlArgs, DeviceArgs, LogArgs, MetricsArgs, ReportFormat, StallArgs, seconds,
};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Layer-4 load balancer that tunnels to its backends by IP in IP.
#[derive(Debug, Parser)]
#[command(
    name = "ipip-lb",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = false
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The program's commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a capture through the balancer without losing a packet, and end when it is drained.
    Replay(Replay),
    /// Balance on devices until a signal or the end of --duration.
    Run(Run),
    /// Validate a configuration, and print how it is understood.
    Check(Check),
    /// Print a new random balancer.hash_key.
    Keygen,
    /// Ask a running balancer about its state, or change it.
    Ctl(Ctl),
    /// Change or print the configuration that all nodes of a cluster take from a store.
    Cluster(Cluster),
    /// Delete the routes to VIPs if `run`, which starts this, hangs.
    #[command(hide = true)]
    GuardVips(GuardVips),
}

/// Arguments of every command but `ctl`.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// The configuration.
    #[command(flatten)]
    pub source: ConfigSource,
    /// The form of the report on standard output.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ReportFormat::Text)]
    pub report: ReportFormat,
}

/// `ipip-lb replay`.
#[derive(Args, Debug)]
pub struct Replay {
    /// Arguments shared with other commands.
    #[command(flatten)]
    pub common: Common,
    /// The capture to read: pcap or pcapng, of Ethernet frames.
    #[arg(long, value_name = "IN")]
    pub input: PathBuf,
    /// The capture to write: pcap.
    #[arg(long, value_name = "OUT")]
    pub output: PathBuf,
    /// The clock: that of the capture's timestamps, or the wall clock.
    #[arg(long, value_enum, default_value_t = Clock::Capture)]
    pub clock: Clock,
}

/// `ipip-lb run`.
#[derive(Args, Debug)]
pub struct Run {
    /// Arguments shared with other commands.
    #[command(flatten)]
    pub common: Common,
    /// End after this number of seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// Take over from the program that runs with the same control socket, which then ends. No
    /// connection breaks.
    #[arg(long)]
    pub replace: bool,
    /// Return once the program has taken over, and leave it in the background. If it fails before, return
    /// its exit code.
    #[arg(long, requires = "replace")]
    pub detach: bool,
    /// The options of devices.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// The watchdog of workers; overrides engine.worker_stall_ms_max.
    #[command(flatten)]
    pub stall: StallArgs,
    /// The control socket.
    #[command(flatten)]
    pub control: ControlArgs,
    /// The address of metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// The form of messages.
    #[command(flatten)]
    pub log: LogArgs,
    /// Arguments of DPDK's environment, such as `-l 0-3 -a 0000:01:00.0`; without any, neither
    /// privileges nor hugepages are needed.
    #[arg(last = true, value_name = "EAL ARGS")]
    pub eal: Vec<String>,
}

/// `ipip-lb check`.
#[derive(Args, Debug)]
pub struct Check {
    /// Arguments shared with other commands.
    #[command(flatten)]
    pub common: Common,
}

/// The choices of `--clock`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Clock {
    /// The capture's timestamps: every timeout is as it was when the capture was recorded.
    Capture,
    /// The time at which packets are replayed.
    Wall,
}

/// The result of reading the arguments.
#[derive(Debug)]
pub enum Parsed {
    /// A command.
    Cli(Box<Cli>),
    /// The text of the help or the version.
    Help(String),
}

impl Cli {
    /// Reads the arguments, the program's name first.
    ///
    /// # Errors
    /// If an argument is wrong or missing.
    pub fn parse_from_args(
        args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Parsed, BadInput> {
        match Self::try_parse_from(args) {
            Ok(cli) => Ok(Parsed::Cli(Box::new(cli))),
            Err(error) if !error.use_stderr() => Ok(Parsed::Help(error.render().to_string())),
            Err(error) => Err(BadInput::new(one_line(&error.render().to_string()))),
        }
    }
}

/// The parser's message on one line, without its usage, and with a hint to the help.
fn one_line(message: &str) -> String {
    let text = message.lines().take_while(|line| !line.starts_with("Usage:"));
    let text: Vec<_> = text.map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = text.join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    format!("{text}; ipip-lb --help shows what to write")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(args: &[&str]) -> String {
        let args = std::iter::once("ipip-lb").chain(args.iter().copied());
        Cli::parse_from_args(args).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_argument_is_named_on_one_line_with_what_to_write() {
        for (args, expected) in [
            (&[][..], "requires a subcommand"),
            (&["balance"], "unrecognized subcommand 'balance'"),
            (&["check"], "--config <FILE>"),
            (&["check", "--config"], "a value is required for '--config <FILE>'"),
            (&["check", "--config", "a", "--deployment", "both"], "run-to-completion, pipeline"),
            (&["check", "--config", "a", "--workers", "0"], "0 is not in 1..=60"),
            (&["check", "--config", "a", "--dispatchers", "61"], "61 is not in 1..=60"),
            (&["check", "--config", "a", "--report", "xml"], "text, json"),
            (&["run", "--config", "a", "--duration", "0"], "number of seconds above 0"),
            (&["run", "--config", "a", "--duration", "soon"], "number of seconds above 0"),
            (&["run", "--config", "a", "net_null0"], "unexpected argument 'net_null0'"),
            (&["replay", "--config", "a", "--input", "b"], "--output <OUT>"),
            (
                &["replay", "--config", "a", "--input", "b", "--output", "c", "--clock", "sun"],
                "capture, wall",
            ),
        ] {
            let message = message(args);
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains('\n') && message.contains("--help"), "{message}");
        }
    }

    #[test]
    fn arguments_after_the_dashes_are_the_environments() {
        let args = ["ipip-lb", "run", "--config", "a", "--duration", "0.5", "--", "-l", "0-1"];
        let Ok(Parsed::Cli(cli)) = Cli::parse_from_args(args) else { panic!("not parsed") };
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.eal, ["-l", "0-1"]);
        assert_eq!(run.duration, Some(Duration::from_millis(500)));
    }
}
