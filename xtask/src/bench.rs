//! `cargo xtask bench`: one group of benchmarks, beside its peers.

use crate::failure::Failure;
use crate::process;
use crate::setup::{self, Wanted};
use crate::workspace::Workspace;

const PACKAGE: &str = "hotloop-benches";

/// The groups that measure against dpdk-testpmd.
const AGAINST_TESTPMD: [&str; 1] = ["forward"];

/// Prints the groups there are.
pub fn list(workspace: &Workspace) -> Result<(), Failure> {
    for group in groups(workspace) {
        println!("{group}");
    }
    Ok(())
}

/// Sets up, builds and measures a group. The benchmark itself prints the table and writes the JSON.
pub fn run(workspace: &Workspace, group: &str, arguments: &[String]) -> Result<(), Failure> {
    let groups = groups(workspace);
    if !groups.contains(&group) {
        let known = if groups.is_empty() { "none yet".to_owned() } else { groups.join(", ") };
        return Err(Failure::refused(format!("no benchmark group `{group}`; there are: {known}")));
    }
    setup::ensure(Wanted { testpmd: AGAINST_TESTPMD.contains(&group) })?;
    let mut command = process::cargo(&["bench", "--package", PACKAGE, "--bench", group, "--"]);
    process::run(command.args(arguments))
}

fn groups(workspace: &Workspace) -> Vec<&str> {
    let benches = workspace.packages.iter().filter(|package| package.name == PACKAGE);
    let targets = benches.flat_map(|package| &package.targets);
    targets.filter(|target| target.is("bench")).map(|target| target.name.as_str()).collect()
}
