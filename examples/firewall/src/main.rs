//! A stateful firewall between two devices.

use clap::{Parser, Subcommand};
use firewall::firewall::Firewall;
use firewall::network::network;
use firewall::operator::{Operator, read};
use hotloop::packet::seed::Seed;
use hotloop::prelude::*;
use hotloop_ops::{CtlArgs, DeploymentArgs, Failure, Listing, Request, RunArgs};
use serde_json::Value;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

const NAME: &str = "firewall";

/// Lets pass what rules allow, and the packets of connections that such packets have opened.
#[derive(Parser)]
struct Cli {
    /// The device towards the inside.
    #[arg(long, value_name = "DEVICE")]
    inside: String,
    /// The device towards the outside.
    #[arg(long, value_name = "DEVICE")]
    outside: String,
    /// The file of rules, read again at SIGHUP.
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// Maximum number of connections of each core.
    #[arg(long, default_value_t = 100_000)]
    connections: usize,
    #[command(flatten)]
    deployment: DeploymentArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// The own commands of `firewall ctl`.
#[derive(Subcommand)]
enum Command {
    /// List the rules, each with the number of packets that it decided about.
    Rules,
    /// List the connections of all cores.
    Connections,
    /// Read the file of rules again. Connections go on.
    Reload,
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let socket = cli.run.begin_with_hangup(NAME)?;
    let deployment = cli.deployment.deployment();
    let core_count = deployment.cores_in(deployment.group_count() - 1);
    let rules = Arc::new(read(&cli.rules, core_count).map_err(Failure::Input)?);
    let (eal, devices) = (cli.run.eal()?, &cli.run.devices);
    let (inside, outside) = (devices.open(eal, &cli.inside)?, devices.open(eal, &cli.outside)?);
    let port = inside.id()?;
    let (publisher, subscribers) = publish(Arc::clone(&rules));
    let (asker, mailboxes) = mailbox(1);
    let graph = network(
        |core| Ok::<_, hotloop::Error>([inside.rx_queue(core)?, outside.rx_queue(core)?]),
        |core| Ok::<_, hotloop::Error>([inside.tx_queue(core)?, outside.tx_queue(core)?]),
        |core| {
            let lister = Lister::new(mailboxes.open(core)?);
            Firewall::new(core, port, cli.connections, subscribers.subscribe(), lister)
        },
        Seed::new(RandomState::new().hash_one(NAME)),
    );
    let plan = cli.run.plan(graph, deployment)?;
    let listing = Listing::new("connections", asker);
    let mut operator = Operator::new(cli.rules.clone(), core_count, rules, publisher, listing);
    cli.run.run_with(plan, socket, &mut operator)
}

/// Sends a command to the program that runs, and prints its answer as JSON.
fn ask(ctl: &CtlArgs, command: Command) -> ExitCode {
    let name = match command {
        Command::Rules => "rules",
        Command::Connections => "connections",
        Command::Reload => "reload",
    };
    ctl.ask(NAME, &Request::new(name), Value::to_string)
}

fn main() -> ExitCode {
    hotloop_ops::main_with(NAME, |cli: Cli| run(&cli), ask)
}
