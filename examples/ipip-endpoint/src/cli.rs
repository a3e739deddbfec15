//! The command line.

use crate::settings::{Answers, Settings};
use clap::Parser;
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::prefix::Prefix;
use hotloop_ops::{Failure, RunArgs};
use std::net::IpAddr;

/// Maximum length of an interface's name, in bytes (Linux's IFNAMSIZ, less the zero after it).
const INTERFACE_BYTES_MAX: usize = 15;

/// Minimum MTU of a path, in bytes: the minimum of every IPv6 link (RFC 8200, section 5), and room
/// for the outer header.
const MTU_MIN: i64 = 1280 + 40;

/// Unwraps a load balancer's IP-in-IP tunnels onto a TAP interface, where the kernel answers.
///
/// The service's address (VIP) is an address of this machine, on its loopback interface; servers
/// listen on it as on any other. Their answers are routed into the TAP interface, and leave by the
/// port: straight to the client, or with --return-path through the balancer. Making a TAP interface
/// needs a privilege (root, or CAP_NET_ADMIN).
#[derive(Clone, Debug, Parser)]
#[command(name = "ipip-endpoint", version, after_help = AFTER_HELP)]
pub struct Cli {
    /// The device that tunnel packets come by: a virtual one by its device string
    /// (net_af_packet0,iface=eth0), one on the PCI bus by its address (0000:01:00.0).
    #[arg(long, value_name = "DEVICE")]
    pub port: String,
    /// The name of the TAP interface to make. It exists while the program runs.
    #[arg(long, value_name = "NAME", value_parser = interface)]
    pub tap: String,
    /// An own tunnel address, under which balancers know this backend; once for each.
    #[arg(long = "address", value_name = "ADDRESS", required = true)]
    pub addresses: Vec<IpAddr>,
    /// A balancer that tunnels are accepted from: an address, or a prefix if the balancer uses one
    /// as its source; once for each.
    #[arg(long = "balancer", value_name = "ADDRESS[/LENGTH]", required = true)]
    pub balancers: Vec<Prefix>,
    /// Send answers through the balancer, in a tunnel to this address (one of those that it
    /// decapsulates), from the own address of the same family.
    #[arg(long, value_name = "ADDRESS")]
    pub return_path: Option<IpAddr>,
    /// The destination of frames sent out of the port [default: the station that tunnel packets
    /// come from, which is right wherever a router is between the balancer and here].
    #[arg(long, value_name = "MAC")]
    pub next_hop_mac: Option<MacAddress>,
    /// Longest IP packet on the way from here, outer header included, in bytes. Longer answers are
    /// fragmented, or refused by ICMP (fragmentation needed, packet too big).
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(MTU_MIN..))]
    pub mtu: u16,
    /// Arguments of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// The text below the options: everything to do for one backend.
const AFTER_HELP: &str = "\
Example, as root, for the service 203.0.113.10 behind the balancer 192.0.2.1:
  ipip-endpoint --port net_af_packet0,iface=eth0 --tap tap0 \\
      --address 10.0.0.1 --balancer 192.0.2.1 &
  ip address add 203.0.113.10/32 dev lo
  sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.tap0.rp_filter=0
  ip link set tap0 arp off
  ip route add default dev tap0 table 100
  ip rule add from 203.0.113.10 lookup 100

ipip-endpoint ctl --help: asking one that runs.";

impl Cli {
    /// The settings of the network function.
    ///
    /// # Errors
    /// [`Failure::Input`] if there is no own address of the return path's family.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let answers = match self.return_path {
            None => Answers::Direct,
            Some(destination) => {
                let same_family = |own: &&IpAddr| own.is_ipv4() == destination.is_ipv4();
                let source = *self.addresses.iter().find(same_family).ok_or_else(|| {
                    let family = if destination.is_ipv4() { "IPv4" } else { "IPv6" };
                    let problem = format!("--return-path {destination}: no --address is {family}");
                    Failure::Input(format!("{problem}; add an own {family} address"))
                })?;
                Answers::Tunnelled { source, destination }
            }
        };
        Ok(Settings {
            addresses: self.addresses.clone(),
            balancers: self.balancers.clone(),
            answers,
            next_hop: self.next_hop_mac,
            mtu_bytes: self.mtu,
        })
    }
}

