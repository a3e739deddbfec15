//! The entry of a benchmark.

use std::env;
use std::process::ExitCode;

/// Calls `run` with the program's arguments if `cargo bench` has started it.
pub fn main(run: impl FnOnce(&[&str]) -> Result<(), String>) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    // `cargo test --all-targets` starts benchmarks as well; there is nothing to test.
    if !words.contains(&"--bench") {
        eprintln!("nothing is measured without --bench, which `cargo bench` gives");
        return ExitCode::SUCCESS;
    }
    ended(run(&words))
}

/// The exit code of a program. Prints its error.
#[must_use]
pub fn ended(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
