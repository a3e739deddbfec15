//! The other end of a load balancer's tunnels. `ipip-endpoint --help` says more. `ipip-endpoint ctl`
//! asks one that runs.

use ipip_endpoint::cli::Cli;
use ipip_endpoint::run;
use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::program("ipip-endpoint", || {
        if let Some(code) = hotloop_ops::ctl("ipip-endpoint", std::env::args_os()) {
            return code;
        }
        let cli = Cli::parse_from_args(std::env::args_os());
        hotloop_ops::exit_code(cli.and_then(|cli| run::run(&cli)))
    })
}
