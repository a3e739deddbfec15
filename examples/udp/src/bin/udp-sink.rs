//! Receives UDP datagrams and prints their rate each second. See `udp-sink --help`. `udp-sink ctl`
//! queries a running program.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::main("udp-sink", udp::sink::run::run)
}
