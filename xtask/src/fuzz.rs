//! `cargo xtask fuzz`: looks for bytes that break a promise, led by coverage.
//!
//! The fuzzer is LLVM's libFuzzer, built from source by the crate libfuzzer-sys; the compiler's
//! flags are the ones that cargo-fuzz sets, so that nothing has to be installed but a C++ compiler.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::rustc::Rustc;
use crate::setup::{self, Wanted};
use crate::workspace::Workspace;

const PACKAGE: &str = "hotloop-fuzz";

/// Coverage as libFuzzer reads it, and AddressSanitizer.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions -Coverflow-checks -Zsanitizer=address";

/// The longest input that is tried, in bytes.
const INPUT_BYTES_MAX: u32 = 4096;

/// How long one input may take, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;

/// A target, and how to fuzz it.
pub struct Request<'a> {
    /// The target.
    pub target: &'a str,
    /// How long to look, in seconds.
    pub seconds: u64,
    /// Whether what reached new code is added to the corpus that is committed.
    pub keep: bool,
}

/// The folders of a target.
struct Folders {
    /// The corpus that is committed.
    committed: PathBuf,
    /// What this machine has found.
    found: PathBuf,
    /// Inputs that failed.
    failed: PathBuf,
}

/// Sets up, builds and runs the fuzzer of a target.
pub fn run(workspace: &Workspace, request: &Request<'_>) -> Result<(), Failure> {
    let folders = Folders::of(workspace, request.target)?;
    setup::ensure(Wanted { cxx: true, ..Wanted::default() })?;
    let program = build(workspace)?;
    for folder in [&folders.found, &folders.failed] {
        fs::create_dir_all(folder).map_err(Failure::file("can't make", folder))?;
    }
    let mut fuzzer = fuzzer(&program, request.target);
    let mut prefix = OsString::from("-artifact_prefix=");
    prefix.push(folders.failed.join(""));
    fuzzer.arg(prefix).arg(format!("-max_total_time={}", request.seconds));
    process::run(fuzzer.args([&folders.found, &folders.committed])).map_err(|failure| {
        Failure::failed(format!(
            "{failure}\nThe input that failed is in {}. Once it is mended, put it into {}, where \
             the tests try it again.",
            folders.failed.display(),
            folders.committed.display()
        ))
    })?;
    if request.keep {
        return keep(&program, request.target, &folders);
    }
    Ok(())
}

/// Adds those inputs to the committed corpus that reach what none of it does.
fn keep(program: &Path, target: &str, folders: &Folders) -> Result<(), Failure> {
    let mut merge = fuzzer(program, target);
    merge.args(["-set_cover_merge=1"]).args([&folders.committed, &folders.found]);
    process::run(&mut merge)
}

impl Folders {
    /// Those of a target, which has a committed corpus.
    fn of(workspace: &Workspace, target: &str) -> Result<Self, Failure> {
        let corpora = workspace.workspace_root.join("fuzz/corpus");
        let committed = corpora.join(target);
        if target.is_empty() || target.contains('/') || !committed.is_dir() {
            let targets = targets(&corpora)?.join(", ");
            let problem = format!("no fuzz target `{target}`; there are: {targets}");
            return Err(Failure::refused(problem));
        }
        let folder = workspace.target_directory.join("fuzz");
        let found = folder.join("corpus").join(target);
        Ok(Self { committed, found, failed: folder.join("failed").join(target) })
    }
}

/// The targets: each has its corpus.
fn targets(corpora: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(corpora).map_err(Failure::file("can't list", corpora))?;
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = entries.flatten().map(name).collect();
    names.sort();
    Ok(names)
}

fn fuzzer(program: &Path, target: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("HOTLOOP_FUZZ_TARGET", target)
        // DPDK keeps what it made until the process ends.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    command
}

/// In a target folder of its own, with the host named, so that the flags reach no build script.
fn build(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let host = Rustc::ask()?.host;
    let folder = workspace.target_directory.join("fuzz");
    let mut command = process::cargo(&["build", "--release", "--package", PACKAGE]);
    command
        .args(["--features", "libfuzzer", "--target", &host])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_TARGET_DIR", &folder);
    process::run(&mut command)?;
    Ok(folder.join(host).join("release/fuzz"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_target_is_refused_with_those_there_are() {
        let root = tempfile::tempdir().unwrap();
        for target in ["headers", "balancer"] {
            fs::create_dir_all(root.path().join("fuzz/corpus").join(target)).unwrap();
        }
        let workspace = Workspace {
            packages: Vec::new(),
            workspace_root: root.path().to_owned(),
            target_directory: root.path().join("target"),
        };
        for wrong in ["frames", "", "../corpus", "balancer/"] {
            let failure = Folders::of(&workspace, wrong).err().expect("no such target");
            assert_eq!(failure.exit_code, 2);
            let expected = format!("no fuzz target `{wrong}`; there are: balancer, headers");
            assert_eq!(failure.to_string(), expected);
        }
        let folders = Folders::of(&workspace, "headers").unwrap();
        assert!(folders.failed.ends_with("target/fuzz/failed/headers"));
    }
}
