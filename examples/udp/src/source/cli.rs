//! The source's command line.

use crate::address::Address;
use crate::arguments::{Common, Load, Way};
use crate::source::datagrams::Plan;
use crate::source::flows::Flows;
use clap::Parser;
use hotloop::packet::ethernet::MacAddress;
use hotloop_ops::{Failure, seconds};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The default destination port.
const PORT: u16 = 4321;

/// Addresses reserved for measurements (RFC 2544, RFC 5180): the default source and destination for
/// devices.
const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
const FROM_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1));
const TO: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2));

/// The default destination MAC address.
const TO_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 2]);

/// Maximum number of flows with the kernel's sockets: each is a socket.
const SOCKET_COUNT_MAX: u32 = 60_000;

/// Sends UDP datagrams, as fast as possible or at a rate, and prints each second how many were
/// sent: millions of packets, payload in 2^20 bytes, payload in 10^6 bits. Ends with a summary.
/// With --report json, the lines of each second go to standard error.
///
/// Sends through the kernel's sockets, or through a device of DPDK with --port. Payloads of 24
/// bytes and more begin with their flow, number and time, which udp-sink uses to verify and
/// measure.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "udp-source",
    version,
    after_help = "udp-source ctl --help: asking one that runs."
)]
pub struct Cli {
    /// Destinations, for flows in turn: 192.0.2.1, 192.0.2.1:53, `[2001:db8::1]:53`. The default
    /// port is 4321 [default with --port: 198.18.0.2].
    #[arg(value_name = "ADDRESS[:PORT]")]
    pub to: Vec<Address>,
    /// Arguments of both programs.
    #[command(flatten)]
    pub common: Common,
    /// The load.
    #[command(flatten)]
    pub load: Load,
    /// The first source address [default with --port: 198.18.0.1, or 2001:2::1; without: the kernel's choice].
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<IpAddr>,
    /// The first source port.
    #[arg(long, value_name = "PORT", default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..))]
    pub source_port: u16,
    /// With dpdk: source MAC address; without it, the device's own.
    #[arg(long, value_name = "MAC")]
    pub from_mac: Option<MacAddress>,
    /// With dpdk: destination MAC address [default: 02:00:00:00:00:02].
    #[arg(long, value_name = "MAC")]
    pub to_mac: Option<MacAddress>,
    /// With dpdk: resolve the destination MAC addresses with ARP or neighbour discovery: the one of
    /// this next hop, or those of the destinations themselves. Answers go to --from.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, conflicts_with = "to_mac")]
    pub next_hop: Option<Option<IpAddr>>,
    /// With dpdk: number of seconds to wait for the link, and for answers, before giving up.
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds, allow_negative_numbers = true)]
    pub link_wait: Duration,
}

impl Cli {
    /// The kind of I/O, and the flows to send.
    ///
    /// # Errors
    /// [`Failure::Input`] if the arguments contradict each other.
    pub fn flows(&self) -> Result<(Way<'_>, Flows), Failure> {
        let way = self.common.way()?;
        let wrong = |message: String| Err(Failure::Input(message));
        let to: Vec<_> = self
            .to
            .iter()
            .map(|address| SocketAddr::new(address.ip, address.port.unwrap_or(PORT)))
            .collect();
        let to = match (to.is_empty(), way) {
            (false, _) => to,
            (true, Way::Dpdk(_)) => vec![SocketAddr::new(TO, PORT)],
            (true, Way::Kernel) => {
                return wrong(
                    "say where to: an address, such as 192.0.2.1 or 192.0.2.1:53".to_owned(),
                );
            }
        };
        let is_v4 = to[0].is_ipv4();
        let from = self.from.unwrap_or(match (way, is_v4) {
            (Way::Kernel, true) => Ipv4Addr::UNSPECIFIED.into(),
            (Way::Kernel, false) => Ipv6Addr::UNSPECIFIED.into(),
            (Way::Dpdk(_), true) => FROM,
            (Way::Dpdk(_), false) => FROM_V6,
        });
        let next_hop = self.next_hop.flatten();
        if let Some(other) = to
            .iter()
            .map(SocketAddr::ip)
            .chain([from])
            .chain(next_hop)
            .find(|address| address.is_ipv4() != is_v4)
        {
            return wrong(format!(
                "{} and {other}: give all addresses in IPv4 or all in IPv6",
                to[0].ip()
            ));
        }
        let flows = Flows { from, first_port: self.source_port, to, count: self.load.flow_count() };
        self.check(way, &flows)?;
        Ok((way, flows))
    }

    fn check(&self, way: Way<'_>, flows: &Flows) -> Result<(), Failure> {
        let wrong = |message: String| Err(Failure::Input(message));
        let (count, cores) = (flows.count, self.common.core_count());
        if (count as usize) < cores {
            return wrong(format!(
                "--flows {count}: each of {cores} cores sends flows of its own; ask for at least {cores}"
            ));
        }
        if way == Way::Kernel && count > SOCKET_COUNT_MAX {
            return wrong(format!(
                "--flows {count}: by the kernel's sockets at most {SOCKET_COUNT_MAX}, as each flow is one"
            ));
        }
        if flows.from.is_unspecified() && flows.address_count() > 1 {
            let ports = flows.ports();
            return wrong(format!(
                "--flows {count}: from port {} on there are {ports} source ports; ask for fewer flows, begin lower \
                 with --source-port, or say by --from from which addresses",
                flows.first_port
            ));
        }
        Ok(())
    }

