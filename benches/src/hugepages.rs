//! 2 MiB pages for as long as a benchmark runs.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const FILE: &str = "/proc/sys/vm/nr_hugepages";

/// Pages of 2 MiB, reserved for as long as this lives.
#[derive(Debug)]
pub struct Reserved {
    /// How many to go back to, where some were added.
    before: Option<usize>,
}

impl Reserved {
    /// Sees to it that there are `count` pages; those that others use count too.
    ///
    /// # Errors
    /// Where there are fewer, and this process may not reserve the rest, or the kernel finds no room.
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
    // Nothing is left to be done about it where it fails. Pages in use go when their user ends.
    let _ = std::fs::write(FILE, before.to_string());
}

/// Gives the pages back when a benchmark is interrupted, too.
fn give_back_at_signal(before: usize) -> Result<(), String> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let mut signals = signals.map_err(|error| format!("signals can't be caught: {error}"))?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            give_back(before);
            // As a shell reports a program that the signal ended.
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

fn reserved_count() -> Result<usize, String> {
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    text.trim().parse().map_err(|error| format!("{FILE}: {error}"))
}
