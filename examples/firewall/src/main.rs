//! A stateful firewall between two ports. See `firewall --help`. `firewall ctl` queries a running program.

use clap::{Parser, Subcommand};
use firewall::firewall::{Firewall, filtered};
use firewall::operator::Operator;
use firewall::packet::Side;
use firewall::rules::Rules;
use hotloop::{dpdk, prelude::*};
use hotloop_ops::{CtlArgs, DeploymentArgs, Failure, Listing, Request, RunArgs};
use serde_json::Value;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

const NAME: &str = "firewall";

/// Lets pass what rules allow, and the packets of connections that such packets have opened.
#[derive(Parser)]
#[command(version, after_help = "firewall ctl --help: asking one that runs.")]
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
    /// List the rules, each with the number of packets that it matched.
    Rules,
    /// List the connections of all cores.
    Connections,
    /// Read the file of rules again. Connections go on.
    Reload,
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let socket = cli.run.begin_with_hangup(NAME)?;
    let deployment = cli.deployment.deployment();
    let rules = Rules::read(&cli.rules, deployment, &Rules::default()).map_err(Failure::Input)?;
    let rules = Arc::new(rules);
    let (eal, devices) = (cli.run.eal()?, &cli.run.devices);
    let (inside, outside) = (devices.open(eal, &cli.inside)?, devices.open(eal, &cli.outside)?);
    let port = inside.id()?;
    let (publisher, subscribers) = publish(Arc::clone(&rules));
    let (asker, mailboxes) = mailbox(1);
    let received = source(|core| {
        let queues = [inside.rx_queue(core)?, outside.rx_queue(core)?];
        Ok::<_, dpdk::Error>(sources(queues))
    });
    let seed = RandomState::new().hash_one(NAME);
    let chain = filtered(received, seed, |core| {
        let lister = Lister::new(mailboxes.open(core)?);
        Firewall::new(core, port, cli.connections, subscribers.subscribe(), lister)
    });
    let graph = chain.sink(|core| {
        let [inside, outside] = [inside.tx_queue(core)?, outside.tx_queue(core)?];
        Ok::<_, dpdk::Error>(outlets([(Side::Inside, inside), (Side::Outside, outside)]))
    });
    let (path, connections) = (cli.rules.clone(), Listing::new("connections", asker));
    let mut operator =
        Operator { path, deployment, rules, publisher, connections, has_failed: false };
    cli.run.run_with(cli.run.plan(graph, deployment)?, socket, &mut operator)
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
