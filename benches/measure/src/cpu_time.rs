//! A thread's CPU time: the working time of a polling thread on a machine that lends its cores to
//! others.

use std::path::{Path, PathBuf};

/// A thread of a process, identified by its files in `/proc`.
#[derive(Clone, Debug)]
pub struct Thread(PathBuf);

impl Thread {
    /// The thread of `process` that started last among those with a name that begins with `prefix`.
    ///
    /// # Errors
    /// If there is no such thread.
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

    /// CPU time so far, in nanoseconds.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn cpu_ns(&self) -> Result<u64, String> {
        let path = self.0.join("schedstat");
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let first = text.split_whitespace().next().and_then(|first| first.parse().ok());
        first.ok_or_else(|| format!("{}: no figure in {text:?}", path.display()))
    }
}
