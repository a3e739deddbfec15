//! The contributor's changes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// The packages with files that differ from the branch's upstream, or from HEAD without an upstream.
/// `None` if a change affects all packages: to the root's manifest, the lock file or the lints.
pub fn packages(workspace: &Workspace) -> Result<Option<BTreeSet<&str>>, Failure> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments);
        command
    };
    let upstream = process::quiet_output(&mut git(&["merge-base", "HEAD", "@{upstream}"]));
    let base = upstream.as_deref().map_or("HEAD", str::trim);
    let changed = process::output(&mut git(&["diff", "--name-only", base]))?;
    let new = process::output(&mut git(&["ls-files", "--others", "--exclude-standard"]))?;
    Ok(of(workspace, changed.lines().chain(new.lines())))
}

fn of<'a, 'f>(
    workspace: &'a Workspace,
    files: impl Iterator<Item = &'f str>,
) -> Option<BTreeSet<&'a str>> {
    let mut packages = BTreeSet::new();
    for file in files {
        match workspace.package_of(Path::new(file)) {
            Some(package) => drop(packages.insert(package.name.as_str())),
            None if is_for_all(file) => return None,
            None => {}
        }
    }
    Some(packages)
}

fn is_for_all(file: &str) -> bool {
    let file = Path::new(file);
    file.extension().is_some_and(|extension| extension == "toml" || extension == "lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_of_the_innermost_package() {
        let package = |folder: &str| {
            let name = folder.rsplit('/').next().unwrap();
            format!(
                r#"{{"name": "{name}", "manifest_path": "/p/{folder}/Cargo.toml", "dependencies": [], "targets": []}}"#
            )
        };
        let packages = ["benches", "benches/instructions", "crates/ring"].map(package).join(",");
        let workspace = format!(
            r#"{{"packages": [{packages}], "workspace_root": "/p", "target_directory": "/p/target"}}"#
        );
        let workspace: Workspace = serde_json::from_str(&workspace).unwrap();
        let found = |files: &[&'static str]| {
            of(&workspace, files.iter().copied())
                .map(|packages| packages.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(found(&["benches/src/a.rs"]), Some(vec!["benches"]));
        let both = ["benches/instructions/src/a.rs", "crates/ring/Cargo.toml", "README.md"];
        assert_eq!(found(&both), Some(vec!["instructions", "ring"]));
        assert_eq!(found(&["crates/ring/src/a.rs", "Cargo.lock"]), None);
        assert_eq!(found(&["docs/a.md"]), Some(vec![]));
    }
}
