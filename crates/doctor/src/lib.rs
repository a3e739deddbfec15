//! The program `hotloop-doctor`: its command line, and the findings of [`hotloop_machine`] as text or JSON.
//!
//! ```sh
//! hotloop-doctor --cpus 2-5 --device 0000:01:00.0
//! ```
//!
//! # Guarantees
//!
//! - The doctor reads files and changes nothing, but with `--restore`, which feature `kernel` (default) adds.
//! - The exit code is that of the worst finding. Keys, ids and severities of the JSON stay; the text is for
//!   people.
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

/// The version of the JSON: it grows where a key changes or goes.
const JSON_VERSION: u32 = 1;

/// Says what of this machine is right for packets, and what costs them speed or safety, why, and the
/// command that changes it. Changes nothing itself, but with --restore.
#[derive(Debug, Parser)]
#[command(
    name = "hotloop-doctor",
    version,
    after_help = "Exit code: 0 where nothing was found, 3 where something costs speed, 4 where \
                  something costs safety; 1 where the doctor itself failed, 2 for wrong arguments. What \
                  could not be read is unknown, and counts for nothing."
)]
struct Cli {
    /// The CPUs that workers are to run on, such as 2-5,8; without them, those that are isolated, or
    /// else all that may be used but the first, of each physical core one.
    #[arg(long, value_name = "CPUS", value_parser = cpus)]
    cpus: Option<CpuList>,
    /// A device that is to be used: a PCI address, a kernel interface, or a device string such as
    /// net_af_packet0,iface=eth1. May be repeated.
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<String>,
    /// An address at which a service is reached, which must be none of the machine's own. May be
    /// repeated.
    #[arg(long = "vip", value_name = "ADDRESS")]
    vips: Vec<IpAddr>,
    /// Read the machine's files (/sys, /proc, /usr/lib) below this folder.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Put back what programs that were killed had taken over of the kernel's interfaces, in this network
    /// namespace, and look at nothing else. Needs CAP_NET_ADMIN.
    #[cfg(feature = "kernel")]
    #[arg(long, exclusive = true)]
    restore: bool,
    /// Write one line of JSON.
    #[arg(long)]
    json: bool,
}

/// What the command line of `hotloop-doctor` is, for a manual page and completions.
#[must_use]
pub fn command() -> Command {
    Cli::command()
}

fn cpus(text: &str) -> Result<CpuList, String> {
    let cpus: CpuList = text.parse().map_err(|error: CpuListError| error.to_string())?;
    if cpus.is_empty() { Err(CpuListError.to_string()) } else { Ok(cpus) }
}

/// The whole of the program `hotloop-doctor`: reads its arguments, prints what [`examine`] finds, and
/// returns the exit code of the worst, [`Severity::exit_code`].
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

/// Puts back what was taken over, by the files in the folders of this user and of the system.
#[cfg(feature = "kernel")]
fn restore() -> Result<Severity, Failure> {
    let mut lines = String::new();
    for folder in socket_folders() {
        let restored = hotloop_kernel::restore(&folder);
        for name in restored.map_err(|error| Failure::Run(error.to_string()))? {
            lines.push_str(&format!("{name} has its addresses and routes again\n"));
        }
    }
    print(if lines.is_empty() { "nothing is to be put back\n" } else { &lines })?;
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
