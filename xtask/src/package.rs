//! `cargo xtask package`: the packages for shipping.

use std::process::Command;

use crate::failure::Failure;
use crate::process::{self, cargo};
use crate::setup::{self, Group};
use crate::workspace::Workspace;

/// The packages: the one with the .deb's manifest, and those with its programs. Each is built by
/// itself: the tools must not need DPDK, which cargo would link into everything that it builds at
/// once.
const SHIPPED: [(&str, &[&str]); 2] = [
    ("ipip-lb", &["ipip-lb", "ipip-endpoint", "udp"]),
    ("hotloop-top", &["hotloop-top", "hotloop-doctor"]),
];

/// Writes manual pages and completions to the place given in the .deb's manifest.
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
        // The profile keeps line names for backtraces and profiles; packages do without.
        let words = ["deb", "--package", manifest, "--no-build", "--strip", "--locked"];
        let path = process::output(&mut cargo(&words))?;
        process::run(Command::new("dpkg-deb").args(["--info", path.trim(), "control"]))?;
        paths.push(path);
    }
    paths.iter().for_each(|path| println!("{}", path.trim()));
    Ok(())
}
