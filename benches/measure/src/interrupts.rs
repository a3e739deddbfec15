//! Counts a CPU's interrupts. Each takes the time of many bursts of packets.

use std::fs;

const PATH: &str = "/proc/interrupts";

/// The interrupts of the calling thread's CPU.
#[derive(Clone, Copy, Debug)]
pub struct Interrupts {
    column: usize,
}

impl Interrupts {
    /// The interrupts of the CPU that the calling thread is pinned to.
    ///
    /// # Errors
    /// If the thread may use several, or if the kernel does not report them.
    pub fn of_this_cpu() -> Result<Self, String> {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let [core] = cores[..] else { return Err("a thread that is not pinned".to_owned()) };
        let text = text()?;
        let mut columns = text.lines().next().unwrap_or_default().split_whitespace();
        let column = columns.position(|column| column == format!("CPU{}", core.id));
        let column = column.ok_or_else(|| format!("{PATH}: no column for CPU {}", core.id))?;
        Ok(Self { column })
    }

    /// Number of interrupts so far.
    ///
    /// # Errors
    /// If the kernel does not report them.
    pub fn count(self) -> Result<u64, String> {
        // A row's name, and its counts by CPU.
        let of_row = |row: &str| row.split_whitespace().nth(1 + self.column)?.parse::<u64>().ok();
        Ok(text()?.lines().skip(1).filter_map(of_row).sum())
    }
}

fn text() -> Result<String, String> {
    fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))
}
