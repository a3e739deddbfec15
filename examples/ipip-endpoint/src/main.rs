//! The other end of a load balancer's tunnels. See `ipip-endpoint --help`. `ipip-endpoint ctl`
//! queries a running program.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotloop_ops::main("ipip-endpoint", |cli| ipip_endpoint::run::run(&cli))
}
