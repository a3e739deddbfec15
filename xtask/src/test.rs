//! `cargo xtask test`: everything that runs tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process::{self, cargo};
use crate::rustc::{self, Rustc};
use crate::setup;
use crate::skips;
use crate::steps::{self, Outcome, Step};
use crate::workspace::Workspace;

const STEPS: [Step; 6] = [
    Step::new("tests", "unit, integration, virtual devices, compile-fail, doc", tests),
    Step::new("without-dpdk", "tests of hotloop without DPDK", without_dpdk),
    Step::new("loom", "every interleaving of the ring's and the engine's atomics", loom),
    Step::new("neon", "the flow table's tests on aarch64, emulated", neon),
    Step::new("sanitizer", "tests of unsafe code under AddressSanitizer", sanitizer),
    Step {
        name: "miri",
        what: "tests of unsafe code that calls no C, under Miri",
        on_request: true,
        run: miri,
    },
];

/// Runs every step, or only the named ones.
pub fn run(workspace: &Workspace, only: &[String]) -> Result<(), Failure> {
    steps::run(workspace, &STEPS, only)
}

fn tests(_: &Workspace) -> Result<Outcome, Failure> {
    setup::ensure_where_possible(&setup::TESTS);
    skips::run(&["--workspace"]).map(Outcome::Passed)
}

fn without_dpdk(_: &Workspace) -> Result<Outcome, Failure> {
    let arguments = ["test", "-p", "hotloop", "--no-default-features", "--features", "ops"];
    process::run(&mut cargo(&arguments)).map(Outcome::passed)
}

/// Uses a target folder of its own: the flag would rebuild everything else.
fn loom(workspace: &Workspace) -> Result<Outcome, Failure> {
    let packages = ["-p", "hotloop-ring", "-p", "hotloop-engine"];
    let mut command = cargo(&["test", "--test", "loom"]);
    command
        .args(packages)
        .env("RUSTFLAGS", "--cfg loom")
        // Optimised, the models take a third of the time.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_TARGET_DIR", workspace.target_directory.join("loom"));
    process::run(&mut command).map(Outcome::passed)
}

const NEON_TARGET: &str = "aarch64-unknown-linux-gnu";
const NEON_LINKER: &str = "aarch64-linux-gnu-gcc";

fn neon(workspace: &Workspace) -> Result<Outcome, Failure> {
    if cfg!(target_arch = "aarch64") {
        return Outcome::skipped("this machine has NEON: the step `tests` ran them");
    }
    if !rustc::library_folder(NEON_TARGET)?.is_dir() {
        return Outcome::skipped(format!("no such target: rustup target add {NEON_TARGET}"));
    }
    if process::find_program(NEON_LINKER).is_none() {
        return Outcome::skipped(format!("no {NEON_LINKER}, the linker for {NEON_TARGET}"));
    }
    let emulators = ["qemu-aarch64", "qemu-aarch64-static"];
    let Some(emulator) = emulators.iter().find_map(|name| process::find_program(name)) else {
        return Outcome::skipped("no qemu-aarch64 or qemu-aarch64-static (qemu-user)");
    };
    // Optimised, because the emulator is slow.
    let arguments = ["test", "--release", "-p", "hotloop-flow", "--tests", "--target", NEON_TARGET];
    // The linker's package installs the target's C library there.
    let runner = format!("{emulator} -L /usr/aarch64-linux-gnu");
    let mut command = cargo(&arguments);
    command
        // Flags for the processor of this machine mean nothing to the other one.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", NEON_LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner)
        .env("CARGO_TARGET_DIR", workspace.target_directory.join("neon"));
    process::run(&mut command).map(Outcome::passed)
}

/// The crates that hold unsafe code and run it in their tests.
const SANITIZED: [&str; 5] =
    ["hotloop-ring", "hotloop-arena", "hotloop-flow", "hotloop-stage", "hotloop-dpdk"];

fn sanitizer(workspace: &Workspace) -> Result<Outcome, Failure> {
    let host = Rustc::ask()?.host;
    if !has_asan_runtime(&rustc::library_folder(&host)?) {
        return Outcome::skipped(format!("this toolchain has no AddressSanitizer for {host}"));
    }
    let mut command = cargo(&["test", "--tests", "--target", &host]);
    command
        .args(SANITIZED.iter().flat_map(|package| ["--package", package]))
        // The flag is unstable; the runtime that it needs is part of stable toolchains.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env("CARGO_TARGET_DIR", workspace.target_directory.join("sanitize"))
        // DPDK frees nothing before the process ends. If a test requests more memory than there is,
        // the allocator returns null instead of aborting.
        .env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1");
    process::run(&mut command).map(Outcome::passed)
}

fn has_asan_runtime(libraries: &Path) -> bool {
    std::fs::read_dir(libraries).into_iter().flatten().flatten().any(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        name.starts_with("librustc") && name.contains("_rt.asan.")
    })
}

/// Packages, and the tests of each. Tests iterate less under `cfg(miri)`: Miri takes a thousand
/// times as long as the processor.
const MIRI_RUNS: [(&str, &[&str]); 4] = [
    ("hotloop-stage", &["--lib", "--", "burst"]),
    // Threads meet in `ends` and `mesh`; those of `threads` would wait for each other for minutes.
    ("hotloop-ring", &["--lib", "--test=ends", "--test=mesh", "--test=million", "--test=oracle"]),
    // Under Miri, mappings come from the allocator: `mapping_miri.rs`.
    ("hotloop-arena", &["--test=boxed"]),
    ("hotloop-flow", &["--lib", "--", "panics", "short_sequences"]),
];

/// Miri finds what a sanitizer cannot: accesses that break the rules of references, and data races
/// in orders that this processor never shows.
fn miri(workspace: &Workspace) -> Result<Outcome, Failure> {
    let ask = |words: &[&str]| process::quiet_output(&mut nightly(words));
    let source = ask(&["rustc", "--print", "sysroot"])
        .map(|sysroot| PathBuf::from(sysroot).join("lib/rustlib/src/rust/library"));
    if !source.is_some_and(|source| source.is_dir()) || ask(&["cargo", "miri", "-V"]).is_none() {
        return Outcome::skipped(
            "no nightly toolchain with Miri and the source of the standard library: \
             rustup toolchain install nightly --component miri --component rust-src",
        );
    }
    for (package, arguments) in MIRI_RUNS {
        let mut command = nightly(&["cargo", "miri", "test", "--package", package]);
        command
            .args(arguments)
            // Passes the environment of proptest on; pointers keep their provenance.
            .env(
                "MIRIFLAGS",
                "-Zmiri-isolation-error=hide -Zmiri-env-forward=PROPTEST_CASES \
                 -Zmiri-strict-provenance",
            )
            .env("PROPTEST_CASES", "2")
            .env("CARGO_TARGET_DIR", workspace.target_directory.join("miri"));
        process::run(&mut command)?;
    }
    Ok(Outcome::passed(()))
}

/// A program of the nightly toolchain, without the environment of this toolchain's cargo.
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
    fn the_runtime_of_another_sanitizer_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("librustc-stable_rt.lsan.a"), "").unwrap();
        assert!(!has_asan_runtime(folder.path()));
        std::fs::write(folder.path().join("librustc-stable_rt.asan.a"), "").unwrap();
        assert!(has_asan_runtime(folder.path()));
        assert!(!has_asan_runtime(&folder.path().join("absent")));
    }
}
