//! Sends UDP datagrams and prints their rate each second. `udp-source --help` says more. `udp-source ctl` asks
//! one that runs.

use std::process::ExitCode;
use udp_sink::arguments;
use udp_source::cli::Cli;
use udp_source::run;

fn main() -> ExitCode {
    hotloop_ops::program("udp-source", || {
        if let Some(code) = hotloop_ops::ctl("udp-source", std::env::args_os()) {
            return code;
        }
        let cli = arguments::parse::<Cli>(std::env::args_os());
        hotloop_ops::exit_code(cli.and_then(run::run))
    })
}
