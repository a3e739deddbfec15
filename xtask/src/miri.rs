//! The tests of code that is unsafe and calls no C, under Miri, which finds what a sanitizer cannot:
//! accesses that break the rules of references, and data races in orders that this processor never
//! shows.
//!
//! Miri is part of nightly toolchains alone, and takes a thousand times as long as the processor:
//! tests count less far under `cfg(miri)`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::failure::Failure;
use crate::process;
use crate::test::Outcome;
use crate::workspace::Workspace;

/// Packages, and the tests of each.
const RUNS: [(&str, &[&str]); 4] = [
    ("hotloop-stage", &["--lib", "--", "burst"]),
    // Threads meet in `ends` and `mesh`; those of `threads` would wait for each other for minutes.
    ("hotloop-ring", &["--lib", "--test=ends", "--test=mesh", "--test=million", "--test=oracle"]),
    // Mappings come from the allocator there: `mapping_miri.rs`.
    ("hotloop-arena", &["--test=boxed"]),
    ("hotloop-flow", &["--lib", "--", "panics", "short_sequences"]),
];

/// proptest's environment is passed on; pointers keep to what they were made from.
const FLAGS: &str = "-Zmiri-isolation-error=hide -Zmiri-env-forward=PROPTEST_CASES \
                     -Zmiri-strict-provenance";

/// Runs them all.
pub fn step(workspace: &Workspace) -> Result<Outcome, Failure> {
    if let Err(why) = find() {
        return Ok(Outcome::Skipped(why));
    }
    for (package, arguments) in RUNS {
        let started = Instant::now();
        let mut command = nightly(&["cargo", "miri", "test", "--package", package]);
        command
            .args(arguments)
            .env("MIRIFLAGS", FLAGS)
            .env("PROPTEST_CASES", "2")
            .env("CARGO_TARGET_DIR", workspace.target_directory.join("miri"));
        process::run(&mut command)?;
        println!("-- Miri: {package} in {:.0} s", started.elapsed().as_secs_f64());
    }
    Ok(Outcome::Passed)
}

/// Looks for a nightly toolchain with all that Miri needs, and says what is missing.
fn find() -> Result<(), String> {
    let rustup = process::find_program("rustup");
    let ask = |words: &[&str]| process::quiet_output(&mut nightly(words));
    let sysroot = rustup.is_some().then(|| ask(&["rustc", "--print", "sysroot"])).flatten();
    let sysroot = sysroot.map(PathBuf::from);
    let has_miri = sysroot.is_some() && ask(&["cargo", "miri", "--version"]).is_some();
    missing(sysroot.as_deref(), has_miri).map_or(Ok(()), Err)
}

/// What is missing of a toolchain, if anything.
fn missing(sysroot: Option<&Path>, has_miri: bool) -> Option<String> {
    let add = "rustup toolchain install nightly --component miri --component rust-src";
    let has_source = |sysroot: &Path| sysroot.join("lib/rustlib/src/rust/library").is_dir();
    match sysroot {
        None => Some(format!("no nightly toolchain of rustup's is installed: {add}")),
        Some(_) if !has_miri => Some(format!("the nightly toolchain has no Miri: {add}")),
        Some(sysroot) if !has_source(sysroot) => {
            Some(format!("the nightly toolchain lacks the standard library's source: {add}"))
        }
        Some(_) => None,
    }
}

/// A program of the nightly toolchain; what this one's cargo has set for its own would be in the way.
fn nightly(words: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly"]).args(words);
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let root = tempfile::tempdir().unwrap();
        let says = |sysroot, has_miri, what| missing(sysroot, has_miri).unwrap().contains(what);
        assert!(says(None, false, "no nightly toolchain"));
        assert!(says(Some(root.path()), false, "no Miri"));
        assert!(says(Some(root.path()), true, "source"));
        std::fs::create_dir_all(root.path().join("lib/rustlib/src/rust/library")).unwrap();
        assert_eq!(missing(Some(root.path()), true), None);
    }
}
