//! Forwards packets from one port to another: the first sample of hotloop's guide, as a program.
//! `hello-forward --help` says more. `hello-forward ctl` asks one that runs.

mod cli;
mod forward;

use clap::Parser;
use cli::{Cli, Mode, ReportFormat};
use forward::{io, mac_swap};
use hotloop::engine::{Graph, RunError};
use hotloop::prelude::*;
use hotloop_ops::{Socket, operate};
use std::process::ExitCode;

const NAME: &str = "hello-forward";

/// Exit code where another command line would help.
const WRONG_INPUT: u8 = 2;

fn main() -> ExitCode {
    if let Some(code) = hotloop_ops::ctl(NAME, std::env::args_os()) {
        return code;
    }
    // The parser itself ends the program, with 2, where an argument is wrong.
    let cli = Cli::parse();
    let socket = match cli.control.bind(NAME) {
        Ok(socket) => socket,
        Err(error) => return failed(&error, WRONG_INPUT),
    };
    let ports = match open(&cli) {
        Ok(ports) => ports,
        Err(error) => return failed(&error, WRONG_INPUT),
    };
    let (receive, send) =
        (|core: &Core| ports.0.rx_queue(core), |core: &Core| ports.1.tx_queue(core));
    match cli.mode {
        Mode::Io => run(&cli, socket, io(receive, send)),
        Mode::MacSwap => run(&cli, socket, mac_swap(receive, send)),
    }
}

fn open(cli: &Cli) -> hotloop::Result<(Port, Port)> {
    let eal = if cli.eal.is_empty() { Eal::embedded()? } else { Eal::with_args(&cli.eal)? };
    Ok((cli.devices.open(eal, &cli.port_a)?, cli.devices.open(eal, &cli.port_b)?))
}

fn run(cli: &Cli, mut socket: Option<Socket>, graph: impl Graph) -> ExitCode {
    let plan = match Engine::plan(graph, Deployment::run_to_completion(cli.workers)) {
        Ok(plan) => plan,
        Err(error) => return failed(&error, WRONG_INPUT),
    };
    let result = plan.run(|control| operate(control, socket.as_mut(), cli.duration));
    let report = match &result {
        Ok(report) => Some(report),
        Err(error) => error.report(),
    };
    if let Some(report) = report {
        match cli.report {
            ReportFormat::Text => println!("{report}"),
            ReportFormat::Json => println!("{}", report.to_json()),
        }
    }
    match result {
        Ok(_) => ExitCode::SUCCESS,
        // What keeps a run from starting is a device that can't do what was asked of it.
        Err(error @ RunError::Start(_)) => failed(&error, WRONG_INPUT),
        Err(error) => failed(&error, 1),
    }
}

fn failed(error: &impl std::fmt::Display, code: u8) -> ExitCode {
    eprintln!("{NAME}: {error}");
    ExitCode::from(code)
}
