//! A NAT44 between a LAN and a WAN port. See `nat44 --help`. `nat44 ctl` queries a running program.

mod cli;

use cli::Cli;
use hotloop::dpdk;
use hotloop::packet::arp::Neighbour;
use hotloop::prelude::*;
use hotloop_ops::Failure;
use nat44::nat::{Settings, Side, nat};
use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::main("nat44", |cli| run(&cli))
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let socket = cli.run.begin("nat44")?;
    let (eal, devices) = (cli.run.eal()?, &cli.run.devices);
    let (lan, wan) = (devices.open(eal, &cli.lan)?, devices.open(eal, &cli.wan)?);
    let settings = Settings {
        lan_port: lan.id()?,
        lan: Neighbour { mac: lan.mac(), address: cli.lan_address },
        wan: Neighbour { mac: wan.mac(), address: cli.wan_address },
        gateway: cli.next_hop_mac,
    };
    let received =
        source(|core| Ok::<_, dpdk::Error>(sources([lan.rx_queue(core)?, wan.rx_queue(core)?])));
    let nf = nat(received, &settings).sink(|core| {
        let queues = [(Side::Lan, lan.tx_queue(core)?), (Side::Wan, wan.tx_queue(core)?)];
        Ok::<_, dpdk::Error>(outlets(queues))
    });
    cli.run.run(cli.run.plan(nf, cli.cores.deployment())?, socket)
}
