//! Sends UDP datagrams and prints their rate each second. See `udp-source --help`. `udp-source ctl`
//! queries a running program.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::main("udp-source", udp::source::run::run)
}