/// A name that the kernel takes for an interface, and DPDK in a device string.
fn interface(text: &str) -> Result<String, String> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = (1..=INTERFACE_BYTES_MAX).contains(&text.len());
    if fits && text.bytes().all(sound) && !text.starts_with('.') {
        return Ok(text.to_owned());
    }
    Err(format!("write 1 to {INTERFACE_BYTES_MAX} letters, digits, - and _, such as tap0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_ops::{ReportFormat, parse};
    use std::time::Duration;

    const LEAST: &str = "--port net_null0 --tap tap0 --address 10.0.0.1 --balancer 192.0.2.1";

    fn read(line: &str) -> Result<Cli, Failure> {
        let words = std::iter::once("ipip-endpoint").chain(line.split_whitespace());
        parse(words)
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let cli = read(LEAST).unwrap();
        let settings = cli.settings().unwrap();
        assert_eq!((settings.answers, settings.mtu_bytes), (Answers::Direct, 1500));
        assert_eq!((settings.next_hop, cli.run.duration), (None, None));
        assert_eq!(cli.run.report, ReportFormat::Text);
    }

    #[test]
    fn everything_can_be_said() {
        let line = format!(
            "{LEAST} --address 2001:db8:b::1 --balancer 2001:db8:1::/64 --return-path 2001:db8::1 \
             --next-hop-mac 02:00:00:00:00:01 --mtu 9000 --duration 0.5 --report json -- -l 0"
        );
        let cli = read(&line).unwrap();
        let settings = cli.settings().unwrap();
        let tunnel = Answers::Tunnelled {
            source: "2001:db8:b::1".parse().unwrap(),
            destination: "2001:db8::1".parse().unwrap(),
        };
        assert_eq!(settings.answers, tunnel);
        assert_eq!((settings.addresses.len(), settings.balancers.len()), (2, 2));
        assert_eq!(settings.next_hop, Some(MacAddress::new([2, 0, 0, 0, 0, 1])));
        assert_eq!((settings.mtu_bytes, cli.run.report), (9000, ReportFormat::Json));
        assert_eq!(cli.run.duration, Some(Duration::from_millis(500)));
        assert_eq!(cli.run.eal, ["-l", "0"]);
    }

    #[test]
    fn a_wrong_argument_is_named_on_one_line_with_what_to_write() {
        let with = |more: &str| format!("{LEAST} {more}");
        for (line, expected) in [
            (String::new(), "--port <DEVICE>"),
            (with("--address host"), "host"),
            (with("--balancer 192.0.2.1/33"), "write a length from 0 to 32"),
            (with("--mtu 1300"), "1300 is not in 1320..=65535"),
            (with("--next-hop-mac 02:00"), "02:00"),
            (with("--duration -1"), "number of seconds above 0"),
            (with("--report xml"), "text, json"),
            (with("--return-path"), "a value is required"),
            (with("net_null0"), "unexpected argument 'net_null0'"),
            (LEAST.replace("tap0", "a,b"), "write 1 to 15 letters"),
            (LEAST.replace("tap0", "0123456789abcdef"), "write 1 to 15 letters"),
        ] {
            let Err(Failure::Input(message)) = read(&line) else { panic!("{line}") };
            assert!(message.contains(expected), "{line}: {message}");
            assert!(!message.contains('\n') && message.contains("--help"), "{message}");
        }
        let no_own = read(&with("--return-path 2001:db8::1")).unwrap().settings().unwrap_err();
        assert!(no_own.to_string().contains("add an own IPv6 address"), "{no_own}");
        let help = read("--help").unwrap_err();
        assert!(matches!(help, Failure::Help(text) if text.contains("ip rule add from")));
    }
}
