//! Shows what the programs of this machine that are built on hotloop do, while they run.
//!
//! ```sh
//! hotloop-top --interval 2
//! ```
//!
//! It only reads: `docs/programs/top.md` says what. It is for Linux, and for the users whose programs
//! they are.

use clap::Parser;
use hotloop_ops::top::{TopArgs, top};
use std::process::ExitCode;

/// Shows what programs built on hotloop do while they run: rates of packets by core, stage, ring and
/// device, mempools, and drops by reason. Keys are shown in the last line.
#[derive(Parser)]
#[command(name = "hotloop-top", version)]
struct Cli {
    #[command(flatten)]
    top: TopArgs,
}

fn main() -> ExitCode {
    hotloop_ops::program("hotloop-top", || {
        let cli = hotloop_ops::parse(std::env::args_os());
        hotloop_ops::exit_code(cli.and_then(|cli: Cli| top(&cli.top)))
    })
}
