//! Says what of a machine costs packets speed or safety, why, and the command that changes it.
//!
//! ```text
//! hotloop-doctor --cpus 2-5 --device 0000:01:00.0
//! ```
//!
//! It reads files and changes nothing, but with `--restore`, which puts back what a program that was killed
//! had taken over of the kernel's interfaces. `--help` lists the exit codes; [`hotloop_doctor`] has what
//! it guarantees, and its limits.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_doctor::main()
}
