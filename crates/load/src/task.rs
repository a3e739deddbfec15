//! A thread's files in its folder in /proc (proc(5)).

use std::path::Path;

/// The part of `stat` that matters here.
#[derive(Clone, Debug)]
pub struct Stat {
    /// The state, a letter.
    pub state: String,
    /// The CPU that the thread ran on last.
    pub cpu: usize,
}

impl Stat {
    /// `None` if there is no such thread.
    pub fn read(folder: &Path) -> Option<Self> {
        let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
        // The name, in parentheses, may have any character in it. The third field follows it.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let state = fields.next()?.to_owned();
        Some(Self { state, cpu: fields.nth(39 - 4)?.parse().ok()? })
    }
}

/// The times of `schedstat`, in nanoseconds. `None` if the kernel was built without them.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time on CPUs, perhaps short of the current tick.
    pub ran_ns: Option<u64>,
    /// Time in which the thread was ready and waited for a CPU.
    pub waited_ns: Option<u64>,
}

impl Times {
    pub fn read(folder: &Path) -> Self {
        let schedstat = std::fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
        let mut times = schedstat.split_whitespace().map_while(|number| number.parse().ok());
        Self { ran_ns: times.next(), waited_ns: times.next() }
    }
}
