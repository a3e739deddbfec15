//! `cargo xtask demo`: shows the project on any machine.

mod capture;
mod compare;
mod replay;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use crate::failure::Failure;
use crate::process::{self, cargo};
use crate::setup::{self, Group};
use crate::workspace::Workspace;

const DEPLOYMENTS: [replay::Deployment; 2] = [
    replay::Deployment {
        name: "run to completion on 2 workers",
        file: "rtc.pcap",
        arguments: &["--deployment", "run-to-completion", "--workers", "2"],
    },
    replay::Deployment {
        name: "pipeline of 1 + 2 cores",
        file: "pipeline.pcap",
        arguments: &["--deployment", "pipeline", "--dispatchers", "1", "--workers", "2"],
    },
];

/// The needs of the demo of several balancers.
pub const CLUSTER: [Group; 2] = [Group::Cluster, Group::Network];

/// The rounds that the demo of several balancers plays.
#[derive(clap::Args)]
pub struct Rounds {
    /// With --cluster: number of rounds to draw
    #[arg(long = "rounds", value_name = "N", default_value_t = 50, requires = "cluster")]
    count: u16,
    /// With --cluster: draw the rounds of this seed, printed by a round that failed, and play
    /// nothing else
    #[arg(long, value_name = "N", requires = "cluster")]
    seed: Option<u32>,
}

const END: &str = "
What you have seen
  A load balancer that sent real client traffic to its backends in tunnels, and counted every packet that it did
  not send under a reason. The same network function, deployed on cores in two ways, put out the same packets,
  and each flow in its order. Two programs exchanged datagrams through shared memory.
Next
  cargo xtask demo --live                          as root: balancer, NAT and firewall between curl and nginx
  cargo xtask demo --cluster                       as root: two balancers, BIRD, and connections that outlive them
  cargo doc -p hotloop --all-features --open       the guide: how to write a network function";

/// Runs everything; the first error ends it.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    heading("Setting up");
    setup::run(&[])?;
    let build_started = Instant::now();
    build(&["ipip-lb", "udp"])?;
    let started = Instant::now();

    heading("The load balancer's configuration, as it understands it");
    replay::check(workspace)?;
    let mut outputs = Vec::new();
    for deployment in &DEPLOYMENTS {
        heading(&format!("Client traffic through ipip-lb, {}", deployment.name));
        outputs.push(replay::run(workspace, deployment)?);
    }

    heading("The two deployments' outputs, packet by packet");
    let (packet_count, flow_count) = compare::compare(&outputs[0], &outputs[1])
        .map_err(|why| Failure::failed(format!("the deployments put out other packets: {why}")))?;
    println!(
        "  equal: {packet_count} packets, byte for byte, in the same order in each of {flow_count} flows"
    );

    heading("udp-source into udp-sink, two processes joined by net_memif");
    datagrams(workspace)?;

    println!("{END}");
    println!(
        "The demo took {} s, after {} s of building.",
        started.elapsed().as_secs(),
        (started - build_started).as_secs()
    );
    Ok(())
}

/// Builds the programs of the live demo, runs its scripts, and the last one in place of this
/// process.
pub fn run_live(workspace: &Workspace) -> Result<(), Failure> {
    let [balancer, nat, firewall] = ["demo/live.sh", "demo/nat.sh", "demo/firewall.sh"]
        .map(|script| workspace.workspace_root.join(script));
    process::run(Command::new(&balancer).arg("--check"))
        .map_err(|_| Failure::refused("the live demo cannot run here"))?;
    heading("Setting up");
    setup::run(&[Group::Live, Group::Network])?;
    build(&["ipip-lb", "ipip-endpoint", "nat44", "firewall"])?;
    let programs = workspace.release_program("");
    for script in [&balancer, &nat] {
        process::run(Command::new(script).arg(&programs))?;
    }
    Err(become_script(Command::new(&firewall).arg(&programs)))
}

/// Builds the programs of the demo of several balancers, runs its first script, and then its rounds
/// in place of this process.
pub fn run_cluster(workspace: &Workspace, rounds: &Rounds) -> Result<(), Failure> {
    let [script, sequences, next] = ["demo/cluster.sh", "demo/sequences.sh", "demo/rounds.sh"]
        .map(|script| workspace.workspace_root.join(script));
    heading("Setting up");
    setup::run(&CLUSTER)?;
    for script in [&script, &sequences, &next] {
        process::run(Command::new(script).arg("--check"))
            .map_err(|_| Failure::refused("the demo of several balancers cannot run here"))?;
    }
    build(&["ipip-lb"])?;
    let program = workspace.release_program("ipip-lb");
    if rounds.seed.is_none() {
        process::run(Command::new(&script).arg(&program))?;
        process::run(Command::new(&sequences).arg(&program))?;
    }
    let mut command = Command::new(&next);
    command.arg(&program).args(["--rounds", &rounds.count.to_string()]);
    if let Some(seed) = rounds.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    Err(become_script(&mut command))
}

/// Runs a script in place of this process, so that signals reach it. Returns why that is not possible.
fn become_script(script: &mut Command) -> Failure {
    let error = script.exec();
    Failure::failed(format!("{} could not be started: {error}", process::line(script)))
}

/// udp-source into udp-sink, and their reports.
fn datagrams(workspace: &Workspace) -> Result<(), Failure> {
    let reports = workspace.target_directory.join("demo");
    let script = workspace.workspace_root.join("demo/datagrams.sh");
    process::run(Command::new(script).args([&workspace.release_program(""), &reports]))?;
    let read = |program: &str| {
        let path = reports.join(program).with_extension("json");
        let json = fs::read_to_string(&path).map_err(Failure::file("read", &path))?;
        replay::Report::read(program, &json)
    };
    let (sent, received) = (read("udp-source")?.sent, read("udp-sink")?.received);
    println!("  sent {sent} datagrams, received {received}");
    if received == 0 {
        return Err(Failure::failed("udp-sink received no datagram"));
    }
    Ok(())
}

fn build(programs: &[&str]) -> Result<(), Failure> {
    let packages: Vec<_> = programs.iter().flat_map(|program| ["--package", program]).collect();
    let tree = ["tree", "--prefix", "none", "--edges", "normal,build", "--format", "{p}"];
    let tree = process::output(cargo(&tree).args(&packages))?;
    let crates: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    heading("Building the programs");
    println!(
        "  {} crates in release mode; the first time this takes 2 to 3 minutes on two idle cores",
        crates.len()
    );
    process::run(cargo(&["build", "--release"]).args(&packages))
}

fn heading(text: &str) {
    println!("\n== {text}");
}
