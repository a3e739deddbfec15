//! The end of a failed task: one message and an exit code.

use std::fmt;
use std::path::Path;

/// The reason why a task cannot continue.
#[derive(Debug)]
pub struct Failure {
    message: String,
    /// 1 for an attempt that failed, 2 if the machine or the arguments do not allow it.
    pub exit_code: u8,
}

impl Failure {
    /// An attempt that failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_code: 1 }
    }

    /// The machine or the arguments do not allow it.
    pub fn refused(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_code: 2 }
    }

    /// A file that cannot be read, written or made: for `map_err`.
    pub fn file<E: fmt::Display>(doing: &str, path: &Path) -> impl FnOnce(E) -> Self {
        let what = format!("cannot {doing} {}", path.display());
        move |error| Self::failed(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
