//! The program: opens the port and the TAP interface, and runs the graph.

use crate::cli::{Cli, ReportFormat};
use crate::endpoint::Endpoint;
use crate::graph::graph;
use crate::settings::{Answers, Settings, Stations};
use hotloop::dpdk;
use hotloop::engine::RunError;
use hotloop::prelude::*;
use hotloop_ops::Failure;
use hotloop_ops::{CONTROL, operate, print_in_time};

/// Runs the program.
///
/// # Errors
/// What is wrong with the command line, and what kept the run from being whole.
pub fn run(cli: &Cli) -> Result<(), Failure> {
    cli.log.begin();
    let settings = cli.settings()?;
    let mut socket = cli.control.bind("ipip-endpoint")?;
    let eal = if cli.eal.is_empty() { Eal::embedded() } else { Eal::with_args(&cli.eal) }?;
    let wire = cli.devices.open(eal, &cli.port)?;
    let tap = Port::open(eal, &format!("net_tap0,iface={}", cli.tap))?;
    let stations = Stations { wire: wire.mac(), kernel: tap.mac() };
    let endpoint = Endpoint::new(settings.clone(), stations)
        .map_err(|error| Failure::Input(error.to_string()))?;
    let nf = graph(
        |core| Ok::<_, dpdk::Error>([wire.rx_queue(core)?, tap.rx_queue(core)?]),
        |core| Ok::<_, dpdk::Error>([wire.tx_queue(core)?, tap.tx_queue(core)?]),
        &endpoint,
    );
    let plan = Engine::plan(nf, Deployment::run_to_completion(1))
        .map_err(|error| Failure::Input(error.to_string()))?
        .idle(cli.idle.idle());
    let result = hotloop_ops::run(plan, CONTROL, |control| {
        tracing::info!("running: {}; Ctrl-C ends it", summary(cli, &settings));
        operate(control, socket.as_mut(), cli.duration)
    });
    match &result {
        Ok(report) => print(cli.report, report)?,
        Err(error) => error.report().map_or(Ok(()), |report| print(cli.report, report))?,
    }
    result.map(drop).map_err(|error: RunError| Failure::from(error))
}

fn summary(cli: &Cli, settings: &Settings) -> String {
    let answers = match settings.answers {
        Answers::Direct => "straight to clients".to_owned(),
        Answers::Tunnelled { destination, .. } => format!("through {destination}"),
    };
    let addresses: Vec<_> = settings.addresses.iter().map(ToString::to_string).collect();
    format!("{} to {}, answers {answers}", addresses.join(", "), cli.tap)
}

fn print(format: ReportFormat, report: &Report) -> Result<(), Failure> {
    let text = match format {
        ReportFormat::Text => report.to_string(),
        ReportFormat::Json => report.to_json(),
    };
    Ok(print_in_time(&format!("{}\n", text.trim_end()))?)
}
