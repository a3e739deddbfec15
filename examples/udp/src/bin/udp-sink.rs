//! Receives UDP datagrams and prints their rate each second. `udp-sink --help` says more. `udp-sink ctl`
//! asks one that runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::main("udp-sink", udp::sink::run::run)
}
