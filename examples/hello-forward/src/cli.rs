//! The command line.

use clap::{Parser, ValueEnum};
use hotloop_ops::RunArgs;

/// Forwards packets from port A to port B, until a signal comes or the time is up, and accounts for
/// each of them.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "hello-forward",
    version,
    after_help = "hello-forward ctl --help: asking one that runs."
)]
pub struct Cli {
    /// The receiving port: a device string, or an address on the PCI bus.
    #[arg(long, value_name = "DEVICE", default_value = "net_null0")]
    pub port_a: String,
    /// The sending port.
    #[arg(long, value_name = "DEVICE", default_value = "net_null1")]
    pub port_b: String,
    /// Cores, each with an RX queue of A and a TX queue of B.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: usize,
    /// The change made to packets.
    #[arg(long, value_enum, default_value_t = Mode::MacSwap)]
    pub mode: Mode,
    /// Arguments of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Changes to packets, named like testpmd's forwarding modes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Mode {
    /// Leave them unchanged.
    Io,
    /// Swap their Ethernet addresses.
    #[value(name = "macswap", alias = "mac-swap")]
    MacSwap,
}
