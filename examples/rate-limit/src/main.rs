//! A rate limiter between two ports. See `rate-limit --help`. `rate-limit ctl` queries a running program.

mod cli;

use cli::Cli;
use hotloop::prelude::*;
use hotloop_ops::Failure;
use rate_limit::limited;
use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::main("rate-limit", |cli| run(&cli))
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let socket = cli.run.begin("rate-limit")?;
    let (eal, devices) = (cli.run.eal()?, &cli.run.devices);
    let (a, b) = (devices.open(eal, &cli.port_a)?, devices.open(eal, &cli.port_b)?);
    let received = source(|core: &Core| a.rx_queue(core));
    let nf = limited(received, cli.limits()).sink(|core: &Core| b.tx_queue(core));
    cli.run.run(cli.run.plan(nf, cli.cores.deployment())?, socket)
}
