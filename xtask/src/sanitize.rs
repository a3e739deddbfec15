//! `cargo xtask sanitize`: the tests of the crates that hold unsafe code, under AddressSanitizer and
//! under Miri, which `cargo xtask test` leaves out: it takes minutes.

use std::path::Path;

use crate::failure::Failure;
use crate::miri;
use crate::process;
use crate::rustc::{self, Rustc};
use crate::test::{Outcome, Step};
use crate::workspace::Workspace;

/// The crates that hold unsafe code and run it in their tests.
const PACKAGES: [&str; 5] =
    ["hotloop-ring", "hotloop-arena", "hotloop-flow", "hotloop-stage", "hotloop-dpdk"];

/// Sets up and runs the step on its own.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    crate::setup::ensure(crate::setup::Wanted::default())?;
    let steps: [(&str, Step); 2] = [("AddressSanitizer", step), ("Miri", miri::step)];
    for (name, step) in steps {
        if let Outcome::Skipped(why) = step(workspace)? {
            println!("{name}: skipped: {why}");
        }
    }
    Ok(())
}

/// One step of `cargo xtask test`.
pub fn step(workspace: &Workspace) -> Result<Outcome, Failure> {
    let host = Rustc::ask()?.host;
    if !has_runtime(&rustc::library_folder(&host)?) {
        let why = format!("this toolchain ships no AddressSanitizer runtime for {host}");
        return Ok(Outcome::Skipped(why));
    }

    let mut command = process::cargo(&["test", "--tests", "--target", &host]);
    command.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    command
        // The flag is unstable, the runtime that it needs is shipped with stable.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env("CARGO_TARGET_DIR", workspace.target_directory.join("sanitize"))
        // Mempools are never freed, and DPDK keeps what it made until the process ends. Where
        // a test asks for more memory than there is, the allocator says so instead of aborting.
        .env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1");
    process::run(&mut command).map(|()| Outcome::Passed)
}

fn has_runtime(libraries: &Path) -> bool {
    std::fs::read_dir(libraries).into_iter().flatten().flatten().any(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        name.starts_with("librustc") && name.contains("_rt.asan.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_told_from_other_sanitizers() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("librustc-stable_rt.lsan.a"), "").unwrap();
        assert!(!has_runtime(folder.path()));
        std::fs::write(folder.path().join("librustc-stable_rt.asan.a"), "").unwrap();
        assert!(has_runtime(folder.path()));
        assert!(!has_runtime(&folder.path().join("absent")));
    }
}
