//! The project's own text files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Extensions of files that are read; files without one are scripts, licences and the like.
pub const TEXT: [&str; 11] =
    ["c", "h", "lock", "md", "py", "rs", "sh", "stderr", "toml", "txt", "yml"];

/// Hidden folders that are the project's own.
const HIDDEN: [&str; 3] = [".cargo", ".ci", ".github"];

/// A file, and what it holds.
pub struct File {
    /// From the workspace's root, `/` between folders.
    pub path: PathBuf,
    /// All of it.
    pub text: String,
}

impl File {
    /// Its extension, empty where it has none.
    pub fn extension(&self) -> &str {
        self.path.extension().and_then(|extension| extension.to_str()).unwrap_or("")
    }

    /// Whether it holds Rust.
    pub fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }
}

/// Every text file under the root, in the order of their paths; builds and hidden folders left out.
pub fn all(root: &Path) -> Result<Vec<File>, Failure> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(Failure::file("can't list", &folder))?;
        for entry in entries {
            let path = entry.map_err(Failure::file("can't list", &folder))?.path();
            if path.is_dir() {
                if is_own(&path) {
                    folders.push(path);
                }
            } else if let Some(text) = text_of(&path)? {
                let path = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}

fn is_own(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_build = name == "target" || folder.join("CACHEDIR.TAG").exists();
    !is_build && (!name.starts_with('.') || HIDDEN.contains(&name.as_str()))
}

fn text_of(path: &Path) -> Result<Option<String>, Failure> {
    // In a linked worktree it is a file that names the repository.
    if path.file_name().is_some_and(|name| name == ".git") {
        return Ok(None);
    }
    let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
    if extension.is_some_and(|extension| !TEXT.contains(&extension.as_str())) {
        return Ok(None);
    }
    let bytes = fs::read(path).map_err(Failure::file("can't read", path))?;
    Ok(String::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_binaries_and_hidden_folders_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, bytes: &[u8]| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        write("src/main.rs", b"fn main() {}");
        write(".ci/run", b"#!/bin/sh");
        write(".git/config", b"");
        write("linked/.git", b"gitdir: elsewhere");
        write("target/debug/x.rs", b"");
        write("built/CACHEDIR.TAG", b"");
        write("built/x.rs", b"");
        write("clients.pcap", b"\xd4\xc3\xb2\xa1");
        write("binary", b"\xff\xfe\x00");
        let found = all(root.path()).unwrap();
        let paths: Vec<_> = found.iter().map(|file| file.path.to_str().unwrap()).collect();
        assert_eq!(paths, [".ci/run", "src/main.rs"]);
        assert_eq!(found[1].text, "fn main() {}");
    }
}
