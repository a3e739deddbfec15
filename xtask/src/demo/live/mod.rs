//! `cargo xtask demo --live`: real clients, a real network and real servers around ipip-lb.
//!
//! Everything that it shows is also asserted: the first thing that is not as it should be ends it,
//! and whatever ends it, nothing is left behind.

mod acts;
mod client;
mod ctl;
mod interrupt;
mod ledger;
mod network;
mod running;
mod site;

use std::time::Instant;

use crate::failure::Failure;
use crate::process;
use crate::setup::{self, Group};
use crate::workspace::Workspace;

use super::heading;
use acts::Stage;
use network::Network;

/// The programs that it runs.
const PROGRAMS: [&str; 2] = ["ipip-lb", "ipip-endpoint"];

/// Runs it all.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    network::check_privilege()?;
    heading("Setting up");
    setup::run(&[Group::Live])?;
    // Better told now than after a long build.
    drop(Network::make(&[])?);

    heading("Building the balancer and its backends' ends (a few minutes the first time)");
    let mut build = process::cargo(&["build", "--release"]);
    build.args(PROGRAMS.iter().flat_map(|program| ["--package", program]));
    process::run(&mut build)?;

    let started = Instant::now();
    interrupt::watch()?;
    let mut stage = Stage::set(workspace)?;
    stage.pages()?;
    stage.killed_backend()?;
    stage.drained_backend()?;
    stage.reload_under_load()?;
    stage.uploads()?;
    stage.end()?;
    println!(
        "\nThe live demo is over; without building it took {} s.",
        started.elapsed().as_secs()
    );
    Ok(())
}
