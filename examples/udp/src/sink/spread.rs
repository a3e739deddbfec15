//! The distribution of datagrams over queues or threads, as bars for people.

use crate::rate::Passed;

/// The length of a bar for all datagrams, in characters.
const BAR: usize = 40;

/// Minimum number of datagrams for a warning: among fewer, an uneven spread may be chance.
const COUNT_MIN: u64 = 1_000;
const SHARE_MAX: f64 = 0.9;

/// A bar for each of `parts`, which are called `part` (queue, thread); then `by`, the mechanism
/// that distributes datagrams, and `remedy` if one has nearly all. Empty for a single part.
#[must_use]
pub fn lines(part: &str, parts: &[(u64, Passed)], by: &str, remedy: &str) -> Vec<String> {
    let all: u64 = parts.iter().map(|(_, passed)| passed.packets).sum();
    if parts.len() < 2 || all == 0 {
        return Vec::new();
    }
    let share = |count: u64| count as f64 / all as f64;
    let bar = |(index, passed): &(u64, Passed)| {
        let share = share(passed.packets);
        let length = (share * BAR as f64).round() as usize;
        format!("  {part} {index:<3} {:<BAR$} {:5.1} %", "█".repeat(length), share * 100.0)
    };
    let mut lines: Vec<_> = parts.iter().map(bar).collect();
    lines.push(format!("  spread by {by}"));
    let most = parts.iter().map(|(_, passed)| share(passed.packets)).fold(0.0, f64::max);
    if all >= COUNT_MIN && most >= SHARE_MAX {
        lines.push(format!("  warning: one {part} has {:.0} % of all: {remedy}", most * 100.0));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(counts: &[u64]) -> Vec<String> {
        let passed = |count: &u64| Passed { packets: *count, payload_bytes: 0 };
        let parts: Vec<_> = (0..).zip(counts.iter().map(passed)).collect();
        lines("queue", &parts, "the port's hash of ip", "hash more")
    }

    #[test]
    fn each_queue_has_a_bar_of_its_share() {
        let lines = lines_of(&[300, 100]);
        assert_eq!(lines[0], format!("  queue 0   {}{}  75.0 %", "█".repeat(30), " ".repeat(10)));
        assert_eq!(lines[1], format!("  queue 1   {}{}  25.0 %", "█".repeat(10), " ".repeat(30)));
        assert_eq!(lines[2..], ["  spread by the port's hash of ip"]);
    }

    #[test]
    fn a_queue_with_nearly_all_is_warned_of() {
        let warned =
            |counts: &[u64]| lines_of(counts).iter().any(|line| line.contains("hash more"));
        assert!(warned(&[1_000, 0]) && warned(&[50, 0, 950]));
        assert!(!warned(&[999, 0]) && !warned(&[899, 101]));
    }

    #[test]
    fn a_single_queue_and_an_empty_run_have_none() {
        assert!(lines_of(&[5]).is_empty() && lines_of(&[0, 0]).is_empty());
    }
}
