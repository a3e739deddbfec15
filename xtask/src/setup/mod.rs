//! Finding out what is missing to build hotloop, and installing it.
//!
//! Where all is there nothing but a few small programs runs. What is missing is installed by the
//! system's package manager, through sudo only where this user may not; where neither goes, the
//! command to run is the message.

mod privilege;
mod probe;
mod system;

use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::process;

use privilege::Privilege;
use probe::Part;
use system::PackageManager;

/// What a task needs besides what building takes.
#[derive(Clone, Copy, Default)]
pub struct Wanted {
    /// `dpdk-testpmd`, a peer of the benchmarks.
    pub testpmd: bool,
    /// `valgrind`, which counts instructions.
    pub valgrind: bool,
    /// A C++ compiler, which builds the fuzzer.
    pub cxx: bool,
    /// What the live demo is made of: nginx, curl, ip, ethtool.
    pub live: bool,
}

/// `cargo xtask setup`: says what it found, whatever that is.
pub fn run(wanted: Wanted) -> Result<(), Failure> {
    ensure(wanted)?;
    if let Some(version) = probe::dpdk_version() {
        println!("setup: all is there (DPDK {version})");
    }
    Ok(())
}

/// Makes sure that all is there; prints nothing where it is.
pub fn ensure(wanted: Wanted) -> Result<(), Failure> {
    let missing = probe::missing(wanted);
    if missing.is_empty() {
        return Ok(());
    }
    println!("setup: missing on this machine:");
    for (part, found) in &missing {
        println!("  {} ({found})", part.name());
    }
    let parts: Vec<Part> = missing.iter().map(|(part, _)| *part).collect();
    let manager = PackageManager::of_this_system().ok_or_else(|| no_package_manager(&parts))?;
    install(&manager, &parts)?;

    let left = probe::missing(wanted);
    if left.is_empty() {
        println!("setup: done");
        return Ok(());
    }
    Err(still_missing(&manager, &left))
}

fn install(manager: &PackageManager, parts: &[Part]) -> Result<(), Failure> {
    let privilege = Privilege::of_this_process();
    if privilege == Privilege::None {
        return Err(Failure::refused(format!(
            "installing takes root, and this user has no sudo that works here. As root, run:\n  {}",
            manager.install_line(parts)
        )));
    }
    if let Some(update) = manager.update() {
        // A list that can't be brought up to date may still do.
        if let Err(failure) = step(manager, privilege, &update) {
            eprintln!("setup: {failure}; going on with the package lists there are");
        }
    }
    println!("setup: installing, which may take a minute or two");
    // Names may depend on the lists just read.
    step(manager, privilege, &manager.install(parts)).map_err(|failure| {
        Failure::refused(format!(
            "{failure}\nAs root, this should go:\n  {}",
            manager.install_line(parts)
        ))
    })
}

fn step(manager: &PackageManager, privilege: Privilege, words: &[String]) -> Result<(), Failure> {
    let words = privilege.with(words);
    println!("setup: {}", words.join(" "));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    if manager.prints_each_package() {
        command.stdout(Stdio::null());
    }
    process::run(&mut command)
}

fn no_package_manager(parts: &[Part]) -> Failure {
    let names: Vec<_> = parts.iter().map(|part| part.name()).collect();
    Failure::refused(format!(
        "found none of apt-get, dnf, pacman and zypper to install them with. Install by hand: {}",
        names.join("; ")
    ))
}

fn still_missing(manager: &PackageManager, left: &[(Part, String)]) -> Failure {
    let lines: Vec<_> =
        left.iter().map(|(part, found)| format!("  {} ({found})", part.name())).collect();
    Failure::refused(format!(
        "{} installed what it had, and this is still missing:\n{}\n\
         hotloop needs DPDK {} or later. Where the system's is older, build DPDK from source and \
         set PKG_CONFIG_PATH to the folder of its libdpdk.pc.",
        manager.program(),
        lines.join("\n"),
        probe::DPDK_VERSION_MIN,
    ))
}
