//! Only files of known kinds are tracked: editors and merges leave others, which nothing else reads.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Violation, files};
use crate::process;

/// Extensions of tracked files that hold data, not text to read.
const DATA: [&str; 2] = ["json", "pcap"];

/// Names of tracked files without an extension.
const NAMES: [&str; 5] = [".gitignore", "allowed-skips", "LICENSE-APACHE", "LICENSE-MIT", "run"];

/// Inputs that the fuzzer has found, under names of its own.
const FUZZ_INPUTS: &str = "fuzz/corpus";

/// The files that git tracks below the root; `None` where the root is no checkout, as in an archive.
pub fn tracked(root: &Path) -> Option<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["ls-files", "-z"]);
    let listed = process::quiet_output(&mut git)?;
    Some(listed.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from).collect())
}

/// Every file of a kind that is not on the lists.
pub fn check(paths: &[PathBuf]) -> Vec<Violation> {
    let unknown = paths.iter().filter(|path| !is_known(path));
    let what = "a tracked file of an unknown kind: remove it, or add its kind to \
                xtask/src/tidy/kinds.rs";
    unknown.map(|path| Violation::new(path.display().to_string(), what)).collect()
}

fn is_known(path: &Path) -> bool {
    if path.starts_with(FUZZ_INPUTS) {
        return true;
    }
    match path.extension().map(|extension| extension.to_string_lossy()) {
        Some(extension) => files::TEXT.iter().chain(&DATA).any(|known| *known == extension),
        None => path.file_name().is_some_and(|name| NAMES.iter().any(|known| *known == name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_unknown_kinds_are_violations() {
        let paths = ["src/main.rs", ".ci/run", ".gitignore", "traffic.pcap", "kept.json"];
        assert_eq!(check(&paths.map(PathBuf::from)), []);
        for path in ["src/back.rs.orig", "src/main.rs~", "core", "run.rej", "src/.main.rs.swp"] {
            let found = check(&[PathBuf::from(path)]);
            assert_eq!(found.len(), 1, "{path}");
            assert_eq!(found[0].place, path);
        }
    }

    #[test]
    fn what_git_tracks_is_listed_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(tracked(root.path()), None);
        let git = |arguments: &[&str]| {
            let status = Command::new("git").arg("-C").arg(root.path()).args(arguments).status();
            status.is_ok_and(|status| status.success())
        };
        if !git(&["init", "--quiet"]) {
            println!("skipped: git is not installed");
            return;
        }
        std::fs::create_dir(root.path().join(".hidden")).unwrap();
        for name in [".hidden/back.rs.orig", "two words.rs", "untracked.rej"] {
            std::fs::write(root.path().join(name), "").unwrap();
        }
        assert!(git(&["add", ".hidden", "two words.rs"]));
        let paths = [".hidden/back.rs.orig", "two words.rs"].map(PathBuf::from);
        assert_eq!(tracked(root.path()), Some(paths.to_vec()));
    }
}
