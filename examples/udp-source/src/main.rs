//! Sends UDP datagrams and prints their rate each second. `udp-source --help` says more.

use std::process::ExitCode;
use udp_sink::{arguments, failure};
use udp_source::cli::Cli;
use udp_source::run;

fn main() -> ExitCode {
    failure::exit_code(
        "udp-source",
        arguments::parse::<Cli>(std::env::args_os()).and_then(run::run),
    )
}
