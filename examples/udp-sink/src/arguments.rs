//! What both programs take.

use clap::Args;
use hotloop_ops::RunArgs;

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
    /// How it runs.
    #[command(flatten)]
    pub run: RunArgs,
}
