//! Forwards packets from one port to another: the first sample of hotloop's guide, as a program.
//! `hello-forward --help` says more.

mod cli;
mod forward;

use clap::Parser;
use cli::{Cli, Mode, ReportFormat};
use forward::{io, mac_swap};
use hotloop::engine::{Graph, Plan, RunError};
use hotloop::prelude::*;
use std::process::ExitCode;

/// Exit code where another command line would help.
const WRONG_INPUT: u8 = 2;

fn main() -> ExitCode {
    // The parser itself ends the program, with 2, where an argument is wrong.
    let cli = Cli::parse();
    let ports = match open(&cli) {
        Ok(ports) => ports,
        Err(error) => return failed(&error, WRONG_INPUT),
    };
    let (receive, send) =
        (|core: &Core| ports.0.rx_queue(core), |core: &Core| ports.1.tx_queue(core));
    match cli.mode {
        Mode::Io => run(&cli, io(receive, send)),
        Mode::MacSwap => run(&cli, mac_swap(receive, send)),
    }
}

fn open(cli: &Cli) -> hotloop::Result<(Port, Port)> {
    let eal = if cli.eal.is_empty() { Eal::embedded()? } else { Eal::with_args(&cli.eal)? };
    Ok((Port::open(eal, &cli.port_a)?, Port::open(eal, &cli.port_b)?))
}

fn run(cli: &Cli, graph: impl Graph) -> ExitCode {
    let plan = match Engine::plan(graph, Deployment::run_to_completion(cli.workers)) {
        Ok(plan) => plan,
        Err(error) => return failed(&error, WRONG_INPUT),
    };
    let result = forward(cli, plan);
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

fn forward(cli: &Cli, plan: Plan<impl Graph>) -> Result<Report, RunError> {
    plan.run(|control| {
        match cli.duration {
            Some(duration) => control.wait_for_signal_or(duration),
            None => control.wait_for_signal(),
        };
    })
}

fn failed(error: &impl std::fmt::Display, code: u8) -> ExitCode {
    eprintln!("hello-forward: {error}");
    ExitCode::from(code)
}
