//! The counts that are kept in the repository.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The count of each case.
pub type Counts = BTreeMap<String, u64>;

/// All that is kept.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// For who reads the file.
    unit: String,
    /// By compiler.
    compilers: BTreeMap<String, Counts>,
}

impl Kept {
    /// Reads the file; nothing is kept where there is none.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        match fs::read_to_string(file) {
            Ok(text) => serde_json::from_str(&text).map_err(Failure::file("can't read", file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::empty()),
            Err(error) => Err(Failure::file("can't read", file)(error)),
        }
    }

    fn empty() -> Self {
        let unit = format!("instructions in {} calls", super::CALL_COUNT);
        Self { unit, compilers: BTreeMap::new() }
    }

    /// What is kept of this compiler.
    pub fn of(&self, compiler: &str) -> Option<&Counts> {
        self.compilers.get(compiler)
    }

    /// What is kept of the latest compiler, and which that is.
    pub fn latest(&self) -> Option<(&str, &Counts)> {
        self.compilers.last_key_value().map(|(compiler, counts)| (compiler.as_str(), counts))
    }

    /// Keeps these counts in place of what was kept of this compiler.
    pub fn put(&mut self, compiler: String, counts: Counts) {
        self.compilers.insert(compiler, counts);
    }

    /// Writes the file, one count a line.
    pub fn write(&self, file: &Path) -> Result<(), Failure> {
        let text =
            serde_json::to_string_pretty(self).map_err(Failure::file("can't write", file))?;
        fs::write(file, text + "\n").map_err(Failure::file("can't write", file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(count: u64) -> Counts {
        Counts::from([("pop".to_owned(), count)])
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kept.json");
        let mut kept = Kept::read(&file).unwrap();
        assert_eq!((kept.of("rustc 1, x"), kept.latest()), (None, None));
        kept.put("rustc 1, x".into(), counts(7));
        kept.put("rustc 2, x".into(), counts(8));
        kept.write(&file).unwrap();
        assert_eq!(Kept::read(&file).unwrap(), kept);
        fs::write(&file, "{").unwrap();
        assert!(Kept::read(&file).is_err());
    }

    #[test]
    fn a_compiler_has_its_own_counts() {
        let mut kept = Kept::empty();
        kept.put("rustc 1, x".into(), counts(7));
        kept.put("rustc 2, x".into(), counts(8));
        assert_eq!(kept.of("rustc 1, x"), Some(&counts(7)));
        assert_eq!(kept.of("rustc 3, x"), None);
        assert_eq!(kept.latest(), Some(("rustc 2, x", &counts(8))));
        kept.put("rustc 1, x".into(), counts(9));
        assert_eq!(kept.of("rustc 1, x"), Some(&counts(9)));
    }
}
