//! `cargo xtask bench`: one group of benchmarks, beside its peers.

use std::fs;
use std::process::Command;

use crate::failure::Failure;
use crate::instructions;
use crate::process;
use crate::rustc::Rustc;
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

/// Keeps the table of the last run in the book, with the machine and the date.
pub fn keep(workspace: &Workspace, group: &str) -> Result<(), Failure> {
    if group == instructions::GROUP {
        return Err(Failure::refused(format!("`{group}` keeps its counts without --keep")));
    }
    let target = workspace.target_directory.join("bench").join(group).with_extension("md");
    let table = fs::read_to_string(&target).map_err(Failure::file("read", &target))?;
    let file = workspace.workspace_root.join("docs/performance").join(group).with_extension("md");
    let text = format!("# cargo xtask bench {group}\n\nTaken on {}.\n\n{table}", machine()?);
    fs::write(&file, text).map_err(Failure::file("write", &file))?;
    println!("kept in {}", file.display());
    Ok(())
}

/// The date, and the machine that a table was taken on.
fn machine() -> Result<String, Failure> {
    let unknown = || "unknown".to_owned();
    let ask = |program: &str, arguments: &[&str]| {
        process::quiet_output(Command::new(program).args(arguments)).unwrap_or_else(unknown)
    };
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_model = |line: &&str| line.starts_with("model name");
    let model = cpus.lines().find(is_model).and_then(|line| line.split_once(": "));
    let model = model.map_or_else(unknown, |(_, model)| model.to_owned());
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let (date, kernel) = (ask("date", &["-u", "+%F"]), ask("uname", &["-r"]));
    let dpdk = ask("pkg-config", &["--modversion", "libdpdk"]);
    let rustc = Rustc::ask()?.version;
    Ok(format!("{date}, on {count} CPUs of {model}, Linux {kernel}, DPDK {dpdk}, {rustc}"))
}

fn groups(workspace: &Workspace) -> Vec<&str> {
    let benches = workspace.packages.iter().filter(|package| package.name == PACKAGE);
    let targets = benches.flat_map(|package| &package.targets);
    targets.filter(|target| target.is("bench")).map(|target| target.name.as_str()).collect()
}
