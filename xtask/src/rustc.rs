//! What the compiler says of itself.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::process;

/// Its version and the target that it builds for by itself.
pub struct Rustc {
    /// As `rustc -V` prints it: `rustc 1.95.0 (59807616e 2026-04-14)`.
    pub version: String,
    /// `x86_64-unknown-linux-gnu`.
    pub host: String,
}

impl Rustc {
    /// Asks the compiler.
    pub fn ask() -> Result<Self, Failure> {
        Self::read(&process::output(Command::new(program()).arg("-vV"))?)
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let host = text.lines().find_map(|line| line.strip_prefix("host: "));
        match (text.lines().next(), host) {
            (Some(version), Some(host)) => {
                Ok(Self { version: version.to_owned(), host: host.to_owned() })
            }
            _ => Err(Failure::failed("rustc -vV names no version or host")),
        }
    }
}

/// Where the libraries of a target stand, or would if it were installed.
pub fn library_folder(target: &str) -> Result<PathBuf, Failure> {
    let mut command = Command::new(program());
    let folder = process::output(command.args(["--print", "target-libdir", "--target", target]))?;
    Ok(PathBuf::from(folder.trim()))
}

fn program() -> PathBuf {
    std::env::var_os("RUSTC").map_or_else(|| "rustc".into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_host_are_read() {
        let text = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\n\
                    host: x86_64-unknown-linux-gnu\nrelease: 1.95.0\n";
        let rustc = Rustc::read(text).unwrap();
        assert_eq!(rustc.version, "rustc 1.95.0 (59807616e 2026-04-14)");
        assert_eq!(rustc.host, "x86_64-unknown-linux-gnu");
        assert!(Rustc::read("rustc 1.95.0\n").is_err());
    }

    #[test]
    fn the_compiler_answers_for_targets_that_are_not_installed() {
        let host = Rustc::ask().unwrap().host;
        assert!(library_folder(&host).unwrap().is_dir());
        assert!(!library_folder("x86_64-unknown-redox").unwrap().exists());
    }
}
