//! Tells disturbed slices from undisturbed ones.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Passes of the calibration loop: some ten microseconds.
const PASS_COUNT: u32 = 4_000;

/// A fixed piece of work that takes longer if something else runs on the same physical core.
///
/// Its operations are independent of each other and fill all of the core's integer units. A chain
/// of dependent ones leaves most units idle, and would not notice a busy hyperthread next to it.
///
/// Returns nanoseconds.
#[must_use]
pub fn calibration_ns() -> f64 {
    let mut lanes: [u64; 8] = black_box([1, 2, 3, 4, 5, 6, 7, 8]);
    let start = Instant::now();
    for pass in 0..u64::from(PASS_COUNT) {
        // Rotations, because vectors of the baseline instruction set don't have them.
        for lane in &mut lanes {
            *lane = lane.rotate_left(7).wrapping_add(pass);
        }
    }
    black_box(lanes);
    start.elapsed().as_nanos() as f64
}

/// Counts how often the kernel put the calling thread on a CPU.
#[derive(Debug)]
pub struct Switches(File);

impl Switches {
    /// Counts for the calling thread.
    ///
    /// # Panics
    /// If `/proc` is not mounted.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").expect("Linux with /proc"))
    }

    /// The count so far, which is constant while nothing else runs on the CPU.
    ///
    /// # Panics
    /// If the file's form differs from Linux's.
    #[must_use]
    pub fn count(&self) -> u64 {
        let mut text = [0; 64];
        let len = self.0.read_at(&mut text, 0).expect("an open file of /proc");
        let text = std::str::from_utf8(&text[..len]).expect("numbers");
        // Nanoseconds on a CPU, nanoseconds waiting for one, and turns on a CPU.
        let third = text.split_whitespace().nth(2).and_then(|turns| turns.parse().ok());
        third.expect("three numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sleep_is_a_switch() {
        let switches = Switches::of_this_thread();
        let before = switches.count();
        std::thread::sleep(Duration::from_millis(1));
        assert!(switches.count() > before);
    }

    #[test]
    fn calibration_takes_time() {
        assert!(calibration_ns() > 0.0);
    }
}
