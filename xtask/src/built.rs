//! The programs that a cargo command has built.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::failure::Failure;
use crate::process;

/// A program of a package.
#[derive(Debug, Deserialize)]
pub struct Built {
    /// Its file.
    #[serde(rename = "executable")]
    pub path: PathBuf,
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
}

/// What it was built from.
#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

impl Built {
    /// Runs a command of cargo that builds, and returns the programs in the order of cargo.
    pub fn by(cargo: &mut Command) -> Result<Vec<Self>, Failure> {
        let messages = process::output(cargo.arg("--message-format=json-render-diagnostics"))?;
        Ok(read(&messages))
    }

    /// Whether it runs tests. What tests start is built beside it.
    pub fn is_test(&self) -> bool {
        self.profile.test
    }

    /// The folder of its package.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// The name of its package's folder, and its own: `ipip-lb all (test)`.
    pub fn name(&self) -> String {
        let folder = self.folder().file_name().unwrap_or_default().to_string_lossy();
        format!("{folder} {} ({})", self.target.name, self.target.kind.join(", "))
    }
}

/// Other messages have no `executable`, or it is `null`.
fn read(messages: &str) -> Vec<Built> {
    messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_alone_are_read() {
        let message = |executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/examples/lb/Cargo.toml",
                "target":{{"name":"all","kind":["test"]}},"profile":{{"test":true}},"executable":{executable}}}"#
            )
            .replace('\n', "")
        };
        let messages =
            [r#"{"reason":"build-finished"}"#, &message("null"), &message(r#""/t/all-1""#)];
        let [built] = &read(&messages.join("\n"))[..] else { panic!("not one program") };
        assert_eq!(
            (built.path.as_path(), built.folder()),
            (Path::new("/t/all-1"), Path::new("/w/examples/lb"))
        );
        assert!(built.name() == "lb all (test)" && built.is_test());
    }
}
