//! `cargo xtask package`: what the programs are shipped in.

use std::process::Command;

use crate::failure::Failure;
use crate::process::{self, cargo};
use crate::setup::{self, Group};
use crate::workspace::Workspace;

/// The packages whose programs are shipped.
const SHIPPED: [&str; 3] = ["ipip-lb", "ipip-endpoint", "udp"];

/// The package whose manifest says what the .deb holds.
const MANIFEST: &str = "ipip-lb";

/// Writes manual pages and completions to where the manifest of the .deb looks for them.
pub fn pages(workspace: &Workspace) -> Result<(), Failure> {
    setup::ensure(&[])?;
    let folder = workspace.release_program("package");
    let mut command = cargo(&["run", "--quiet", "--package", "hotloop-packaging", "--"]);
    process::run(command.arg(&folder))?;
    println!("manual pages and completions: {}", folder.display());
    Ok(())
}

/// Makes the .deb.
pub fn deb(workspace: &Workspace) -> Result<(), Failure> {
    setup::ensure(&[Group::Package])?;
    if process::quiet_output(&mut cargo(&["deb", "--version"])).is_none() {
        let why = "cargo-deb is not installed: cargo install cargo-deb --locked";
        return Err(Failure::refused(why));
    }
    let packages = SHIPPED.iter().flat_map(|package| ["--package", package]);
    process::run(cargo(&["build", "--release"]).args(packages))?;
    pages(workspace)?;
    // The profile keeps the names of lines for backtraces and profiles; packages do without.
    let words = ["deb", "--package", MANIFEST, "--no-build", "--strip", "--locked"];
    let path = process::output(&mut cargo(&words))?;
    let path = path.trim();
    process::run(Command::new("dpkg-deb").args(["--info", path, "control"]))?;
    println!("{path}");
    Ok(())
}
