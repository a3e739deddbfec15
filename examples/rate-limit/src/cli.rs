//! The command line.

use clap::{Parser, value_parser};
use hotloop::stage::TokenRate;
use hotloop_ops::{DeploymentArgs, RunArgs};
use rate_limit::Limits;

/// Forwards packets from port A to port B, and drops those of sources that send too many.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "rate-limit",
    version,
    after_help = "rate-limit ctl --help: asking one that runs."
)]
pub struct Cli {
    /// The receiving port: a device string, or an address on the PCI bus.
    #[arg(long, value_name = "DEVICE")]
    pub port_a: String,
    /// The sending port.
    #[arg(long, value_name = "DEVICE")]
    pub port_b: String,
    /// The packets per second that each source may send on average.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000_000))]
    pub packets_per_second: u32,
    /// The packets that a source may send at once.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    pub burst: u32,
    /// The sources that each core remembers at most; packets of others are dropped.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub sources_max: usize,
    /// The roles of the cores.
    #[command(flatten)]
    pub cores: DeploymentArgs,
    /// Arguments of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

impl Cli {
    /// The limits of each source.
    pub fn limits(&self) -> Limits {
        let rate = TokenRate::per_second(self.packets_per_second.into(), self.burst.into());
        Limits { rate, sources_max: self.sources_max }
    }
}
