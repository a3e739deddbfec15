//! Reads the machine's files below a folder, and explains why a file can't be read.

use super::cpu_list::CpuList;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The most bytes read of one file. On a machine of 1,024 CPUs, /proc/interrupts has 10 MiB.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// The folder that stands for `/`.
#[derive(Clone, Debug)]
pub(super) struct Root(PathBuf);

/// Why something is unknown: a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Unread {
    pub(super) why: String,
    /// The file does not exist, as opposed to one that can't be read or parsed.
    pub(super) is_missing: bool,
}

impl Unread {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_missing: false }
    }

    fn of(path: &str, error: &io::Error) -> Self {
        let is_missing =
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        let why = if is_missing {
            format!("/{path} is not there")
        } else {
            format!("/{path} can't be read: {error}")
        };
        Self { why, is_missing }
    }
}

/// Paths have no leading slash.
impl Root {
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// A file's content, trimmed.
    pub(super) fn text(&self, path: &str) -> Result<String, Unread> {
        let mut bytes = Vec::new();
        let read = File::open(self.0.join(path))
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        read.map_err(|error| Unread::of(path, &error))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The name that a file holds.
    pub(super) fn name(&self, path: &str) -> Result<String, Unread> {
        let text = self.text(path)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if text.is_empty() || !text.chars().all(is_name) {
            return Err(Unread::new(format!("/{path} holds no name: {text:?}")));
        }
        Ok(text)
    }

    /// The number that a file holds.
    pub(super) fn number(&self, path: &str) -> Result<i64, Unread> {
        let text = self.text(path)?;
        text.parse().map_err(|_| Unread::new(format!("/{path} holds no number: {text:?}")))
    }

    /// The CPUs that a file lists. Empty for "(null)", which nohz_full may hold.
    pub(super) fn cpus(&self, path: &str) -> Result<CpuList, Unread> {
        let text = self.text(path)?;
        let list = if text == "(null)" { "" } else { &text };
        list.parse().map_err(|_| Unread::new(format!("/{path} lists no CPUs: {text:?}")))
    }

    /// As [`cpus`](Self::cpus), of a file that lists at least one.
    pub(super) fn some_cpus(&self, path: &str) -> Result<CpuList, Unread> {
        let is_some = |cpus: &CpuList| !cpus.is_empty();
        Some(self.cpus(path)?)
            .filter(is_some)
            .ok_or_else(|| Unread::new(format!("/{path} is empty")))
    }

    /// The names of a folder's entries, in order.
    pub(super) fn names(&self, path: &str) -> Result<Vec<String>, Unread> {
        let entries = fs::read_dir(self.0.join(path)).map_err(|error| Unread::of(path, &error))?;
        let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        let mut names: Vec<_> = entries.filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// The last part of a symbolic link's target: links of sysfs may lead out of a root.
    pub(super) fn link(&self, path: &str) -> Result<String, Unread> {
        let target = fs::read_link(self.0.join(path)).map_err(|error| Unread::of(path, &error))?;
        let name = target.file_name().and_then(|name| name.to_str());
        name.map(str::to_owned).ok_or_else(|| Unread::new(format!("/{path} points nowhere")))
    }

    /// Whether a file is read-only even for root, as the kernel makes some.
    pub(super) fn is_read_only(&self, path: &str) -> bool {
        fs::metadata(self.0.join(path)).is_ok_and(|file| file.permissions().readonly())
    }

    /// Whether such a file, folder or link exists.
    pub(super) fn has(&self, path: &str) -> bool {
        fs::symlink_metadata(self.0.join(path)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_differs_by_why() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("number", " 7\n"), ("words", "seven\n"), ("none", " (null)\n")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let root = Root::new(folder.path());
        assert_eq!(root.number("number"), Ok(7));
        let odd = root.number("words").unwrap_err();
        assert_eq!(
            (odd.why.as_str(), odd.is_missing),
            ("/words holds no number: \"seven\"", false)
        );
        assert_eq!(root.cpus("none"), Ok(CpuList::default()));
        assert_eq!(root.cpus("words").unwrap_err().why, "/words lists no CPUs: \"seven\"");
        for path in ["sys/none", "number/none"] {
            let missing = root.text(path).unwrap_err();
            assert_eq!((missing.why, missing.is_missing), (format!("/{path} is not there"), true));
        }
        // A folder exists, and can't be read as a file.
        fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(!root.text("folder").unwrap_err().is_missing);
        assert_eq!(root.names("").unwrap(), ["folder", "none", "number", "words"]);
    }
}
