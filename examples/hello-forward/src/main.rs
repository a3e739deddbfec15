//! Forwards packets from one port to another: the first sample of hotloop's guide, as a program.
//! See `hello-forward --help`. `hello-forward ctl` queries a running program.

mod cli;
mod forward;

use cli::{Cli, Mode};
use forward::{io, mac_swap};
use hotloop::engine::Graph;
use hotloop::prelude::*;
use hotloop_ops::{Failure, Socket};
use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::main("hello-forward", |cli| forward(&cli))
}

fn forward(cli: &Cli) -> Result<(), Failure> {
    let socket = cli.run.begin("hello-forward")?;
    let (eal, devices) = (cli.run.eal()?, &cli.run.devices);
    let (a, b) = (devices.open(eal, &cli.port_a)?, devices.open(eal, &cli.port_b)?);
    let (receive, send) = (|core: &Core| a.rx_queue(core), |core: &Core| b.tx_queue(core));
    match cli.mode {
        Mode::Io => run(cli, socket, io(receive, send)),
        Mode::MacSwap => run(cli, socket, mac_swap(receive, send)),
    }
}

fn run(cli: &Cli, socket: Option<Socket>, graph: impl Graph) -> Result<(), Failure> {
    let plan = cli.run.plan(graph, Deployment::run_to_completion(cli.workers))?;
    cli.run.run(plan, socket)
}
