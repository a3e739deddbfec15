//! What every program does first and last.

use crate::{diagnostics, privileges};
use std::process::ExitCode;

/// Runs a program, from the first line of its `main` to the last: what it says by `tracing`'s events
/// goes to standard error without ever waiting for it, panics among them. What is left at the end is
/// written in [`EXIT_WAIT`](crate::EXIT_WAIT), or lost. Nothing that it starts can have more rights
/// than it has (no_new_privs, prctl(2)), and EAL's own threads have no capabilities.
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
    let begun = privileges::begin();
    let _flush = diagnostics::begin(name);
    if let Err(error) = begun {
        tracing::warn!("no_new_privs: {error}");
    }
    main()
}
