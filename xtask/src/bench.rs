//! `cargo xtask bench`: one group of benchmarks, beside its peers.

use crate::failure::Failure;
use crate::instructions;
use crate::process;
use crate::setup::{self, Group};
use crate::workspace::Workspace;

/// The package of the benchmarks: its bench targets are the groups.
pub const PACKAGE: &str = "hotloop-benches";

/// What a group needs.
const NEEDS: [(&str, &[Group]); 3] = [
    ("balancer", &[Group::Testpmd, Group::Valgrind]),
    ("forward", &[Group::Testpmd]),
    (instructions::GROUP, &[Group::Valgrind]),
];

/// Prints the groups.
pub fn list(workspace: &Workspace) -> Result<(), Failure> {
    for group in groups(workspace) {
        println!("{group}");
    }
    Ok(())
}

/// Sets up, builds and measures a group. The benchmark prints the table and writes the JSON.
/// Instructions are counted by this program, because callgrind runs the benchmark.
pub fn run(
    workspace: &Workspace,
    group: &str,
    check: bool,
    arguments: &[String],
) -> Result<(), Failure> {
    let groups = groups(workspace);
    if !groups.contains(&group) {
        let known = groups.join(", ");
        return Err(Failure::refused(format!("no group `{group}`; the groups are {known}")));
    }
    let is_count = group == instructions::GROUP;
    if check && !is_count {
        let group = instructions::GROUP;
        return Err(Failure::refused(format!("only the counts of `{group}` can be checked")));
    }
    if is_count && !arguments.is_empty() {
        return Err(Failure::refused(format!("`{group}` takes no arguments of its own")));
    }
    let needs = NEEDS.iter().find(|(name, _)| *name == group);
    setup::ensure(needs.map_or(&[], |(_, needs)| needs))?;
    if is_count {
        return instructions::run(workspace, check);
    }
    let mut command = process::cargo(&["bench", "--package", PACKAGE, "--bench", group, "--"]);
    process::run(command.args(arguments))
}

fn groups(workspace: &Workspace) -> Vec<&str> {
    let benches = workspace.packages.iter().filter(|package| package.name == PACKAGE);
    let targets = benches.flat_map(|package| &package.targets);
    targets.filter(|target| target.is("bench")).map(|target| target.name.as_str()).collect()
}
