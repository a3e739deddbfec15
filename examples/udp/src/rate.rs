//! Counts, rates, and how they are written.

use std::fmt;
use std::iter::Sum;
use std::time::Duration;

/// Datagrams and bytes since some start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Passed {
    /// Datagrams.
    pub packets: u64,
    /// Bytes of their payloads, without headers.
    pub payload_bytes: u64,
}

impl Passed {
    /// The difference to `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            payload_bytes: self.payload_bytes.saturating_sub(before.payload_bytes),
        }
    }

    /// The mean rate over this time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn in_time(self, duration: Duration) -> Rate {
        let seconds = duration.as_secs_f64();
        let each_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Rate {
            packets_per_s: each_second(self.packets),
            payload_bytes_per_s: each_second(self.payload_bytes),
        }
    }
}

impl Sum for Passed {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            packets: sum.packets + one.packets,
            payload_bytes: sum.payload_bytes + one.payload_bytes,
        })
    }
}

/// Datagrams and payload a second. It prints as millions of packets, 2^20 bytes, 10^6 bits:
///
/// ```
/// use udp::rate::Rate;
///
/// let rate = Rate { packets_per_s: 1_146_555.0, payload_bytes_per_s: 32.0 * 1_146_555.0 };
/// assert_eq!(rate.to_string(), "  1.147M pps  34.990MiB / 293.518Mb");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Datagrams a second.
    pub packets_per_s: f64,
    /// Bytes of payload a second.
    pub payload_bytes_per_s: f64,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millions = self.packets_per_s / 1e6;
        let mebibytes = self.payload_bytes_per_s / f64::from(1 << 20);
        let megabits = self.payload_bytes_per_s * 8.0 / 1e6;
        write!(f, "{millions:7.3}M pps {mebibytes:7.3}MiB / {megabits:7.3}Mb")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_difference_over_a_time() {
        let before = Passed { packets: 1_000, payload_bytes: 32_000 };
        let now = Passed { packets: 3_001_000, payload_bytes: 96_032_000 };
        let rate = now.since(before).in_time(Duration::from_secs(2));
        assert_eq!(rate.to_string(), "  1.500M pps  45.776MiB / 384.000Mb");
        assert_eq!(now.in_time(Duration::ZERO), Rate::default());
        assert_eq!(Rate::default().to_string(), "  0.000M pps   0.000MiB /   0.000Mb");
    }
}
