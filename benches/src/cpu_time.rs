//! How long a thread has been on a CPU: what a polling thread did, on a machine that lends its cores
//! to others.

use std::path::{Path, PathBuf};

/// A thread of some process, by its files in `/proc`.
#[derive(Clone, Debug)]
pub struct Thread(PathBuf);

impl Thread {
    /// The thread of `process` that began last of those with a name that begins with `prefix`.
    ///
    /// # Errors
    /// Where there is none.
    pub fn find(process: u32, prefix: &str) -> Result<Self, String> {
        let tasks = format!("/proc/{process}/task");
        let entries = std::fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error}"))?;
        let has_name = |task: &Path| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with(prefix))
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let found = paths.filter(|path| has_name(path)).last();
        found.map(Self).ok_or_else(|| format!("no thread {prefix}* in process {process}"))
    }

    /// Nanoseconds on a CPU so far.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn cpu_ns(&self) -> Result<u64, String> {
        let path = self.0.join("schedstat");
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let first = text.split_whitespace().next().and_then(|first| first.parse().ok());
        first.ok_or_else(|| format!("{}: no figure in {text:?}", path.display()))
    }
}
