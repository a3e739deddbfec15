//! What every program does first and last.

use crate::diagnostics;
use std::process::ExitCode;

/// Runs a program, from the first line of its `main` to the last: what it says by `tracing`'s events
/// goes to standard error without ever waiting for it, panics among them. What is left at the end is
/// written in [`EXIT_WAIT`](crate::EXIT_WAIT), or lost.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     hotloop_ops::program("nf", || {
///         tracing::info!("that was all");
///         ExitCode::SUCCESS
///     })
/// }
/// ```
pub fn program(name: &'static str, main: impl FnOnce() -> ExitCode) -> ExitCode {
    let _flush = diagnostics::begin(name);
    main()
}
