//! Finds settings of a machine that cost packets speed or safety, and prints the command that
//! changes each.
//!
//! ```text
//! hotloop-doctor --cpus 2-5 --device 0000:01:00.0
//! ```
//!
//! It reads files and changes nothing, except with `--restore`, which restores the kernel
//! interfaces that a killed program had taken over. `--help` lists the exit codes;
//! [`hotloop_doctor`] has the guarantees and limits.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_doctor::main()
}
