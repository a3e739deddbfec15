//! The cluster's clock: births of connections are compared between nodes, by a node's own clock, set
//! ahead to the latest time that it has heard of. So a connection that begins after another one
//! is known gets a later birth, whatever the clocks of the nodes.

use hotloop::flow::STEP_NS;
use hotloop::stage::Instant;

/// The latest time, in steps: 146 years.
pub const STEPS_MAX: u64 = 1 << 38;

/// A worker's view of the cluster's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    ahead_ns: u64,
}

impl Clock {
    /// The time by the cluster's clock.
    #[inline(always)]
    #[must_use]
    pub const fn at(self, now: Instant) -> Instant {
        Instant::from_ns(now.as_ns() + self.ahead_ns)
    }

    /// The time in steps of [`STEP_NS`].
    #[must_use]
    pub const fn steps(self, now: Instant) -> u64 {
        self.at(now).as_ns() / STEP_NS
    }

    /// Notes that it is this late at another node, in steps of [`STEP_NS`]; at most [`STEPS_MAX`]
    /// counts.
    pub const fn hear(&mut self, steps: u64, now: Instant) {
        let steps = if steps > STEPS_MAX { STEPS_MAX } else { steps };
        let behind_steps = steps.saturating_sub(self.steps(now));
        self.ahead_ns += behind_steps * STEP_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_late_as_the_latest_time_that_was_heard_of() {
        let (mut clock, now) = (Clock::default(), Instant::from_ns(5 * STEP_NS));
        assert_eq!(clock.steps(now), 5);
        for (heard, expected) in [(3, 5), (900, 900), (7, 900), (u64::MAX, STEPS_MAX)] {
            clock.hear(heard, now);
            assert_eq!(clock.steps(now), expected);
        }
        let later = Instant::from_ns(7 * STEP_NS);
        assert_eq!(clock.steps(later), STEPS_MAX + 2);
    }
}
