//! `cargo xtask soak`: the load balancer under everything at once.

use std::process::Command;

use crate::failure::Failure;
use crate::process::{self, cargo};
use crate::setup::{self, Group};
use crate::workspace::Workspace;

/// Builds the soak and the program that it puts on a wire, and runs it for `packets` packets.
pub fn run(workspace: &Workspace, packets: u64) -> Result<(), Failure> {
    setup::ensure(&[])?;
    setup::ensure_where_possible(&[Group::Network]);
    let programs =
        ["--package", "hotloop-tests", "--bin", "soak", "--package", "ipip-lb", "--bin", "ipip-lb"];
    process::run(cargo(&["build", "--release"]).args(programs))?;
    process::run(Command::new(workspace.release_program("soak")).arg(packets.to_string()))
}
