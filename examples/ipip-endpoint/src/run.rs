//! The program: opens the port and the TAP interface, and runs the graph.

use crate::cli::Cli;
use crate::endpoint::Endpoint;
use crate::graph::graph;
use crate::settings::{Answers, Settings, Stations};
use hotloop::dpdk;
use hotloop::prelude::*;
use hotloop_ops::Failure;

/// Runs the program.
///
/// # Errors
/// An error in the command line, or the reason why the run was not whole.
pub fn run(cli: &Cli) -> Result<(), Failure> {
    let settings = cli.settings()?;
    let socket = cli.run.begin("ipip-endpoint")?;
    let eal = cli.run.eal()?;
    let wire = cli.run.devices.open(eal, &cli.port)?;
    let tap = Port::open(eal, &format!("net_tap0,iface={}", cli.tap))?;
    let stations = Stations { wire: wire.mac(), kernel: tap.mac() };
    let endpoint = Endpoint::new(settings.clone(), stations)
        .map_err(|error| Failure::Input(error.to_string()))?;
    let nf = graph(
        |core| Ok::<_, dpdk::Error>([wire.rx_queue(core)?, tap.rx_queue(core)?]),
        |core| Ok::<_, dpdk::Error>([wire.tx_queue(core)?, tap.tx_queue(core)?]),
        &endpoint,
    );
    let plan = cli.run.plan(nf, Deployment::run_to_completion(1))?;
    tracing::info!("{}", summary(cli, &settings));
    cli.run.run(plan, socket)
}

fn summary(cli: &Cli, settings: &Settings) -> String {
    let answers = match settings.answers {
        Answers::Direct => "straight to clients".to_owned(),
        Answers::Tunnelled { destination, .. } => format!("through {destination}"),
    };
    let addresses: Vec<_> = settings.addresses.iter().map(ToString::to_string).collect();
    format!("{} to {}, answers {answers}", addresses.join(", "), cli.tap)
}
