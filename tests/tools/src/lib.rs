//! The system's programs that tests start, such as `ip`, and the one way to start them: [`tool`].
//!
//! `cargo xtask check --only tidy` refuses every other way. So each program is in [`TOOLS`] with
//! its origin: a test that needs one that is missing is skipped, with the reason.
//!
//! ```
//! use hotloop_test_tools::tool;
//!
//! match tool("ip") {
//!     Ok(mut ip) => assert!(ip.arg("-V").output().unwrap().status.success()),
//!     Err(why) => println!("skipped: {why}"),
//! }
//! ```

#![forbid(unsafe_code)]

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The origin of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A package that every Debian has: essential, or of priority required.
    Debian,
    /// Installed by `cargo xtask test` if possible: `xtask/src/setup/parts.rs` has the packages.
    Setup,
    /// Never installed for the tests.
    User,
}

/// Every tool.
pub const TOOLS: &[(&str, Origin)] = &[
    ("bash", Origin::Debian),
    ("dpkg-query", Origin::Debian),
    ("mkfifo", Origin::Debian),
    ("setpriv", Origin::Debian),
    ("sh", Origin::Debian),
    ("sleep", Origin::Debian),
    ("unshare", Origin::Debian),
    ("bird", Origin::Setup),
    ("birdc", Origin::Setup),
    ("etcd", Origin::Setup),
    ("ethtool", Origin::Setup),
    ("ip", Origin::Setup),
    ("objdump", Origin::Setup),
    ("prometheus", Origin::Setup),
    ("promtool", Origin::Setup),
    ("tcpdump", Origin::Setup),
    ("tmux", Origin::Setup),
    ("fish", Origin::User),
    ("man", Origin::User),
    ("systemd-analyze", Origin::User),
    ("zsh", Origin::User),
];

/// The command that starts a tool. Searches the folders of `PATH`, and those of system programs,
/// which the `PATH` of an ordinary user may lack.
///
/// # Errors
/// The tool is not installed. The text is the reason that a test prints when it is skipped.
///
/// # Panics
/// If the tool is not in [`TOOLS`].
pub fn tool(name: &str) -> Result<Command, String> {
    let known = TOOLS.iter().find(|(known, _)| *known == name);
    let (_, origin) =
        known.unwrap_or_else(|| panic!("{name} is not in TOOLS of tests/tools: add it there"));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|path| is_program(path));
    found.map(Command::new).ok_or_else(|| match origin {
        Origin::Setup => format!("no {name}: cargo xtask setup --tests"),
        Origin::Debian | Origin::User => format!("there is no {name} here"),
    })
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "nonesuch is not in TOOLS of tests/tools: add it there")]
    fn an_unknown_tool_is_refused() {
        let _ = tool("nonesuch");
    }

    /// The packages that a file of this name in a folder of programs belongs to.
    fn packages_of(name: &str) -> Vec<String> {
        let paths = ["/bin", "/sbin", "/usr/bin", "/usr/sbin"].map(|it| format!("{it}/{name}"));
        let output = tool("dpkg-query").unwrap().arg("--search").args(&paths).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let owners = text.lines().filter_map(|line| line.split_once(": /"));
        owners.filter(|(owner, _)| !owner.contains(' ')).map(|(owner, _)| owner.into()).collect()
    }

    #[test]
    #[allow(clippy::print_stdout, reason = "a test says what it skips")]
    fn what_every_debian_has_is_essential_or_required_there() {
        if let Err(why) = tool("dpkg-query") {
            return println!("skipped: {why}");
        }
        for (name, _) in TOOLS.iter().filter(|(_, origin)| *origin == Origin::Debian) {
            let is_there = packages_of(name).iter().any(|package| {
                let mut ask = tool("dpkg-query").unwrap();
                ask.args(["--show", "--showformat", "${Essential} ${Priority}", package]);
                let said = String::from_utf8(ask.output().unwrap().stdout).unwrap();
                said.starts_with("yes") || said.ends_with("required")
            });
            assert!(is_there, "{name} is of {:?}", packages_of(name));
        }
    }
}
