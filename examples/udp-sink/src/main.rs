//! Receives UDP datagrams and prints their rate each second. `udp-sink --help` says more. `udp-sink ctl`
//! asks one that runs.

use std::process::ExitCode;
use udp_sink::cli::Cli;
use udp_sink::{arguments, run};

fn main() -> ExitCode {
    hotloop_ops::program("udp-sink", || {
        if let Some(code) = hotloop_ops::ctl("udp-sink", std::env::args_os()) {
            return code;
        }
        let cli = arguments::parse::<Cli>(std::env::args_os());
        hotloop_ops::exit_code(cli.and_then(run::run))
    })
}
