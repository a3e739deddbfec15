//! The program: reads its arguments, runs the command, and reports the outcome in its exit code.
//!
//! 0: success. 1: the run failed, or its ledger is not whole. 2: invalid input. Reports go to
//! standard output, messages to standard error.

use hotloop::engine::Control;
use hotloop_balancer::hashes::HashKey;
use hotloop_cluster::random::random_bytes;
use hotloop_ops::ReportFormat;
use hotloop_ops::{expect_hangup, print, print_in_time};
use ipip_lb::check::Understood;
use ipip_lb::cli::{Cli, Command, Common, Parsed};
use ipip_lb::detach;
use ipip_lb::failure::Failure;
use ipip_lb::replay::replay;
use ipip_lb::run::run;
use ipip_lb::vip_guard;
use std::process::ExitCode;

fn main() -> ExitCode {
    let is_expecting = expect_signals();
    hotloop_ops::program("ipip-lb", || {
        let parsed = is_expecting.and_then(|()| Ok(Cli::parse_from_args(std::env::args_os())?));
        parsed.and_then(|parsed| act(&parsed)).unwrap_or_else(|failure| {
            tracing::error!("{failure}");
            failure.exit_code()
        })
    })
}

/// Comes first: a SIGHUP may request a reload at any time, even while DPDK starts, and a signal
/// that ends the run may come before the run begins.
fn expect_signals() -> Result<(), Failure> {
    let command = std::env::args_os().nth(1).unwrap_or_default();
    if command == "run" || command == "replay" {
        Control::catch_signals();
    }
    match command == "run" {
        true => expect_hangup().map_err(|error| Failure::Run(format!("SIGHUP: {error}"))),
        false => Ok(()),
    }
}

fn act(parsed: &Parsed) -> Result<ExitCode, Failure> {
    let command = match parsed {
        Parsed::Cli(cli) => &cli.command,
        Parsed::Help(text) => {
            print(text).map_err(unwritten)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    match command {
        Command::Check(check) => self::check(&check.common)?,
        Command::Replay(args) => {
            let outcome = replay(args)?;
            let printed = print(&outcome.text(args.common.report));
            outcome.verdict().and(printed.map_err(unwritten))?;
        }
        Command::Run(args) if args.detach => {
            args.log.begin();
            return detach::run(args);
        }
        Command::Run(args) => {
            args.log.begin();
            let outcome = run(args)?;
            let printed = print_in_time(&outcome.text(args.common.report));
            outcome.verdict().and(printed.map_err(unwritten))?;
        }
        Command::Keygen => keygen()?,
        Command::Ctl(ctl) => return Ok(ctl.ask()),
        Command::Cluster(cluster) => cluster.act()?,
        Command::GuardVips(args) => vip_guard::run_guard(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn check(common: &Common) -> Result<(), Failure> {
    let config = common.source.configuration()?;
    let understood = Understood(&config);
    print(&match common.report {
        ReportFormat::Text => understood.to_string(),
        ReportFormat::Json => format!("{:#}\n", understood.to_json()),
    })
    .map_err(unwritten)
}

fn keygen() -> Result<(), Failure> {
    let bytes = random_bytes();
    let bytes = bytes.map_err(|error| Failure::Run(format!("no random numbers: {error}")))?;
    let key = HashKey::new(u128::from_ne_bytes(bytes));
    print(&format!("{}\n", key.to_hex())).map_err(unwritten)
}

fn unwritten(error: std::io::Error) -> Failure {
    Failure::Run(format!("standard output: {error}"))
}
