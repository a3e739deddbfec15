//! Times of entries: 32-bit numbers of steps.

use hotloop_packet::Instant;

use crate::config::{CLASS_COUNT, Class};

/// Length of a step in nanoseconds: 16.8 ms. A table records in steps when flows were last seen.
pub const STEP_NS: u64 = 1 << 24;

/// The latest time passed to a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    step: u64,
}

impl Clock {
    /// Advances to `now` unless that is in the past, and returns the latest step, truncated to 32
    /// bits as in entries. Times in entries are never later than this.
    #[inline(always)]
    pub(crate) fn advance(&mut self, now: Instant) -> u32 {
        let step = now.as_ns() / STEP_NS;
        if step > self.step {
            self.go_on_to(step);
        }
        self.step as u32
    }

    /// Kept out of line: nearly all packets come in the same step as the one before.
    #[cold]
    #[inline(never)]
    fn go_on_to(&mut self, step: u64) {
        self.step = step;
    }

    /// The step that [`advance`](Self::advance) would return, without advancing.
    #[inline(always)]
    pub(crate) fn peek(&self, now: Instant) -> u32 {
        self.step.max(now.as_ns() / STEP_NS) as u32
    }

    /// The latest step.
    #[inline(always)]
    pub(crate) fn latest(&self) -> u32 {
        self.step as u32
    }

    /// The step `ns` nanoseconds before the latest one. Times too long ago for 32-bit steps count
    /// as the longest time that steps can express.
    pub(crate) fn earlier(&self, ns: u64) -> u32 {
        let steps = u32::try_from(ns / STEP_NS).unwrap_or(u32::MAX);
        (self.step as u32).wrapping_sub(steps)
    }
}

/// For each class, the number of steps without a packet that flows outlast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleTimeouts([u32; CLASS_COUNT]);

impl IdleTimeouts {
    /// Rounds up: a step in which a flow was seen may have begun up to a whole step earlier, which
    /// [`is_over`](Self::is_over) allows for. A timeout that doesn't fit means forever.
    pub(crate) fn new(idle_ns: [u64; CLASS_COUNT]) -> Self {
        let steps = |ns: u64| u32::try_from(ns.div_ceil(STEP_NS)).unwrap_or(u32::MAX);
        Self(idle_ns.map(steps))
    }

    /// The idle timeouts for a caller that counts flows as gone after `recent_ns` of silence, if
    /// that is less.
    pub(crate) fn recent(self, recent_ns: u64) -> Self {
        // Two packets this far apart are at least this number of whole steps apart.
        let steps = u32::try_from((recent_ns / STEP_NS).saturating_sub(1)).unwrap_or(u32::MAX);
        Self(self.0.map(|idle| idle.min(steps)))
    }

    /// Whether a flow of `class` that was last seen in step `seen` expires in step `now`.
    #[inline(always)]
    pub(crate) fn is_over(&self, class: Class, seen: u32, now: u32) -> bool {
        now.wrapping_sub(seen) > self.0[class.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_over(idle_ns: u64, seen_ns: u64, now_ns: u64) -> bool {
        let mut clock = Clock::default();
        let seen = clock.advance(Instant::from_ns(seen_ns));
        IdleTimeouts::new([idle_ns; CLASS_COUNT]).is_over(
            Class::default(),
            seen,
            clock.advance(Instant::from_ns(now_ns)),
        )
    }

    #[test]
    fn no_flow_goes_before_its_time_nor_two_steps_after() {
        for idle_ns in [0, 1, 100, STEP_NS - 1, STEP_NS, STEP_NS + 1, 30_000_000_000] {
            for seen_ns in [0, 1, STEP_NS - 1, STEP_NS, 5 * STEP_NS + 77, 1 << 50] {
                assert!(!is_over(idle_ns, seen_ns, seen_ns + idle_ns), "{idle_ns} {seen_ns}");
                let late_ns = seen_ns + idle_ns + 2 * STEP_NS;
                assert!(is_over(idle_ns, seen_ns, late_ns), "{idle_ns} {seen_ns}");
            }
        }
    }

    #[test]
    fn steps_wrap_and_flows_do_not_notice() {
        let wrap_ns = STEP_NS << 32;
        assert!(!is_over(10 * STEP_NS, wrap_ns - 5 * STEP_NS, wrap_ns + 4 * STEP_NS));
        assert!(is_over(10 * STEP_NS, wrap_ns - 5 * STEP_NS, wrap_ns + 7 * STEP_NS));
    }

    #[test]
    fn what_is_kept_for_ever_is_never_over() {
        for idle_ns in [u64::MAX, STEP_NS << 32] {
            assert!(!is_over(idle_ns, 0, u64::MAX));
            assert!(!is_over(idle_ns, 0, (STEP_NS << 32) - 1));
        }
    }

    #[test]
    fn an_earlier_time_counts_as_the_latest() {
        let mut clock = Clock::default();
        assert_eq!(clock.advance(Instant::from_ns(9 * STEP_NS)), 9);
        assert_eq!(clock.advance(Instant::from_ns(3)), 9);
        assert_eq!(clock.advance(Instant::from_ns(10 * STEP_NS)), 10);
    }
}
