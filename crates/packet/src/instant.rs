//! The time of packets.

use std::fmt;
use std::time::Duration;

/// A point in time, in nanoseconds since the engine driver's zero: the start of a clock, the epoch
/// of a capture's timestamps, zero in a test.
///
/// The time is read once per loop, so that all packets of a burst have the same time.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Instant(u64);

impl Instant {
    /// The point `ns` nanoseconds after the clock's zero.
    #[inline]
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock's zero.
    #[inline]
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to this point; 0 if `earlier` is not earlier.
    #[inline]
    #[must_use]
    pub const fn ns_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The point `ns` nanoseconds before this one; the clock's zero if that would be before zero.
    #[inline]
    #[must_use]
    pub const fn earlier_by(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }
}

impl From<Instant> for u64 {
    #[inline]
    fn from(instant: Instant) -> Self {
        instant.0
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time, 584 years after zero.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_at_both_ends() {
        let (early, late) = (Instant::from_ns(10), Instant::from_ns(25));
        assert_eq!(late.ns_since(early), 15);
        assert_eq!(early.ns_since(late), 0);
        assert_eq!((late.earlier_by(10).as_ns(), early.earlier_by(25).as_ns()), (15, 0));
        assert_eq!((Instant::from_ns(u64::MAX) + Duration::from_secs(1)).as_ns(), u64::MAX);
        assert_eq!(Instant::from_ns(1_500_000_000).to_string(), "1.500000000 s");
    }
}
