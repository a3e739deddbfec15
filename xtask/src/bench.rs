//! `cargo xtask bench`: groups of benchmarks, each compared with its peers.

mod summary;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::instructions;
use crate::process;
use crate::rustc::Rustc;
use crate::setup::{self, Group};
use crate::workspace::Workspace;
use summary::Summary;

/// The package of the benchmarks: its bench targets are groups.
pub const PACKAGE: &str = "hotloop-benches";

/// Passes the number of processes per quarter of a run to a benchmark.
const PROCESSES_VARIABLE: &str = "HOTLOOP_BENCH_PROCESSES";

/// Groups that are not targets of their own: the target that measures each, by the group's name as its
/// argument.
const WITHIN: [(&str, &str); 3] =
    [("deployments", "udp"), ("growth", "balancer"), ("sessions", "balancer")];

/// Everything that the groups need. Some leave out rows if a part is missing.
pub const ALL_NEEDS: [Group; 4] = [Group::Testpmd, Group::Valgrind, Group::Network, Group::Katran];

/// The needs of each group.
const NEEDS: [(&str, &[Group]); 9] = [
    ("balancer", &[Group::Testpmd, Group::Valgrind]),
    ("deployments", &[Group::Network]),
    ("engine", &[Group::Valgrind]),
    ("forward", &[Group::Testpmd, Group::Valgrind]),
    ("growth", &[Group::Valgrind]),
    // The benchmark itself reports other missing parts.
    ("katran", &[Group::Valgrind]),
    ("sessions", &[Group::Valgrind]),
    ("structures", &[Group::Valgrind]),
    ("udp", &[Group::Network]),
];

/// The name for measuring groups one after the other, and the groups that settle on a busy machine:
/// a pipeline of two cores takes turns with nothing.
const ALL: &str = "all";
const PARTS_OF_ALL: [(&str, &[&str]); 3] =
    [("forward", &[]), ("structures", &[]), ("balancer", &["hits", "arrivals", "frames"])];

/// Prints the groups.
pub fn list(workspace: &Workspace) -> Result<(), Failure> {
    for group in groups(workspace).into_iter().chain([ALL]) {
        println!("{group}");
    }
    Ok(())
}

/// Options for measuring a group.
pub struct Options {
    /// Compare instruction counts with those kept.
    pub check: bool,
    /// Keep the tables in the book.
    pub keep: bool,
    /// Number of repetitions.
    pub repeat: usize,
    /// Number of processes that play each quarter of a run.
    pub processes: usize,
    /// Arguments of the benchmark.
    pub arguments: Vec<String>,
}

/// Sets up, builds and measures a group, or all. The benchmark prints the table and writes the JSON.
/// Instructions are counted by this program, because callgrind runs the benchmark.
pub fn run(workspace: &Workspace, group: &str, options: &Options) -> Result<(), Failure> {
    if group == ALL {
        return run_all(workspace, options);
    }
    let groups = groups(workspace);
    if !groups.contains(&group) {
        let known = groups.join(", ");
        return Err(Failure::refused(format!("no group `{group}`; the groups are {known}, {ALL}")));
    }
    let is_count = group == instructions::GROUP;
    if options.check && !is_count {
        let group = instructions::GROUP;
        return Err(Failure::refused(format!("only the counts of `{group}` can be checked")));
    }
    if !is_count {
        return measure(workspace, &[(group, &[])], options);
    }
    if !options.arguments.is_empty() || options.keep || options.repeat.max(options.processes) > 1 {
        return Err(Failure::refused(format!(
            "`{group}` is exact, and keeps its counts by itself"
        )));
    }
    setup::ensure(&[Group::Valgrind])?;
    instructions::run(workspace, options.check)
}

fn run_all(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    if options.check || !options.arguments.is_empty() {
        return Err(Failure::refused(format!("`{ALL}` takes no arguments of a group")));
    }
    measure(workspace, &PARTS_OF_ALL, options)
}

/// Measures groups, each with its own arguments, and prints a summary if there is more than one
/// table.
fn measure(
    workspace: &Workspace,
    groups: &[(&str, &[&str])],
    options: &Options,
) -> Result<(), Failure> {
    let of_group = |name| NEEDS.iter().filter(move |needs| needs.0 == name);
    let needs: Vec<_> = groups.iter().flat_map(|group| of_group(group.0)).collect();
    setup::ensure(&needs.iter().flat_map(|needs| needs.1).copied().collect::<Vec<_>>())?;
    build(groups)?;
    let mut summary = Summary::default();
    for _ in 0..options.repeat {
        for (group, arguments) in groups {
            let mut command = cargo_bench();
            command.env(PROCESSES_VARIABLE, options.processes.to_string());
            command.args(["--bench", bench_of(group), "--"]);
            command.args(is_within(group).then_some(group));
            process::run(command.args(*arguments).args(&options.arguments))?;
            summary.add(&target(workspace, group).with_extension("json"))?;
        }
    }
    if options.repeat > 1 || groups.len() > 1 {
        print!("\n{summary}");
    }
    if options.keep {
        groups.iter().try_for_each(|(group, _)| keep(workspace, group))?;
    }
    Ok(())
}

/// Builds all groups at once: one after the other, they would leave all CPUs but one idle.
fn build(groups: &[(&str, &[&str])]) -> Result<(), Failure> {
    let mut command = cargo_bench();
    for (group, _) in groups {
        command.args(["--bench", bench_of(group)]);
    }
    process::run(command.arg("--no-run"))
}

fn cargo_bench() -> Command {
    process::cargo(&["bench", "--package", PACKAGE])
}

/// The target that measures a group.
fn bench_of(group: &str) -> &str {
    WITHIN.iter().find(|within| within.0 == group).map_or(group, |within| within.1)
}

/// Whether a group is an argument of its target.
fn is_within(group: &str) -> bool {
    WITHIN.iter().any(|within| within.0 == group)
}

/// The benchmark's output file, without extension.
fn target(workspace: &Workspace, group: &str) -> PathBuf {
    workspace.target_directory.join("bench").join(group)
}

/// Keeps the table of the last run in the book, with the machine and the date, and its pictures.
fn keep(workspace: &Workspace, group: &str) -> Result<(), Failure> {
    let target = target(workspace, group);
    let read = |file: &Path| fs::read_to_string(file).map_err(Failure::file("read", file));
    let pages = workspace.workspace_root.join("docs/performance");
    let write = |name: &str, text| {
        let file = pages.join(name);
        fs::write(&file, text).map_err(Failure::file("write", &file))?;
        println!("kept in {}", file.display());
        Ok(())
    };
    let table = read(&target.with_extension("md"))?;
    // In Markdown's form: ![WORDS](FILE.svg).
    let pictures = table.split(&['(', ')'][..]).filter(|word| word.ends_with(".svg"));
    for picture in pictures {
        write(picture, read(&target.with_file_name(picture))?)?;
    }
    let page = format!("# cargo xtask bench {group}\n\nTaken on {}.\n\n{table}", machine()?);
    write(&format!("{group}.md"), page)
}

/// The date, and the machine that a table was measured on.
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
    let benches = targets.filter(|target| target.is("bench")).map(|target| target.name.as_str());
    let within = WITHIN.iter().map(|within| within.0);
    benches.chain(within).chain([instructions::GROUP]).collect()
}
