//! `cargo xtask package`: what the programs are shipped in.

use std::process::Command;

use crate::failure::Failure;
use crate::process::{self, cargo};
use crate::setup::{self, Group};
use crate::workspace::Workspace;

/// The packages: the one whose manifest says what the .deb holds, and those whose programs it holds. Each
/// is built by itself: the tools are to need no DPDK, which cargo would give to all that it builds at once.
const SHIPPED: [(&str, &[&str]); 2] =
    [("ipip-lb", &["ipip-lb", "ipip-endpoint", "udp"]), ("hotloop-ops", &["hotloop-ops"])];

/// Writes manual pages and completions to where the manifest of the .deb looks for them.
pub fn pages(workspace: &Workspace) -> Result<(), Failure> {
    setup::ensure(&[])?;
    let folder = workspace.release_program("package");
    let mut command = cargo(&["run", "--quiet", "--package", "hotloop-packaging", "--"]);
    process::run(command.arg(&folder))?;
    println!("manual pages and completions: {}", folder.display());
    Ok(())
}

/// Makes the packages.
pub fn deb(workspace: &Workspace) -> Result<(), Failure> {
    setup::ensure(&[Group::Package])?;
    if process::quiet_output(&mut cargo(&["deb", "--version"])).is_none() {
        let why = "cargo-deb is not installed: cargo install cargo-deb --locked";
        return Err(Failure::refused(why));
    }
    pages(workspace)?;
    let mut paths = Vec::new();
    for (manifest, programs) in SHIPPED {
        let packages = programs.iter().flat_map(|package| ["--package", package]);
        process::run(cargo(&["build", "--release", "--bins"]).args(packages))?;
        // The profile keeps the names of lines for backtraces and profiles; packages do without.
        let words = ["deb", "--package", manifest, "--no-build", "--strip", "--locked"];
        let path = process::output(&mut cargo(&words))?;
        process::run(Command::new("dpkg-deb").args(["--info", path.trim(), "control"]))?;
        paths.push(path);
    }
    paths.iter().for_each(|path| println!("{}", path.trim()));
    Ok(())
}
