//! The other end of a load balancer's tunnels. `ipip-endpoint --help` says more. `ipip-endpoint ctl`
//! asks one that runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::main("ipip-endpoint", |cli| ipip_endpoint::run::run(&cli))
}
