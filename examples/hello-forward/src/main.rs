//! Forwards packets from one port to another: the first sample of hotloop's guide, as a program.
//! `hello-forward --help` says more. `hello-forward ctl` asks one that runs.

mod cli;
mod forward;

use clap::Parser as _;
use cli::{Cli, Mode, ReportFormat};
use forward::{io, mac_swap};
use hotloop::engine::Graph;
use hotloop::prelude::*;
use hotloop_ops::{CONTROL, Failure, Socket, operate, print_in_time, usage};
use std::process::ExitCode;

const NAME: &str = "hello-forward";

fn main() -> ExitCode {
    hotloop_ops::program(NAME, || {
        if let Some(code) = hotloop_ops::ctl(NAME, std::env::args_os()) {
            return code;
        }
        let cli = Cli::try_parse().map_err(|error| usage(&error));
        hotloop_ops::exit_code(cli.and_then(|cli| forward(&cli)))
    })
}

fn forward(cli: &Cli) -> Result<(), Failure> {
    cli.log.begin();
    let socket = cli.control.bind(NAME)?;
    let eal = if cli.eal.is_empty() { Eal::embedded()? } else { Eal::with_args(&cli.eal)? };
    let (a, b) = (cli.devices.open(eal, &cli.port_a)?, cli.devices.open(eal, &cli.port_b)?);
    let (receive, send) = (|core: &Core| a.rx_queue(core), |core: &Core| b.tx_queue(core));
    match cli.mode {
        Mode::Io => run(cli, socket, io(receive, send)),
        Mode::MacSwap => run(cli, socket, mac_swap(receive, send)),
    }
}

fn run(cli: &Cli, mut socket: Option<Socket>, graph: impl Graph) -> Result<(), Failure> {
    let plan = Engine::plan(graph, Deployment::run_to_completion(cli.workers))
        .map_err(|error| Failure::Input(error.to_string()))?
        .idle(cli.idle.idle());
    let result =
        hotloop_ops::run(plan, CONTROL, |control| operate(control, socket.as_mut(), cli.duration));
    let report = match &result {
        Ok(report) => Some(report),
        Err(error) => error.report(),
    };
    if let Some(report) = report {
        print_in_time(&match cli.report {
            ReportFormat::Text => format!("{report}\n"),
            ReportFormat::Json => format!("{}\n", report.to_json()),
        })?;
    }
    Ok(result.map(drop)?)
}
