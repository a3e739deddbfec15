//! A NAT44 between a LAN and a WAN port. See `nat44 --help`. `nat44 ctl` queries a running program.

mod ctl;

use clap::Parser;
use hotloop::packet::{arp::Neighbour, ethernet::MacAddress};
use hotloop::{dpdk, prelude::*};
use hotloop_ops::{DeploymentArgs, Failure, Listing, RunArgs};
use nat44::nat::{Settings, Side, nat};
use std::{net::Ipv4Addr, process::ExitCode};

/// The default filtering.
const PORT_DEPENDENT: &str = "address-and-port-dependent";

/// Lets the hosts of a LAN reach the WAN from one IPv4 address: TCP, UDP and pings, with the ICMP
/// errors about them.
#[derive(Clone, Debug, Parser)]
#[command(name = "nat44", version, after_help = "nat44 ctl --help: asking one that runs.")]
struct Cli {
    /// The port towards the LAN: a device string, or an address on the PCI bus.
    #[arg(long, value_name = "DEVICE")]
    lan: String,
    /// The port towards the WAN.
    #[arg(long, value_name = "DEVICE")]
    wan: String,
    /// The NAT's address in the LAN, the hosts' gateway.
    #[arg(long, value_name = "ADDRESS")]
    lan_address: Ipv4Addr,
    /// The address that the hosts share in the WAN.
    #[arg(long, value_name = "ADDRESS")]
    wan_address: Ipv4Addr,
    /// The station that packets to the WAN are sent to: the next router, or the other end of a
    /// cable.
    #[arg(long, value_name = "MAC")]
    next_hop_mac: MacAddress,
    /// The packets from the WAN that reach a port of a host: those from an address and port that
    /// the host has sent to (address-and-port-dependent), or all (endpoint-independent).
    #[arg(long, value_name = "BEHAVIOUR", default_value = PORT_DEPENDENT)]
    #[arg(value_parser = [PORT_DEPENDENT, "endpoint-independent"])]
    filtering: String,
    /// Maximum number of connections of one core.
    #[arg(long, value_name = "NUMBER", default_value_t = 1 << 18)]
    connections: usize,
    /// Maximum number of ports of the WAN address for a host, rounded up to a multiple of 64.
    #[arg(long, value_name = "NUMBER", default_value_t = 1024)]
    ports_per_host: u16,
    /// The roles of the cores.
    #[command(flatten)]
    cores: DeploymentArgs,
    /// Arguments of the run.
    #[command(flatten)]
    run: RunArgs,
}

fn main() -> ExitCode {
    hotloop_ops::main_with("nat44", |cli| run(&cli), ctl::ask)
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let socket = cli.run.begin("nat44")?;
    let (eal, devices) = (cli.run.eal()?, &cli.run.devices);
    let (lan, wan) = (devices.open(eal, &cli.lan)?, devices.open(eal, &cli.wan)?);
    // The loop for packets from one host of the LAN to another's port of the WAN address.
    let hairpin = devices.open(eal, "net_ring_hairpin")?;
    let settings = Settings {
        lan_port: lan.id()?,
        lan: Neighbour { mac: lan.mac(), address: cli.lan_address },
        wan: Neighbour { mac: wan.mac(), address: cli.wan_address },
        gateway: cli.next_hop_mac,
        filters: cli.filtering == PORT_DEPENDENT,
        connections: cli.connections,
        ports_per_host: cli.ports_per_host,
    };
    let deployment = cli.cores.deployment();
    let received = source(|core| {
        // Every sending core has a loop of its own.
        let loop_count = deployment.cores_in(1).div_ceil(core.count());
        let ports = [&lan, &wan].into_iter().chain(std::iter::repeat_n(&hairpin, loop_count));
        let queues: Result<Vec<_>, dpdk::Error> = ports.map(|port| port.rx_queue(core)).collect();
        queues.map(sources)
    });
    let (asker, mailboxes) = mailbox(1);
    let nf = nat(received, settings, |core| Ok(Lister::new(mailboxes.open(core)?))).sink(|core| {
        let (to_lan, to_wan) = ((Side::Lan, lan.tx_queue(core)?), (Side::Wan, wan.tx_queue(core)?));
        Ok::<_, dpdk::Error>(outlets([to_lan, to_wan, (Side::Hairpin, hairpin.tx_queue(core)?)]))
    });
    let mut operator = ctl::Operator(Listing::new("connections", asker));
    cli.run.run_with(cli.run.plan(nf, deployment)?, socket, &mut operator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::engine::Deployment;

    const LEAST: &str = "--lan net_ring0 --wan net_ring1 --lan-address 10.0.0.254 \
                         --wan-address 203.0.113.1 --next-hop-mac 02:00:00:00:00:01";

    fn read(more: &str) -> Result<Cli, Failure> {
        let words = [LEAST, more].join(" ");
        hotloop_ops::parse(std::iter::once("nat44").chain(words.split_whitespace()))
    }

    #[test]
    fn a_deployment_is_one_of_two() {
        for (more, expected) in [
            ("", Deployment::run_to_completion(1)),
            ("--run-to-completion 3", Deployment::run_to_completion(3)),
            ("--pipeline 1,2", Deployment::pipeline([1, 2])),
        ] {
            assert_eq!(read(more).unwrap().cores.deployment(), expected, "{more}");
        }
    }

    #[test]
    fn filtering_and_limits_are_options() {
        let cli = read("").unwrap();
        assert_eq!((cli.filtering.as_str(), cli.ports_per_host), (PORT_DEPENDENT, 1024));
        let options = "--filtering endpoint-independent --ports-per-host 64 --connections 10";
        let cli = read(options).unwrap();
        assert_eq!((cli.filtering.as_str(), cli.ports_per_host), ("endpoint-independent", 64));
        assert_eq!(cli.connections, 10);
    }

    #[test]
    fn a_wrong_argument_is_named_with_what_to_write() {
        for (more, expected) in [
            ("--pipeline 2", "two numbers of cores, such as 1,2"),
            ("--pipeline 1,x", "two numbers of cores, such as 1,2"),
            ("--pipeline 1,1 --run-to-completion 2", "cannot be used with"),
            ("--wan", "--wan <DEVICE>"),
            ("--filtering none", "address-and-port-dependent, endpoint-independent"),
        ] {
            let message = read(more).unwrap_err().to_string();
            assert!(message.contains(expected), "{more}: {message}");
        }
        let lacking = hotloop_ops::parse::<Cli>(["nat44"]).unwrap_err().to_string();
        assert!(lacking.contains("--next-hop-mac"), "{lacking}");
    }
}
