//! Shows the running programs of this machine that are built on hotloop.
//!
//! ```sh
//! hotloop-top --interval 2
//! ```
//!
//! The program only reads: `docs/programs/top.md` describes the screen. It runs on Linux, for the
//! users that own the programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_top::main()
}
