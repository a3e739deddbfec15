//! `cargo xtask demo`: what the project does, shown on any machine.

mod capture;
mod compare;
mod cpus;
mod live;
mod rates;
mod replay;
mod wire;

use std::time::Instant;

use crate::failure::Failure;
use crate::process;
use crate::setup;
use crate::workspace::Workspace;

pub use live::run as run_live;
use replay::Deployment;

/// The programs that the demo runs.
const PROGRAMS: [&str; 3] = ["ipip-lb", "udp-source", "udp-sink"];

/// Runs it all; the first thing that is not as it should be ends it.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let started = Instant::now();
    heading("Setting up");
    setup::run(&[])?;

    heading("Building the examples (a few minutes the first time)");
    let mut build = process::cargo(&["build", "--release"]);
    build.args(PROGRAMS.iter().flat_map(|program| ["--package", program]));
    process::run(&mut build)?;

    let programs = replay::Programs::of(workspace)?;
    heading("The load balancer's configuration, as it understands it");
    programs.check()?;

    let mut outputs = Vec::new();
    for deployment in [Deployment::RunToCompletion, Deployment::Pipeline] {
        heading(&format!("Client traffic through ipip-lb, {deployment}"));
        outputs.push(programs.replay(deployment)?);
    }

    heading("The two deployments' outputs, packet by packet");
    let agreement = compare::compare(&outputs[0], &outputs[1]).map_err(|difference| {
        Failure::failed(format!("the deployments put out different packets: {difference}"))
    })?;
    println!(
        "  equal: {} packets, byte for byte, in the same order within each of {} flows",
        agreement.packet_count, agreement.flow_count
    );

    heading("udp-source into udp-sink, two processes joined by net_memif");
    rates::run(workspace)?;

    println!("\nThe demo is over; it took {} s.", started.elapsed().as_secs());
    Ok(())
}

fn heading(text: &str) {
    println!("\n== {text}");
}
