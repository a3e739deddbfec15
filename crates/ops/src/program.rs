//! The frame of every program: the beginning and the end of its `main`.

use crate::ask::CtlArgs;
use crate::ctl::{NoCommand, ctl};
use crate::failure::{Failure, exit_code, usage};
use crate::{diagnostics, privileges};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs a program without commands of its own: parses its arguments and calls `run` with them,
/// within [`program`]. `NAME ctl …` queries one that runs.
pub fn main<C: Parser>(name: &'static str, run: impl FnOnce(C) -> Result<(), Failure>) -> ExitCode {
    main_with(name, run, |_, none: NoCommand| match none {})
}

/// As [`main()`], for a program whose [`Steer::answer`](crate::Steer::answer) has commands of its
/// own: `ask` sends those of `NAME ctl …` to a program that runs, mostly by [`CtlArgs::ask`], and
/// returns the exit code.
pub fn main_with<C: Parser, O: Subcommand>(
    name: &'static str,
    run: impl FnOnce(C) -> Result<(), Failure>,
    ask: impl FnOnce(&CtlArgs, O) -> ExitCode,
) -> ExitCode {
    program(name, || {
        let args = std::env::args_os();
        ctl(name, args, ask).unwrap_or_else(|| exit_code(parse(std::env::args_os()).and_then(run)))
    })
}

/// Parses arguments, the program's name first.
///
/// # Errors
/// [`Failure::Help`] for help or the version, [`Failure::Input`] if an argument is wrong or
/// missing.
pub fn parse<C: Parser>(
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<C, Failure> {
    C::try_parse_from(args).map_err(|error| usage(&error))
}

/// Runs a program, from the first line of its `main` to the last. Its messages, `tracing`'s events
/// and panics, go to standard error without ever waiting for it. At the end, the calling thread
/// writes the remaining ones itself, such as the error that ends the program. It gives up after
/// [`EXIT_WAIT`](crate::EXIT_WAIT) if standard error takes nothing. Nothing that the program starts
/// can have more rights than it has (no_new_privs, prctl(2)), and EAL's own threads have no
/// capabilities.
///
/// ```
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
