//! A DNS responder. See `dns-responder --help`. `dns-responder ctl` queries a running program.

use clap::Parser;
use dns_responder::{responder::Responder, zone::Zone};
use hotloop::prelude::*;
use hotloop_ops::{Failure, RunArgs};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Answers DNS queries over UDP from a zone file.
#[derive(Clone, Debug, Parser)]
#[command(version, after_help = "dns-responder ctl --help: asking one that runs.")]
struct Cli {
    /// The port: a device string, or an address on the PCI bus.
    #[arg(long, value_name = "DEVICE")]
    port: String,
    /// An address of the responder, IPv4 or IPv6; may be repeated.
    #[arg(long = "address", value_name = "ADDRESS", required = true)]
    addresses: Vec<IpAddr>,
    /// The zone file, of lines with NAME TTL ADDRESS.
    #[arg(long, value_name = "FILE")]
    zone: PathBuf,
    /// Number of cores, each with an RX and a TX queue of its own.
    #[arg(long, value_name = "N", default_value_t = 1)]
    cores: usize,
    /// Arguments of the run.
    #[command(flatten)]
    run: RunArgs,
}

fn main() -> ExitCode {
    hotloop_ops::main("dns-responder", |cli| run(&cli))
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let socket = cli.run.begin("dns-responder")?;
    let text = std::fs::read_to_string(&cli.zone).map_err(|error| error.to_string());
    let zone = text.and_then(|text| Zone::parse(&text));
    let zone = zone.map_err(|why| Failure::Input(format!("{}: {why}", cli.zone.display())))?;
    let port = cli.run.devices.open(cli.run.eal()?, &cli.port)?;
    let (addresses, zone) = (cli.addresses.clone(), Arc::new(zone));
    let responder = Responder { mac: port.mac(), addresses, zone };
    let graph = source(|core| port.rx_queue(core))
        .stage(|_| Classify::outermost())
        .stage(|_| responder.clone())
        .sink(|core| port.tx_queue(core));
    cli.run.run(cli.run.plan(graph, Deployment::run_to_completion(cli.cores))?, socket)
}
