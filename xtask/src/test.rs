//! `cargo xtask test`: all that a change can break, in the order of what it costs to know.

use std::env;
use std::process::Command;
use std::time::Instant;

use crate::failure::Failure;
use crate::neon;
use crate::process;
use crate::sanitize;
use crate::setup::{self, Wanted};
use crate::skips::{self, Skip};
use crate::tidy;
use crate::workspace::Workspace;

/// What came of a step that did not fail.
pub enum Outcome {
    /// It ran and passed.
    Passed,
    /// It passed, but for tests that can't run here, or not all of them.
    PassedBut(Vec<Skip>),
    /// It can't run here, with the reason.
    Skipped(String),
}

/// What runs one, and says what came of it.
pub type Step = fn(&Workspace) -> Result<Outcome, Failure>;

const STEPS: [(&str, Step); 11] = [
    ("format", format),
    ("clippy", clippy),
    ("docs", docs),
    ("tidy", |workspace| tidy::run(workspace).map(passed)),
    ("licences, versions and sources of dependencies", dependencies),
    ("tests: unit, integration, virtual devices, compile-fail, doc", tests),
    ("tests of hotloop without DPDK", tests_without_dpdk),
    ("docs of hotloop without DPDK", docs_without_dpdk),
    ("loom", loom),
    ("tests of the flow table on NEON", neon::step),
    ("sanitizer", sanitize::step),
];

/// Runs every step; the first that fails ends it.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    setup::ensure(Wanted::default())?;
    let started = Instant::now();
    let (mut skipped, mut skipped_tests) = (Vec::new(), Vec::new());
    for (name, step) in STEPS {
        println!("\n== {name}");
        let step_started = Instant::now();
        let outcome = step(workspace)
            .map_err(|failure| Failure::failed(format!("the step «{name}» failed: {failure}")))?;
        let seconds = step_started.elapsed().as_secs_f64();
        match outcome {
            Outcome::Passed => println!("-- {name}: passed in {seconds:.1} s"),
            Outcome::PassedBut(skips) => {
                println!("-- {name}: passed in {seconds:.1} s");
                skipped_tests.extend(skips);
            }
            Outcome::Skipped(why) => {
                println!("-- {name}: skipped: {why}");
                skipped.push(name);
            }
        }
    }
    println!("\nAll passed in {} s.", started.elapsed().as_secs());
    for Skip { test, why } in &skipped_tests {
        println!("skipped test: {test}: {why}");
    }
    if !skipped.is_empty() {
        println!("Skipped, with the reason above: {}", skipped.join(", "));
    }
    Ok(())
}

fn format(_: &Workspace) -> Result<Outcome, Failure> {
    with_component("fmt", "rustfmt", &mut process::cargo(&["fmt", "--all", "--check"]))
}

fn clippy(_: &Workspace) -> Result<Outcome, Failure> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    with_component("clippy", "clippy", &mut process::cargo(&arguments))
}

/// A component that this toolchain lacks is skipped, and fails where CI has to have it.
fn with_component(
    subcommand: &str,
    component: &str,
    command: &mut Command,
) -> Result<Outcome, Failure> {
    if process::quiet_output(&mut process::cargo(&[subcommand, "--version"])).is_none() {
        let why = format!("this toolchain has no {component}: rustup component add {component}");
        return if env::var("CI").is_ok_and(|ci| ci == "true") {
            Err(Failure::refused(why))
        } else {
            Ok(Outcome::Skipped(why))
        };
    }
    process::run(command).map(passed)
}

/// What `deny.toml` allows. The database of advisories takes a network: `cargo deny check` asks it.
fn dependencies(_: &Workspace) -> Result<Outcome, Failure> {
    if process::quiet_output(&mut process::cargo(&["deny", "--version"])).is_none() {
        let why = "cargo-deny is not installed: cargo install cargo-deny --locked";
        return Ok(Outcome::Skipped(why.into()));
    }
    // It wants the packages of every system, of which a build has fetched this one's alone.
    if process::quiet_output(&mut process::cargo(&["fetch", "--locked"])).is_none() {
        let why = "the packages of other systems are not here, and can't be fetched";
        return Ok(Outcome::Skipped(why.into()));
    }
    let checks = ["deny", "--locked", "--offline", "check", "bans", "licenses", "sources"];
    process::run(&mut process::cargo(&checks)).map(passed)
}

fn docs(_: &Workspace) -> Result<Outcome, Failure> {
    let mut command = process::cargo(&["doc", "--workspace", "--no-deps"]);
    process::run(command.env("RUSTDOCFLAGS", "-Dwarnings")).map(passed)
}

fn docs_without_dpdk(_: &Workspace) -> Result<Outcome, Failure> {
    let mut command =
        process::cargo(&["doc", "-p", "hotloop", "--no-deps", "--no-default-features"]);
    process::run(command.env("RUSTDOCFLAGS", "-Dwarnings")).map(passed)
}

fn tests(_: &Workspace) -> Result<Outcome, Failure> {
    skips::run(&["--workspace"]).map(Outcome::PassedBut)
}

fn tests_without_dpdk(_: &Workspace) -> Result<Outcome, Failure> {
    process::run(&mut process::cargo(&["test", "-p", "hotloop", "--no-default-features"]))
        .map(passed)
}

/// In a target folder of its own: the flag would make everything else build again.
fn loom(workspace: &Workspace) -> Result<Outcome, Failure> {
    let packages = ["-p", "hotloop-ring", "-p", "hotloop-engine"];
    let mut command = process::cargo(&["test", "--release", "--test", "loom"]);
    command
        .args(packages)
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", workspace.target_directory.join("loom"));
    process::run(&mut command).map(passed)
}

fn passed((): ()) -> Outcome {
    Outcome::Passed
}
