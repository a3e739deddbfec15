//! The files of the repository, and the kinds of files it may have: editors and merges leave
//! others, which nothing else reads.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

use super::Violation;

/// Extensions of files that are read and checked, in one text.
const TEXT: &str = "c conf dockerignore h lock md py rs service sh stderr svg toml txt yml";

/// Extensions of files that hold data.
const DATA: [&str; 2] = ["json", "pcap"];

/// Names of files without an extension, in one text.
const NAMES: &str = ".gitignore allowed-skips bare Containerfile LICENSE-APACHE LICENSE-MIT \
                     postinst postrm prerm run";

/// Inputs that the fuzzer has found, under names of its own.
const FUZZ_INPUTS: &str = "fuzz/corpus";

/// The hidden folders that belong to the repository.
const HIDDEN: [&str; 3] = [".cargo", ".ci", ".github"];

/// A text file.
pub struct File {
    /// The path from the root of the workspace.
    pub path: PathBuf,
    /// The content.
    pub text: String,
}

impl File {
    /// The extension, empty for a file without one.
    pub fn extension(&self) -> &str {
        self.path.extension().and_then(|extension| extension.to_str()).unwrap_or("")
    }

    /// Whether the file holds Rust.
    pub fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    /// Whether the file is in a folder of tests.
    pub fn is_in_tests(&self) -> bool {
        self.path.iter().any(|folder| folder == "tests")
    }
}

/// Every text file under the root, ordered by path, and a violation for each file of an unknown kind.
/// Builds and hidden folders are left out.
pub fn all(root: &Path) -> Result<(Vec<File>, Vec<Violation>), Failure> {
    let (mut files, mut unknown) = (Vec::new(), Vec::new());
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(Failure::file("list", &folder))?;
        for entry in entries {
            let full = entry.map_err(Failure::file("list", &folder))?.path();
            let path = full.strip_prefix(root).unwrap_or(&full).to_path_buf();
            if full.is_dir() {
                if is_own(&full) {
                    folders.push(full);
                }
            } else if !is_known(&path) {
                let what = "a file of an unknown kind: remove it, or add its kind to \
                            xtask/src/tidy/files.rs";
                unknown.push(Violation::new(path.display().to_string(), what));
            } else {
                let bytes = fs::read(&full).map_err(Failure::file("read", &full))?;
                let text = String::from_utf8(bytes).ok().filter(|_| !is_data(&path));
                files.extend(text.map(|text| File { path, text }));
            }
        }
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok((files, unknown))
}

fn is_own(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_build = name == "target" || folder.join("CACHEDIR.TAG").exists();
    !is_build && (!name.starts_with('.') || HIDDEN.contains(&name.as_str()))
}

/// In a linked worktree, `.git` is a file.
fn is_data(path: &Path) -> bool {
    path == Path::new(".git")
        || path.extension().is_some_and(|extension| DATA.iter().any(|data| *data == extension))
}

fn is_known(path: &Path) -> bool {
    if path.starts_with(FUZZ_INPUTS) || is_data(path) {
        return true;
    }
    let name = path.file_name().unwrap_or_default();
    let of_text = |extension| TEXT.split(' ').any(|text| text == extension);
    path.extension().map_or(NAMES.split(' ').any(|known| known == name), of_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_files_of_unknown_kinds_are_violations() {
        let root = tempfile::tempdir().unwrap();
        let known = ["src/main.rs", ".ci/run", ".gitignore", "fuzz/corpus/headers/0d15"];
        let unknown =
            ["src/back.rs.orig", "src/main.rs~", "core", "run.rej", "src/.main.rs.swp", "x/.git"];
        let others = [".git/config", "target/debug/x.o", "built/CACHEDIR.TAG", "built/x.o"];
        for path in known.iter().chain(&unknown).chain(&others) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "fn main() {}").unwrap();
        }
        fs::write(root.path().join("clients.pcap"), b"\xd4\xc3\xb2\xa1").unwrap();
        let (files, violations) = all(root.path()).unwrap();
        let mut paths: Vec<_> = files.iter().map(|file| file.path.to_str().unwrap()).collect();
        let mut places: Vec<_> = violations.iter().map(|found| found.place.as_str()).collect();
        paths.sort_unstable();
        places.sort_unstable();
        let sorted = |list: &[&'static str]| {
            let mut list = list.to_vec();
            list.sort_unstable();
            list
        };
        assert_eq!(paths, sorted(&known));
        assert_eq!(places, sorted(&unknown));
        assert!(files.iter().all(|file| file.text == "fn main() {}"));
    }
}
