//! The program: reads its arguments, does what they say, and says how it went in its exit code.
//!
//! 0: all well. 1: the run failed, or its ledger is not whole. 2: something that was given to the
//! program is wrong. Reports go to standard output, everything else to standard error.

use ipip_lb::check::Understood;
use ipip_lb::cli::{Cli, Command, Common, Parsed, ReportFormat};
use ipip_lb::failure::Failure;
use ipip_lb::hashes::HashKey;
use ipip_lb::outcome::Outcome;
use ipip_lb::replay::replay;
use ipip_lb::run::run;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = Cli::parse_from_args(std::env::args_os()).map_err(Failure::from);
    match result.and_then(|parsed| act(&parsed)) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("ipip-lb: {failure}");
            failure.exit_code()
        }
    }
}

fn act(parsed: &Parsed) -> Result<ExitCode, Failure> {
    match parsed {
        Parsed::Help(text) => print(text)?,
        Parsed::Cli(Cli { command: Command::Check(check) }) => self::check(&check.common)?,
        Parsed::Cli(Cli { command: Command::Replay(args) }) => {
            report(&replay(args)?, &args.common)?
        }
        Parsed::Cli(Cli { command: Command::Run(args) }) => report(&run(args)?, &args.common)?,
        Parsed::Cli(Cli { command: Command::Keygen }) => keygen()?,
        Parsed::Cli(Cli { command: Command::Ctl(ctl) }) => return Ok(ctl.ask()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what came of a run, also of one that failed, and says whether it did.
fn report(outcome: &Outcome, common: &Common) -> Result<(), Failure> {
    print(&outcome.text(common.report))?;
    outcome.verdict()
}

fn check(common: &Common) -> Result<(), Failure> {
    let config = common.configuration()?;
    let understood = Understood(&config);
    match common.report {
        ReportFormat::Text => print(&understood.to_string()),
        ReportFormat::Json => print(&format!("{:#}\n", understood.to_json())),
    }
}

fn keygen() -> Result<(), Failure> {
    let key = HashKey::random();
    let key = key.map_err(|error| Failure::Run(format!("no random numbers: {error}")))?;
    print(&format!("{}\n", key.to_hex()))
}

/// Writes to standard output. A reader that has gone away is not an error: it has seen enough.
fn print(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
