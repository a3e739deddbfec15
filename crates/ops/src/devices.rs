//! Opening the devices that a command line names.

use clap::Args;
use hotloop_dpdk::{Eal, Error, Port, PortConfig};

/// How the devices of a command line are opened. What it says can only come from a command line.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DeviceArgs {
    /// Open net_memif devices too. Their peer can then crash this program: by disconnecting, or by
    /// what it writes to the memory that both share.
    #[arg(long)]
    trust_memif_peer: bool,
}

impl DeviceArgs {
    /// Opens a device, as [`Port::open`] does; one whose peer has to be trusted, if that was said.
    ///
    /// # Errors
    /// As [`Port::open`].
    pub fn open(self, eal: Eal, device: &str) -> Result<Port, Error> {
        if !self.trust_memif_peer {
            return Port::open(eal, device);
        }
        // SAFETY: 1. and 2. The user of the program has said on its command line that the peer can be
        // trusted, which is what both ask for. Nothing else sets the field.
        unsafe { Port::open_trusting_peer(eal, device, PortConfig::default()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        devices: DeviceArgs,
    }

    #[test]
    fn a_peer_is_trusted_only_where_the_command_line_says_so() {
        let eal = Eal::embedded_or_current().unwrap();
        let open = |words: &[&str], device: &str| Cli::parse_from(words).devices.open(eal, device);
        assert!(open(&["nf"], "net_null0").is_ok());
        let message = open(&["nf"], "net_memif0").unwrap_err().to_string();
        assert!(message.contains("--trust-memif-peer"), "{message}");

        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("memif.sock");
        let device =
            format!("net_memif0,role=server,socket={},socket-abstract=no", socket.display());
        let port = open(&["nf", "--trust-memif-peer"], &device).unwrap();
        assert_eq!(port.capabilities().driver, "net_memif");
        assert!(open(&["nf", "--trust-memif-peer"], "eth0").is_err());
    }
}
