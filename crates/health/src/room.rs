//! The maximum number of probes under way at once: each has a socket, and the kernel limits a
//! process's files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fmt;

/// Files reserved for the rest of the program: its devices, the control socket and its clients.
const OTHER_FILES: u64 = 512;

/// The files that the probes of a list of backends need, and the number that this process may open.
///
/// The `Display` form is for operators at startup:
///
/// ```text
/// backends probed: 10000, each over one connection at most; open files allowed: 20000 (raised from 1024)
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    /// Number of probed backends, each by one probe at a time.
    pub probed_count: usize,
    /// Number of files that this process may open.
    pub files_max: u64,
    /// The previous limit.
    pub files_max_before: u64,
}

impl Room {
    /// Raises the limit of open files to the highest that this process may set, if this many probes
    /// need that.
    pub(super) fn make(probed_count: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let files = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
        let before = files(limit.current);
        let mut room = Self { probed_count, files_max: before, files_max_before: before };
        if !room.is_enough() {
            let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
            if setrlimit(Resource::Nofile, raised).is_ok() {
                room.files_max = files(limit.maximum);
            }
        }
        room
    }

    /// Maximum number of probes under way at once.
    pub(super) fn probes_max(&self) -> usize {
        let left = self.files_max.saturating_sub(OTHER_FILES);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Whether all backends may be probed at the same time. If not, the probes without a file fail.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.probed_count <= self.probes_max()
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { probed_count, files_max, files_max_before } = self;
        write!(f, "backends probed: {probed_count}, each over one connection at most; ")?;
        write!(f, "open files allowed: {files_max}")?;
        if files_max != files_max_before {
            write!(f, " (raised from {files_max_before})")?;
        }
        if !self.is_enough() {
            let needed = OTHER_FILES + *probed_count as u64;
            write!(
                f,
                ", which is too few: probes beyond {} at once fail. Set the hard limit to {needed} \
                 or more (LimitNOFILE= of a systemd unit, ulimit -Hn of a shell)",
                self.probes_max()
            )?;
        }
        Ok(())
    }
}
