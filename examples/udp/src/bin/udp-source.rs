//! Sends UDP datagrams and prints their rate each second. `udp-source --help` says more. `udp-source ctl` asks
//! one that runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::main("udp-source", udp::source::run::run)
}
