//! 2 MiB pages reserved while a benchmark runs.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const FILE: &str = "/proc/sys/vm/nr_hugepages";

/// 2 MiB pages, reserved until this is dropped.
#[derive(Debug)]
pub struct Reserved {
    /// The number of pages to restore, if some were added.
    before: Option<usize>,
}

impl Reserved {
    /// Reserves pages until there are `count`, including pages in use.
    ///
    /// # Errors
    /// If there are fewer, and this process may not reserve the rest, or the kernel finds no room.
    pub fn hugepages(count: usize) -> Result<Self, String> {
        let before = reserved_count()?;
        if before >= count {
            return Ok(Self { before: None });
        }
        std::fs::write(FILE, count.to_string()).map_err(|error| {
            format!("{count} pages of 2 MiB are needed: {error}; reserve them as root")
        })?;
        let reserved = Self { before: Some(before) };
        give_back_at_signal(before)?;
        let got = reserved_count()?;
        if got < count {
            return Err(format!("{count} pages of 2 MiB are needed, the kernel gave {got}"));
        }
        Ok(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            give_back(before);
        }
    }
}

fn give_back(before: usize) {
    // If this fails, nothing can be done about it. Pages in use disappear when their user ends.
    let _ = std::fs::write(FILE, before.to_string());
}

/// Also returns the pages when a benchmark is interrupted.
fn give_back_at_signal(before: usize) -> Result<(), String> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let mut signals = signals.map_err(|error| format!("signals can't be caught: {error}"))?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            give_back(before);
            // The exit code of shells for a program killed by the signal.
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

fn reserved_count() -> Result<usize, String> {
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    text.trim().parse().map_err(|error| format!("{FILE}: {error}"))
}
