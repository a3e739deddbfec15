//! The source's command line.

use crate::datagrams::Plan;
use clap::Parser;
use hotloop::packet::ethernet::MacAddress;
use hotloop_ops::{Failure, seconds};
use std::net::SocketAddr;
use std::time::Duration;
use udp_sink::arguments::Common;

/// Sends UDP datagrams, as fast as it can or at a rate, and prints each second how many were sent:
/// millions of packets, payload in 2^20 bytes, payload in 10^6 bits. Ends with a summary. With
/// --report json, the lines of each second go to standard error.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "udp-source",
    version,
    after_help = "udp-source ctl --help: asking one that runs."
)]
pub struct Cli {
    /// What the sink takes too.
    #[command(flatten)]
    pub common: Common,
    /// Datagrams a second, over all queues; without it, as fast as it can.
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rate: Option<u64>,
    /// Flows, which differ in their source ports: those from --from's on.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub flows: u16,
    /// Bytes of payload in each datagram; 32 make frames of 74 bytes over IPv4.
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u16).range(0..=1452))]
    pub payload: u16,
    /// Address and first source port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "198.18.0.1:10000")]
    pub from: SocketAddr,
    /// Destination address and port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "198.18.0.2:9000")]
    pub to: SocketAddr,
    /// Source MAC address; without it, the device's own.
    #[arg(long, value_name = "MAC")]
    pub from_mac: Option<MacAddress>,
    /// Destination MAC address.
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:02")]
    pub to_mac: MacAddress,
    /// How many seconds to wait for the link before giving up.
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds, allow_negative_numbers = true)]
    pub link_wait: Duration,
}

impl Cli {
    /// What is to be sent, by a port with this MAC address.
    ///
    /// # Errors
    /// [`Failure::Input`] where the arguments contradict each other.
    pub fn plan(&self, own_mac: MacAddress) -> Result<Plan, Failure> {
        let wrong = |message: String| Err(Failure::Input(message));
        if self.from.is_ipv4() != self.to.is_ipv4() {
            let (from, to) = (self.from, self.to);
            return wrong(format!(
                "--from {from} and --to {to}: give both in IPv4 or both in IPv6"
            ));
        }
        for (name, address) in [("--from", self.from), ("--to", self.to)] {
            if address.port() == 0 {
                return wrong(format!("{name} {address}: give a port from 1 to 65535"));
            }
        }
        let (first, flows) = (self.from.port(), self.flows);
        if u32::from(first) + u32::from(flows) - 1 > u32::from(u16::MAX) {
            let left = u32::from(u16::MAX) - u32::from(first) + 1;
            return wrong(format!(
                "--flows {flows}: from port {first} on there are {left} source ports; ask for \
                 fewer flows, or begin lower with --from"
            ));
        }
        if flows < self.common.queues {
            let queues = self.common.queues;
            return wrong(format!(
                "--flows {flows}: each of {queues} queues sends flows of its own; ask for at least \
                 {queues}"
            ));
        }
        Ok(Plan {
            from: self.from,
            to: self.to,
            from_mac: self.from_mac.unwrap_or(own_mac),
            to_mac: self.to_mac,
            flow_count: flows,
            payload_bytes: self.payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_ops::parse;

    fn read(line: &str) -> Result<Plan, Failure> {
        let cli: Cli = parse(std::iter::once("udp-source").chain(line.split_whitespace()))?;
        cli.plan(MacAddress::new([2, 0, 0, 0, 0, 9]))
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let plan = read("--port net_null0").unwrap();
        assert_eq!((plan.payload_bytes, plan.flow_count, plan.to.port()), (32, 64, 9000));
        assert_eq!(plan.from_mac, MacAddress::new([2, 0, 0, 0, 0, 9]));
    }

    #[test]
    fn everything_can_be_said() {
        let line = "--port net_null0 --queues 2 --rate 1000 --flows 2 --payload 0 \
                    --from [2001:db8::1]:1 --to [2001:db8::2]:53 --from-mac 02:00:00:00:00:01 \
                    --to-mac ff:ff:ff:ff:ff:ff --link-wait 0.5 --duration 1 -- -l 0-1";
        let plan = read(line).unwrap();
        assert_eq!((plan.from.port(), plan.to_mac), (1, MacAddress::BROADCAST));
        assert_eq!(plan.from_mac, MacAddress::new([2, 0, 0, 0, 0, 1]));
    }

    #[test]
    fn a_wrong_argument_is_named_on_one_line_with_what_to_write() {
        for (line, expected) in [
            ("", "--port <DEVICE>"),
            ("--port a --rate 0", "0 is not in 1..=1000000000"),
            ("--port a --flows 0", "0 is not in 1..=65535"),
            ("--port a --flows 60000", "55536 source ports"),
            ("--port a --queues 3 --flows 2", "at least 3"),
            ("--port a --payload 1453", "1453 is not in 0..=1452"),
            ("--port a --from 10.0.0.1", "invalid socket address"),
            ("--port a --from 10.0.0.1:0", "--from 10.0.0.1:0"),
            ("--port a --to 10.0.0.1:0", "--to 10.0.0.1:0"),
            ("--port a --to [2001:db8::2]:53", "both in IPv6"),
            ("--port a --to-mac 02:00", "six bytes"),
            ("--port a --link-wait never", "number of seconds above 0"),
        ] {
            let Err(Failure::Input(message)) = read(line) else { panic!("{line}") };
            assert!(message.contains(expected), "{line}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
