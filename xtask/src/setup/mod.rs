//! Finds out which parts are missing to build hotloop, and installs them.
//!
//! If nothing is missing, only a few small programs run. The system's package manager installs the
//! rest, through sudo if this user is not root. If that is impossible, the message is the command
//! to run.

mod parts;

use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::process;

pub use parts::Group;
use parts::Part;

/// A package manager.
struct Manager {
    program: &'static str,
    /// The manager's column in the table of parts.
    column: usize,
    /// Reads the package lists again, if installing does not.
    update: Option<&'static str>,
    /// Installs packages without asking.
    install: &'static str,
}

#[rustfmt::skip]
const MANAGERS: [Manager; 4] = [
    Manager { program: "apt-get", column: parts::APT, update: Some("apt-get update -qq"),
        install: "env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -qq \
                  --no-install-recommends" },
    Manager { program: "dnf", column: 1, update: None,
        install: "dnf install -y --setopt=install_weak_deps=False" },
    Manager { program: "pacman", column: 2, update: None,
        install: "pacman -S --needed --noconfirm" },
    Manager { program: "zypper", column: 3, update: None,
        install: "zypper --non-interactive install --no-recommends" },
];

/// The needs of tests beside the project's own programs.
pub const TESTS: [Group; 3] = [Group::Tests, Group::Cluster, Group::Network];

/// `cargo xtask setup`: like [`ensure`], and prints the version of DPDK.
pub fn run(groups: &[Group]) -> Result<(), Failure> {
    ensure(groups)?;
    println!("setup: nothing is missing (DPDK {})", parts::dpdk_version());
    Ok(())
}

/// Installs missing parts for building and for the groups. Prints nothing if nothing is missing.
pub fn ensure(groups: &[Group]) -> Result<(), Failure> {
    let missing = parts::missing(groups);
    if missing.is_empty() {
        return Ok(());
    }
    println!("setup: missing on this machine:\n{}", list(&missing));
    let manager = Manager::of_this_system()?;
    manager.install(&missing)?;
    let left = parts::missing(groups);
    if left.is_empty() {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{} installed what it has, and this is still missing:\n{}\n\
         Where the system's DPDK is too old, build it from source and set PKG_CONFIG_PATH to the \
         folder of its libdpdk.pc.",
        manager.program,
        list(&left),
    )))
}

/// [`ensure`] if possible. Otherwise prints why it is impossible, and the consequence.
pub fn ensure_where_possible(groups: &[Group]) {
    if let Err(failure) = ensure(groups) {
        println!(
            "setup: {failure}\nsetup: continuing; tests are skipped where their programs are missing"
        );
    }
}

/// Prints the packages for building and for the groups, installed or not.
pub fn print_packages(groups: &[Group]) -> Result<(), Failure> {
    println!("{}", Manager::of_this_system()?.packages(parts::of(groups)).join(" "));
    Ok(())
}

/// A line for each part, with the finding in its place.
fn list(missing: &[(&Part, String)]) -> String {
    let lines = missing.iter().map(|(part, found)| format!("  {} ({found})", part.name));
    lines.collect::<Vec<_>>().join("\n")
}

impl Manager {
    fn of_this_system() -> Result<&'static Self, Failure> {
        let found =
            MANAGERS.iter().find(|manager| process::find_program(manager.program).is_some());
        let why = "there is no apt-get, dnf, pacman or zypper. Install these parts by hand";
        found.ok_or_else(|| Failure::refused(why))
    }

    fn install(&self, missing: &[(&Part, String)]) -> Result<(), Failure> {
        let by_hand = || {
            let steps = self.update.map(str::to_owned).into_iter();
            let steps: Vec<_> = steps.chain([self.install_line(missing)]).collect();
            format!("As root, run:\n  {}", steps.join(" && "))
        };
        let Some(prefix) = privilege() else {
            let why = "installing needs root, and this user has no sudo that works here.";
            return Err(Failure::refused(format!("{why} {}", by_hand())));
        };
        // The old lists may do if they cannot be read again.
        if let Some(Err(failure)) = self.update.map(|update| run_line(prefix, update)) {
            eprintln!("setup: {failure}; continuing with the old package lists");
        }
        println!("setup: installing, which takes 1 to 3 minutes where DPDK is missing");
        // Some names are only in the lists that were just read.
        run_line(prefix, &self.install_line(missing))
            .map_err(|failure| Failure::refused(format!("{failure}\n{}", by_hand())))
    }

    fn install_line(&self, missing: &[(&Part, String)]) -> String {
        let packages = self.packages(missing.iter().map(|(part, _)| *part));
        format!("{} {}", self.install, packages.join(" "))
    }

    /// The packages of these parts, without duplicates.
    fn packages<'a>(&self, parts: impl Iterator<Item = &'a Part>) -> Vec<String> {
        let mut packages = Vec::new();
        for part in parts {
            for package in part.packages[self.column].split(' ') {
                if !packages.iter().any(|known| known == package) {
                    packages.push(package.to_owned());
                }
            }
        }
        packages
    }
}

/// The command for running as root: `None` for root, or sudo if it works or can ask for a password.
fn privilege() -> Option<&'static str> {
    if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        return Some("");
    }
    process::find_program("sudo")?;
    let has_no_password =
        process::quiet_output(Command::new("sudo").args(["-n", "true"])).is_some();
    (has_no_password || std::io::stdin().is_terminal()).then_some("sudo ")
}

fn run_line(prefix: &str, line: &str) -> Result<(), Failure> {
    let line = format!("{prefix}{line}");
    println!("setup: {line}");
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    if line.contains("apt-get") {
        // Several lines for each package; errors are separate.
        command.stdout(Stdio::null());
    }
    process::run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_names_each_package_once() {
        let missing: Vec<_> =
            parts::PARTS.iter().take(4).map(|part| (part, String::new())).collect();
        let line = MANAGERS[2].install_line(&missing);
        assert_eq!(line, "pacman -S --needed --noconfirm pkgconf gcc glibc dpdk");
    }
}
