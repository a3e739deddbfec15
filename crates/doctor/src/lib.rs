//! The program `hotloop-doctor`: its command line, and the findings of [`hotloop_machine`] as text
//! or JSON.
//!
//! ```sh
//! hotloop-doctor --cpus 2-5 --device 0000:01:00.0
//! ```
//!
//! # Guarantees
//!
//! - The doctor reads files and changes nothing, except with `--restore` (feature `kernel`, on by
//!   default).
//! - The exit code is that of the worst finding. Keys, ids and severities of the JSON are stable;
//!   the text is for people and may change.
//!
//! # Limits
//!
//! The doctor needs no DPDK. [`hotloop_machine`] has the checks, and the limits of what they see.
#![forbid(unsafe_code)]

use clap::{Command, CommandFactory, Parser};
use hotloop_machine::{CpuList, CpuListError, Finding, Setup, Severity, examine};
#[cfg(feature = "kernel")]
use hotloop_ops::socket_folders;
use hotloop_ops::{Failure, exit_code, parse, print, program};
use serde_json::json;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// The version of the JSON, incremented when a key changes or goes away.
const JSON_VERSION: u32 = 1;

/// Finds settings of this machine that cost packets speed or safety, explains each, and prints the
/// command that changes it. Changes nothing itself, except with --restore.
#[derive(Debug, Parser)]
#[command(
    name = "hotloop-doctor",
    version,
    after_help = "Exit code: 0 if nothing was found, 3 if something costs speed, 4 if something \
                  costs safety; 1 if the doctor itself failed, 2 for wrong arguments. Files that \
                  can't be read count as unknown, which does not change the exit code."
)]
struct Cli {
    /// The CPUs of workers, such as 2-5,8. By default, the isolated CPUs; if no CPU is isolated,
    /// all that may be used but the first, one of each physical core.
    #[arg(long, value_name = "CPUS", value_parser = cpus)]
    cpus: Option<CpuList>,
    /// A device that programs will use: a PCI address, a kernel interface, or a device string such
    /// as net_af_packet0,iface=eth1. May be repeated.
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<String>,
    /// The address of a service, which must not be one of the machine's own. May be repeated.
    #[arg(long = "vip", value_name = "ADDRESS")]
    vips: Vec<IpAddr>,
    /// Read the machine's files (/sys, /proc, /usr/lib) below this folder.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Restore the kernel interfaces that killed programs had taken over, in this network
    /// namespace, and check nothing else. Needs CAP_NET_ADMIN.
    #[cfg(feature = "kernel")]
    #[arg(long, exclusive = true)]
    restore: bool,
    /// Write one line of JSON.
    #[arg(long)]
    json: bool,
}

/// The command line of `hotloop-doctor`, for its manual page and completions.
#[must_use]
pub fn command() -> Command {
    Cli::command()
}

fn cpus(text: &str) -> Result<CpuList, String> {
    let cpus: CpuList = text.parse().map_err(|error: CpuListError| error.to_string())?;
    if cpus.is_empty() { Err(CpuListError.to_string()) } else { Ok(cpus) }
}

/// The whole program `hotloop-doctor`: reads its arguments, prints the findings of [`examine`], and
/// returns the worst one's [`Severity::exit_code`].
#[must_use]
pub fn main() -> ExitCode {
    program("hotloop-doctor", || match parse(std::env::args_os()).and_then(|cli| run(&cli)) {
        Ok(worst) => ExitCode::from(worst.exit_code()),
        Err(failure) => exit_code(Err(failure)),
    })
}

fn run(cli: &Cli) -> Result<Severity, Failure> {
    #[cfg(feature = "kernel")]
    if cli.restore {
        return restore();
    }
    if !cli.root.is_dir() {
        let root = cli.root.display();
        return Err(Failure::Input(format!(
            "--root {root}: no such folder; give one with sys and proc in it"
        )));
    }
    let setup =
        Setup { cpus: cli.cpus.clone(), devices: cli.devices.clone(), vips: cli.vips.clone() };
    let findings = examine(&cli.root, &setup);
    let worst = findings.iter().map(|found| found.severity).max().unwrap_or(Severity::Ok);
    print(&if cli.json { json(&findings, worst) } else { text(&findings) })?;
    Ok(worst)
}

/// Restores interfaces from the state files of this user and of the system.
#[cfg(feature = "kernel")]
fn restore() -> Result<Severity, Failure> {
    let mut lines = String::new();
    for folder in socket_folders() {
        let restored = hotloop_kernel::restore(&folder);
        for name in restored.map_err(|error| Failure::Run(error.to_string()))? {
            lines.push_str(&format!("{name} has its addresses and routes again\n"));
        }
    }
    print(if lines.is_empty() { "nothing to restore\n" } else { &lines })?;
    Ok(Severity::Ok)
}

fn json(findings: &[Finding], worst: Severity) -> String {
    format!("{}\n", json!({"version": JSON_VERSION, "worst": worst, "findings": findings}))
}

fn text(findings: &[Finding]) -> String {
    let count = |severity| findings.iter().filter(|found| found.severity == severity).count();
    let lines: String = findings.iter().map(|found| format!("{found}\n")).collect();
    format!(
        "{lines}\n{} cost safety, {} speed; {} are right, {} unknown\n",
        count(Severity::Safety),
        count(Severity::Speed),
        count(Severity::Ok),
        count(Severity::Unknown),
    )
}
