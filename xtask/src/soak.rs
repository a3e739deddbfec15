//! `cargo xtask soak`: the load balancer under everything at once, for as many packets as one likes.

use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::setup::{self, Wanted};
use crate::workspace::Workspace;

/// Sets up, builds the program and runs it; its last line is the result.
pub fn run(workspace: &Workspace, packets: u64) -> Result<(), Failure> {
    setup::ensure(Wanted::default())?;
    let build = ["build", "--release", "--package", "hotloop-tests", "--bin", "soak"];
    process::run(&mut process::cargo(&build))?;
    let mut soak = Command::new(workspace.release_program("soak"));
    process::run(soak.arg(packets.to_string()))
}
