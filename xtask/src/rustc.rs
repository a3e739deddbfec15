//! Properties of the compiler.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::process;

/// The compiler's version and host.
pub struct Rustc {
    /// As `rustc -V` prints it: `rustc 1.95.0 (59807616e 2026-04-14)`.
    pub version: String,
    /// The default target: `x86_64-unknown-linux-gnu`.
    pub host: String,
}

impl Rustc {
    /// Runs `rustc -vV`.
    pub fn ask() -> Result<Self, Failure> {
        let text = process::output(Command::new(program()).arg("-vV"))?;
        let host = text.lines().find_map(|line| line.strip_prefix("host: "));
        let version = text.lines().next();
        let (version, host) = version
            .zip(host)
            .ok_or_else(|| Failure::failed("rustc -vV prints no version or no host"))?;
        Ok(Self { version: version.to_owned(), host: host.to_owned() })
    }
}

/// The folder of a target's libraries, which exists if the target is installed.
pub fn library_folder(target: &str) -> Result<PathBuf, Failure> {
    let mut command = Command::new(program());
    let folder = process::output(command.args(["--print", "target-libdir", "--target", target]))?;
    Ok(PathBuf::from(folder.trim()))
}

fn program() -> PathBuf {
    std::env::var_os("RUSTC").map_or_else(|| "rustc".into(), PathBuf::from)
}
