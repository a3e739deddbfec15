//! `cargo xtask bench instructions`: how many instructions the hot functions take, counted by
//! callgrind, beside the counts kept in the repository.
//!
//! A count is exact where a time is not: it is the same on a busy machine and from run to run. It
//! is kept by compiler, as another one makes other code of the same source.

mod callgrind;
mod comparison;
mod kept;

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Deserialize;

use crate::failure::Failure;
use crate::process;
use crate::rustc::Rustc;
use crate::workspace::Workspace;

use comparison::Comparison;
use kept::{Counts, Kept};

/// The group, and the bench target.
pub const GROUP: &str = "instructions";

/// How often a function is called for its count.
const CALL_COUNT: u64 = 1000;

const KEPT_FILE: &str = "benches/instructions.json";

/// What to do with the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Keep them.
    Keep,
    /// Compare them with those that are kept.
    Check,
}

/// Counts every case and prints the table.
pub fn run(workspace: &Workspace, mode: Mode) -> Result<(), Failure> {
    let started = Instant::now();
    let program = build()?;
    let now = count_all(&program)?;
    let rustc = Rustc::ask()?;
    let compiler = format!("{}, {}", rustc.version, rustc.host);
    let file = workspace.workspace_root.join(KEPT_FILE);
    let mut kept = Kept::read(&file)?;

    let same = kept.of(&compiler);
    let beside = same.or(kept.latest().map(|(_, counts)| counts));
    let comparison = Comparison::new(beside.unwrap_or(&Counts::new()), &now);
    println!("{comparison}");
    println!("counted in {} s with {compiler}", started.elapsed().as_secs());
    let is_known = same.is_some();
    if !is_known {
        let of = kept.latest().map_or("no compiler", |(of, _)| of);
        println!("the counts kept are of {of}: they are shown, and prove nothing");
    }
    match mode {
        Mode::Keep => {
            kept.put(compiler, now);
            kept.write(&file)?;
            println!("kept in {KEPT_FILE}");
            Ok(())
        }
        Mode::Check if is_known => verdict(&comparison),
        Mode::Check => Ok(()),
    }
}

fn verdict(comparison: &Comparison) -> Result<(), Failure> {
    match comparison.changed_count() {
        0 => {
            println!("every count is as kept in {KEPT_FILE}");
            Ok(())
        }
        count => Err(Failure::failed(format!(
            "counts other than kept in {KEPT_FILE}: {count}. If the change is meant, run `cargo xtask \
             bench {GROUP}` and commit the file with it."
        ))),
    }
}

/// Builds the program that holds the cases, for this machine's kind and not for this machine.
fn build() -> Result<PathBuf, Failure> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    let arguments = ["bench", "--package", crate::bench::PACKAGE, "--bench", GROUP, "--no-run"];
    let mut command = process::cargo(&arguments);
    command.arg("--message-format=json-render-diagnostics");
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let messages = process::output(&mut command)?;
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    built
        .filter_map(|message| message.executable)
        .next_back()
        .ok_or_else(|| Failure::failed("cargo names no executable of the benchmark"))
}

fn count_all(program: &Path) -> Result<Counts, Failure> {
    let cases = process::output(std::process::Command::new(program).arg("--list"))?;
    let mut counts = Counts::new();
    for case in cases.lines() {
        eprintln!("counting {case}");
        counts.insert(case.to_owned(), count(program, case)?);
    }
    Ok(counts)
}

/// The instructions of `CALL_COUNT` calls. The program prepares the same whatever the number of
/// calls, so twice as many less as many leaves the calls alone.
fn count(program: &Path, case: &str) -> Result<u64, Failure> {
    let once = callgrind::count(program, case, CALL_COUNT)?;
    let twice = callgrind::count(program, case, 2 * CALL_COUNT)?;
    twice.checked_sub(once).ok_or_else(|| {
        Failure::failed(format!("{case}: twice the calls took {twice} instructions, once {once}"))
    })
}
