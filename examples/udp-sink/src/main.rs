//! Receives UDP datagrams and prints their rate each second. `udp-sink --help` says more.

use std::process::ExitCode;
use udp_sink::cli::Cli;
use udp_sink::{arguments, failure, run};

fn main() -> ExitCode {
    failure::exit_code("udp-sink", arguments::parse::<Cli>(std::env::args_os()).and_then(run::run))
}
