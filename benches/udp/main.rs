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
use hotloop_measure::program;
use programs::{SINK, SOURCE};
use std::path::Path;
use std::process::ExitCode;
use tempfile::TempDir;
use wire::Wire;

/// The environment of a group: the programs in a folder, and a wire.
pub struct UdpBed {
    folder: TempDir,
    wire: Wire,
}

impl UdpBed {
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
        Some(reflector::NAME) => return program::ended(reflector::run(&arguments[1..])),
        _ => (),
    }
    program::main(|words| {
        let is_deployments = words.contains(&deployments::NAME);
        let run = if is_deployments { deployments::run } else { ladder::run };
        run(&UdpBed::new()?)
    })
}
