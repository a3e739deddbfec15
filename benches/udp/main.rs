//! The ladder: how many datagrams a second arrive through the kernel's sockets, in one way after
//! the other, and then in poll mode; where others are lost; and the cost of each. After
//! Cloudflare's "How to receive a million packets per second". With the argument `deployments`, a
//! network function as threads over RAW sockets and in the engine's deployments.
//!
//! Both ends of a veth pair are in network namespaces of their own. Nothing is measured without
//! root.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

mod deployments;
mod ladder;
mod programs;
mod wire;

use deployments::reflector;
use programs::{SINK, SOURCE};
use std::path::Path;
use std::process::ExitCode;
use tempfile::TempDir;
use wire::Wire;

/// The environment of a group: the programs in a folder, and a wire.
pub struct Bed {
    folder: TempDir,
    wire: Wire,
}

impl Bed {
    fn new() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        for name in [SINK, SOURCE, reflector::NAME] {
            std::os::unix::fs::symlink(&program, folder.path().join(name))
                .map_err(|error| error.to_string())?;
        }
        Ok(Self { folder, wire: Wire::new()? })
    }

    /// The folder of the programs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    // The programs are this one, under other names.
    let name = Path::new(&arguments[0]).file_name().and_then(|name| name.to_str());
    match name {
        Some(SINK) => return hotloop_ops::main(SINK, udp::sink::run::run),
        Some(SOURCE) => return hotloop_ops::main(SOURCE, udp::source::run::run),
        Some(reflector::NAME) => return ended(reflector::run(&arguments[1..])),
        _ => (),
    }
    // `cargo test --all-targets` starts this as well; there is nothing to test.
    if !arguments.iter().any(|argument| argument == "--bench") {
        eprintln!("nothing is measured without --bench, which `cargo bench` gives");
        return ExitCode::SUCCESS;
    }
    let run = match arguments.iter().any(|argument| argument == deployments::NAME) {
        true => deployments::run,
        false => ladder::run,
    };
    ended(Bed::new().and_then(|bed| run(&bed)))
}

fn ended(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