    /// The neighbour to resolve for each destination, or `None` unless `--next-hop` is given.
    #[must_use]
    pub fn neighbours(&self, flows: &Flows) -> Option<Vec<IpAddr>> {
        let next_hop = self.next_hop?;
        Some(flows.to.iter().map(|to| next_hop.unwrap_or(to.ip())).collect())
    }

    /// The plan for a port with this MAC address. `neighbours` are the resolved ones, if any.
    #[must_use]
    pub fn plan(
        &self,
        flows: Flows,
        own_mac: MacAddress,
        neighbours: Option<Vec<MacAddress>>,
    ) -> Plan {
        let to_mac = self.to_mac.unwrap_or(TO_MAC);
        Plan {
            from_mac: self.from_mac.unwrap_or(own_mac),
            to_macs: neighbours.unwrap_or_else(|| vec![to_mac; flows.to.len()]),
            flows,
            payload_bytes: self.load.payload_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_ops::parse;

    fn read(line: &str) -> Result<Plan, Failure> {
        let cli: Cli = parse(std::iter::once("udp-source").chain(line.split_whitespace()))?;
        let (_, flows) = cli.flows()?;
        let neighbours = cli.neighbours(&flows);
        assert!(neighbours.is_none_or(|all| all.len() == flows.to.len()));
        Ok(cli.plan(flows, MacAddress::new([2, 0, 0, 0, 0, 9]), None))
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let plan = read("--port net_null0").unwrap();
        assert_eq!((plan.payload_bytes, plan.flows.count), (32, 64));
        assert_eq!(plan.flows.source(0), "198.18.0.1:10000".parse().unwrap());
        assert_eq!(plan.flows.to, ["198.18.0.2:4321".parse().unwrap()]);
        assert_eq!(plan.from_mac, MacAddress::new([2, 0, 0, 0, 0, 9]));
        let plan = read("127.0.0.1").unwrap();
        assert_eq!(plan.flows.source(0), "0.0.0.0:10000".parse().unwrap());
    }

    #[test]
    fn everything_can_be_said() {
        let line = "[2001:db8::2]:53 2001:db8::3 --port net_null0 --queues 2 --rate 1000 --flows 2 --payload 0 \
                    --from 2001:db8::1 --source-port 1 --from-mac 02:00:00:00:00:01 \
                    --to-mac ff:ff:ff:ff:ff:ff --link-wait 0.5 --duration 1 -- -l 0-1";
        let plan = read(line).unwrap();
        let to = ["[2001:db8::2]:53", "[2001:db8::3]:4321"].map(|address| address.parse().unwrap());
        assert_eq!((plan.flows.first_port, &plan.flows.to[..]), (1, &to[..]));
        assert_eq!(plan.to_macs, [MacAddress::BROADCAST; 2]);
        assert_eq!(plan.from_mac, MacAddress::new([2, 0, 0, 0, 0, 1]));
    }

    #[test]
    fn destinations_or_a_next_hop_are_asked() {
        let asked = |line: &str| {
            let cli: Cli =
                parse(std::iter::once("udp-source").chain(line.split_whitespace())).unwrap();
            let (_, flows) = cli.flows().unwrap();
            cli.neighbours(&flows)
                .map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let to = "10.0.0.1 10.0.0.2 --port a";
        assert_eq!(asked(to), None);
        assert_eq!(asked(&format!("{to} --next-hop")).unwrap(), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(asked(&format!("{to} --next-hop=10.0.0.9")).unwrap(), ["10.0.0.9"; 2]);
    }

    #[test]
    fn the_essays_command_line_is_understood() {
        let plan =
            read("192.168.254.1:4321 192.168.254.2:4321 --source-port 65400 --flows 2").unwrap();
        let of =
            |index| (plan.flows.source(index).port(), plan.flows.destination(index).to_string());
        assert_eq!(of(0), (65_400, "192.168.254.1:4321".to_owned()));
        assert_eq!(of(1), (65_401, "192.168.254.2:4321".to_owned()));
    }

    #[test]
    fn a_wrong_argument_is_named_on_one_line_with_what_to_write() {
        for (line, expected) in [
            ("", "say where to"),
            ("--port a --rate 0", "0 is not in 1..=1000000000"),
            ("--port a --flows 0", "0 is not in 1..=1048576"),
            ("10.0.0.1 --flows 60000", "55536 source ports"),
            ("10.0.0.1 --flows 60001 --from 10.0.0.2", "at most 60000"),
            ("--port a --queues 3 --flows 2", "at least 3"),
            ("--port a --payload 1453", "1453 is not in 0..=1452"),
            ("--port a --from 10.0.0.1:5", "invalid IP address"),
            ("--port a --source-port 0", "0 is not in 1..=65535"),
            ("--port a 10.0.0.1:0", "1 to 65535"),
            ("--port a 10.0.0.1 2001:db8::2", "all in IPv6"),
            ("--port a 10.0.0.1 --from 2001:db8::2", "all in IPv6"),
            ("--port a --to-mac 02:00", "six bytes"),
            ("--port a --next-hop --to-mac 02:00:00:00:00:02", "cannot be used with"),
            ("--port a 10.0.0.1 --next-hop=2001:db8::1", "all in IPv6"),
            ("--port a --link-wait never", "number of seconds above 0"),
        ] {
            let Err(Failure::Input(message)) = read(line) else { panic!("{line}") };
            assert!(message.contains(expected), "{line}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
