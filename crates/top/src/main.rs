//! Shows what the programs of this machine that are built on hotloop do, while they run.
//!
//! ```sh
//! hotloop-top --interval 2
//! ```
//!
//! It only reads: `docs/programs/top.md` says what. It is for Linux, and for the users whose programs
//! they are.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_top::main()
}
