//! Opens the devices that a command line names.

use crate::PortSettings;
use clap::Args;
use hotloop_dpdk::{Eal, Error, Port, PortConfig};

/// The word with which the user trusts the peers of net_memif devices.
const TRUST: &str = "--trust-memif-peer";

/// How to open the devices of a command line. Only the command line that the process was started
/// with can trust a peer, not one that the program parses in its place.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DeviceArgs {
    /// Open net_memif devices too. Their peer can crash this program: by disconnecting, or by
    /// writing to the memory that both share.
    #[arg(long)]
    trust_memif_peer: bool,
    /// Settings of the ports.
    #[command(flatten)]
    settings: PortSettings,
}

impl DeviceArgs {
    /// These arguments for one port, with the port's own `settings` for those that the command line
    /// does not set.
    #[must_use]
    pub fn with(self, settings: PortSettings) -> Self {
        Self { settings: self.settings.or(settings), ..self }
    }

    /// The ports' configuration.
    #[must_use]
    pub fn port_config(self) -> PortConfig {
        self.settings.port_config()
    }

    /// Opens a device, as [`Port::open_with`] does with [`port_config`](Self::port_config). A
    /// device with a peer is trusted if the process's own command line trusts peers.
    ///
    /// # Errors
    /// As [`Port::open_with`].
    pub fn open(self, eal: Eal, device: &str) -> Result<Port, Error> {
        if !self.trust_memif_peer || !std::env::args_os().any(|word| word == TRUST) {
            return Port::open_with(eal, device, self.port_config());
        }
        // SAFETY: 1. and 2. Both require that the peer can be trusted. The user has claimed that on
        // the command line, and no code can: Rust keeps the command line as the system gave it to
        // the process.
        unsafe { Port::open_trusting_peer(eal, device, self.port_config()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use hotloop_dpdk::RssFields;
    use hotloop_stage::{Core, Limits, Source as _};

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
        assert!(open(&["nf", TRUST], "eth0").is_err());
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("memif.sock");
        let device =
            format!("net_memif0,role=server,socket={},socket-abstract=no", socket.display());
        let message = open(&["nf"], &device).unwrap_err().to_string();
        assert!(message.contains(TRUST), "{message}");
        let made_up = open(&["nf", TRUST], &device);
        if std::env::args().any(|word| word == TRUST) {
            assert_eq!(made_up.unwrap().capabilities().driver, "net_memif");
            println!("trusted");
        } else {
            assert_eq!(made_up.unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_peer_is_trusted_by_a_word_of_the_own_command_line() {
        let name = "a_peer_is_trusted_only_where_the_command_line_says_so";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        // After `--` the word is the name of a test that does not exist.
        let output = command.args([name, "--nocapture", "--", TRUST]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("trusted"), "{said}");
    }

    #[test]
    fn what_the_command_line_says_reaches_the_port() {
        let config = |words: &[&str]| Cli::parse_from(words).devices.port_config();
        let (default, unset) = (PortConfig::default(), config(&["nf"]));
        assert_eq!(format!("{unset:?}"), format!("{default:?}"));
        let words = ["nf", "--rx-descriptors", "64", "--tx-descriptors", "2048"];
        let set = config(&[&words[..], &["--mbufs", "40000", "--rss", "udp,ip"]].concat());
        assert_eq!((set.rx_descriptor_count, set.tx_descriptor_count), (64, 2048));
        assert_eq!(set.mbuf_count_min, 40_000);
        assert_eq!(set.rss.fields, RssFields::IP | RssFields::UDP);
        assert_eq!(config(&["nf", "--rss", "none"]).rss.fields, RssFields::NONE);

        let eal = Eal::embedded_or_current().unwrap();
        let mbuf_count = |words: &[&str]| {
            let port = Cli::parse_from(words).devices.open(eal, "net_null_settings").unwrap();
            let mut queue = port.rx_queue(&Core::new(0, 1)).unwrap();
            queue.start(&Limits { in_flight_max: 0, thread_count: 1, is_pipeline: false }).unwrap();
            port.mempool().unwrap().config().mbuf_count
        };
        assert!(mbuf_count(&["nf"]) < 40_000);
        assert_eq!(mbuf_count(&["nf", "--mbufs", "40000"]), 65_535);
    }

    #[test]
    fn a_port_has_its_own_settings_where_the_command_line_says_nothing() {
        let own = PortSettings { rx_descriptors: Some(64), mbufs: Some(9), ..Default::default() };
        let config = Cli::parse_from(["nf", "--mbufs", "10"]).devices.with(own).port_config();
        assert_eq!((config.rx_descriptor_count, config.mbuf_count_min), (64, 10));
        assert_eq!(config.tx_descriptor_count, PortConfig::default().tx_descriptor_count);
    }

    #[test]
    fn a_wrong_value_is_refused_with_what_to_write() {
        for (flag, value, remedy) in [
            ("--rx-descriptors", "0", "1..=65535"),
            ("--tx-descriptors", "65536", "1..=65535"),
            ("--mbufs", "0", "1..=1073741823"),
            ("--mbufs", "1073741824", "1..=1073741823"),
            ("--rss", "", "ip,tcp, or none"),
            ("--rss", "ip,sctp", "ip,tcp, or none"),
            ("--rss", "none,ip", "ip,tcp, or none"),
        ] {
            let refused = Cli::try_parse_from(["nf", flag, value]).err();
            let message = refused.map(|error| error.to_string()).unwrap_or_default();
            assert!(message.contains(flag) && message.contains(remedy), "{message}");
        }
    }
}
