//! The flow table's tests on another processor: its NEON back-end, under an emulator.

use crate::failure::Failure;
use crate::process;
use crate::rustc;
use crate::test::Outcome;
use crate::workspace::Workspace;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";

/// The emulator, linked dynamically or statically.
const EMULATORS: [&str; 2] = ["qemu-aarch64", "qemu-aarch64-static"];

/// Where the linker's package puts the target's C library, which the emulated program loads.
const SYSTEM_ROOT: &str = "/usr/aarch64-linux-gnu";

/// One step of `cargo xtask test`.
pub fn step(workspace: &Workspace) -> Result<Outcome, Failure> {
    if cfg!(target_arch = "aarch64") {
        return Ok(Outcome::Skipped("this machine has NEON, and ran them with the others".into()));
    }
    let is_target_installed = rustc::library_folder(TARGET)?.is_dir();
    let runner = match runner(is_target_installed) {
        Ok(runner) => runner,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    // Optimised, as the emulator is slow.
    let arguments = ["test", "--release", "-p", "hotloop-flow", "--tests", "--target", TARGET];
    let mut command = process::cargo(&arguments);
    command
        // Flags for this machine's processor mean nothing to the other one.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner)
        .env("CARGO_TARGET_DIR", workspace.target_directory.join("neon"));
    process::run(&mut command).map(|()| Outcome::Passed)
}

/// What cargo starts the tests with, or why they can't be built or run here.
fn runner(is_target_installed: bool) -> Result<String, String> {
    if !is_target_installed {
        return Err(format!("the target is not installed: rustup target add {TARGET}"));
    }
    if process::find_program(LINKER).is_none() {
        return Err(format!("no {LINKER}, which links for {TARGET}"));
    }
    let emulator = EMULATORS.iter().find_map(|name| process::find_program(name));
    let emulator = emulator.ok_or_else(|| format!("no {} (qemu-user)", EMULATORS.join(" or ")))?;
    Ok(format!("{} -L {SYSTEM_ROOT}", emulator.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let why = runner(false).unwrap_err();
        assert!(why.ends_with("rustup target add aarch64-unknown-linux-gnu"), "{why}");
        match runner(true) {
            Ok(runner) => assert!(runner.contains("qemu-aarch64"), "{runner}"),
            Err(why) => assert!(why.starts_with("no "), "{why}"),
        }
    }
}
