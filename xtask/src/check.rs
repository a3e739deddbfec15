//! `cargo xtask check`: the checks that run no test.

use std::env;
use std::process::Command;

use crate::api;
use crate::changed;
use crate::failure::Failure;
use crate::instructions;
use crate::links;
use crate::process::{self, cargo};
use crate::steps::{self, Outcome, Step};
use crate::tidy;
use crate::workspace::Workspace;

const STEPS: [Step; 14] = [
    Step::new("format", "rustfmt", format),
    Step::new("clippy", "warnings are errors", clippy),
    Step {
        on_request: true,
        ..Step::new("clippy-changed", "clippy of packages that have changed", clippy_changed)
    },
    Step::new("docs", "rustdoc, warnings are errors", |_| docs(&["--workspace"])),
    Step::new("docs-without-dpdk", "rustdoc of hotloop without DPDK", |_| {
        docs(&["-p", "hotloop", "--no-default-features", "--features", "ops,testing"])
    }),
    Step::new("docs-rs", "rustdoc as docs.rs has it: no DPDK", docs_rs),
    Step::new("api", "the public items are those that are kept", public_items),
    Step::new("bindings", "those that are kept are those that bindgen makes", bindings),
    Step::new("tidy", "rules of this repository", |workspace| {
        tidy::run(workspace).map(Outcome::passed)
    }),
    Step::new("dependencies", "licences, versions and sources", dependencies),
    Step::new("packages", "what would be published, without building it again", packages),
    Step::new("book", "the book in docs/", book),
    Step::new("links", "relative links and anchors in Markdown", |_| {
        links::run().map(Outcome::passed)
    }),
    Step::new("instructions", "the counts of the hot functions, as kept", counts),
];

/// Runs every check, or only the named ones.
pub fn run(workspace: &Workspace, only: &[String]) -> Result<(), Failure> {
    steps::run(workspace, &STEPS, only)
}

/// Runs the checks that fail most often after a change.
pub fn run_quick(workspace: &Workspace) -> Result<(), Failure> {
    run(workspace, &["format", "clippy-changed", "tidy"].map(str::to_owned))
}

fn format(_: &Workspace) -> Result<Outcome, Failure> {
    with_component("fmt", "rustfmt", &mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy(_: &Workspace) -> Result<Outcome, Failure> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    with_component("clippy", "clippy", &mut cargo(&arguments))
}

fn clippy_changed(workspace: &Workspace) -> Result<Outcome, Failure> {
    let Some(packages) = changed::packages(workspace)? else { return clippy(workspace) };
    if packages.is_empty() {
        return Outcome::skipped("no package has changed");
    }
    let packages = packages.iter().flat_map(|name| ["--package", name]);
    let mut command = cargo(&["clippy", "--all-targets"]);
    command.args(packages).args(["--", "-D", "warnings"]);
    with_component("clippy", "clippy", &mut command)
}

/// Skips the check if this toolchain lacks the component; with `CI=true`, fails instead.
fn with_component(
    subcommand: &str,
    component: &str,
    command: &mut Command,
) -> Result<Outcome, Failure> {
    if process::quiet_output(&mut cargo(&[subcommand, "--version"])).is_some() {
        return process::run(command).map(Outcome::passed);
    }
    let why = format!("this toolchain has no {component}: rustup component add {component}");
    if env::var("CI").is_ok_and(|ci| ci == "true") {
        return Err(Failure::refused(why));
    }
    Outcome::skipped(why)
}

fn docs(packages: &[&str]) -> Result<Outcome, Failure> {
    let mut command = cargo(&["doc", "--no-deps"]);
    process::run(command.args(packages).env("RUSTDOCFLAGS", "-Dwarnings")).map(Outcome::passed)
}

/// Uses a target folder of its own: the variable would rebuild everything that depends on DPDK.
fn docs_rs(workspace: &Workspace) -> Result<Outcome, Failure> {
    let packages: [&[&str]; 2] = [
        &["--package", "hotloop-dpdk-sys"],
        &["--all-features", "--package", "hotloop-dpdk", "--package", "hotloop"],
    ];
    for arguments in packages {
        let mut command = cargo(&["doc", "--no-deps"]);
        command
            .args(arguments)
            .env("RUSTDOCFLAGS", "-Dwarnings")
            .env("DOCS_RS", "1")
            // Fails if the build looks for DPDK all the same.
            .env("PKG_CONFIG", "false")
            .env("CARGO_TARGET_DIR", workspace.target_directory.join("docs-rs"));
        process::run(&mut command)?;
    }
    Ok(Outcome::passed(()))
}

/// Compares the public items with the kept lists, if rustdoc describes them in a known format.
fn public_items(workspace: &Workspace) -> Result<Outcome, Failure> {
    Ok(api::check(workspace)?.map_or(Outcome::Passed(Vec::new()), Outcome::Skipped))
}

/// Skips the check if bindgen finds no libclang, which nothing else needs.
fn bindings(_: &Workspace) -> Result<Outcome, Failure> {
    let package = ["test", "--package", "hotloop-dpdk-sys", "--features", "bindgen"];
    let mut command = cargo(&package);
    process::run(command.args(["--test", "bindings", "--", "--nocapture"])).map(Outcome::passed)
}

/// Packs every package that may be published. The packed files are not built again: that takes
/// minutes, and the other steps build the same files.
fn packages(workspace: &Workspace) -> Result<Outcome, Failure> {
    let mut command = cargo(&["package", "--no-verify", "--allow-dirty", "--offline", "--quiet"]);
    for package in workspace.packages.iter().filter(|package| package.is_published()) {
        command.args(["--package", &package.name]);
    }
    process::run(&mut command).map(Outcome::passed)
}

/// Checks the rules of `deny.toml`. Advisories are not checked: their database needs the network.
fn dependencies(_: &Workspace) -> Result<Outcome, Failure> {
    if process::quiet_output(&mut cargo(&["deny", "--version"])).is_none() {
        return Outcome::skipped("cargo-deny is not installed: cargo install cargo-deny --locked");
    }
    // cargo-deny reads the packages of every system; a build fetches only those of this one.
    if process::quiet_output(&mut cargo(&["fetch", "--locked"])).is_none() {
        return Outcome::skipped("the packages of other systems cannot be fetched");
    }
    let checks = ["deny", "--locked", "--offline", "check", "bans", "licenses", "sources"];
    process::run(&mut cargo(&checks)).map(Outcome::passed)
}

/// Compares the instructions of the hot functions with the kept counts, if these are for the same
/// compiler.
fn counts(workspace: &Workspace) -> Result<Outcome, Failure> {
    if process::find_program("valgrind").is_none() {
        return Outcome::skipped("valgrind is not installed: cargo xtask setup --bench");
    }
    if let Some(why) = instructions::unknown_compiler(workspace)? {
        return Outcome::skipped(why);
    }
    instructions::run(workspace, true).map(Outcome::passed)
}

fn book(workspace: &Workspace) -> Result<Outcome, Failure> {
    if !workspace.workspace_root.join("docs/book.toml").exists() {
        return Outcome::skipped("there is no docs/book.toml");
    }
    if process::find_program("mdbook").is_none() {
        return Outcome::skipped("mdbook is not installed: cargo install mdbook --locked");
    }
    let mut command = Command::new("mdbook");
    command.args(["build", "docs", "--dest-dir"]).arg(workspace.target_directory.join("book"));
    process::run(&mut command).map(Outcome::passed)
}
