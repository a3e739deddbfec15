//! The command line.

use clap::{Parser, ValueEnum};
use hotloop_ops::RunArgs;

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
    /// How it runs.
    #[command(flatten)]
    pub run: RunArgs,
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
