//! A NAT44 between a LAN and a WAN port. See `nat44 --help`. `nat44 ctl` queries a running program.

mod cli;

use cli::Cli;
use hotloop::{dpdk, packet::arp::Neighbour, prelude::*};
use hotloop_ops::Failure;
use nat44::nat::{Policy, Settings, Side, nat};
use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::main("nat44", |cli| run(&cli))
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let socket = cli.run.begin("nat44")?;
    let (eal, devices) = (cli.run.eal()?, &cli.run.devices);
    let (lan, wan) = (devices.open(eal, &cli.lan)?, devices.open(eal, &cli.wan)?);
    // The loop for packets from one host of the LAN to another's port of the WAN address.
    let hairpin = devices.open(eal, "net_ring_hairpin")?;
    let Cli { connections, ports_per_host, .. } = *cli;
    let filters = cli.filtering == cli::PORT_DEPENDENT;
    let settings = Settings {
        lan_port: lan.id()?,
        lan: Neighbour { mac: lan.mac(), address: cli.lan_address },
        wan: Neighbour { mac: wan.mac(), address: cli.wan_address },
        gateway: cli.next_hop_mac,
        policy: Policy { filters, connections, ports_per_host },
    };
    let deployment = cli.cores.deployment();
    let received = source(|core| {
        let mut queues = vec![lan.rx_queue(core)?, wan.rx_queue(core)?];
        // Every sending core has a loop of its own.
        for _ in 0..deployment.cores_in(1).div_ceil(core.count()) {
            queues.push(hairpin.rx_queue(core)?);
        }
        Ok::<_, dpdk::Error>(sources(queues))
    });
    let nf = nat(received, &settings).sink(|core| {
        let (to_lan, to_wan) = ((Side::Lan, lan.tx_queue(core)?), (Side::Wan, wan.tx_queue(core)?));
        Ok::<_, dpdk::Error>(outlets([to_lan, to_wan, (Side::Hairpin, hairpin.tx_queue(core)?)]))
    });
    cli.run.run(cli.run.plan(nf, deployment)?, socket)
}
