//! Finds the turns that have time for deferred work. Uses a CPU clock, and no other state. Deferred
//! work never waits more than [`WAIT_TURNS_MAX`] turns in a row.

use quanta::Clock;

/// A turn has no time left once it has taken this many fourths of the mean turn.
const LONG_FOURTHS: u64 = 5;

/// Approximate number of turns in that mean.
const MEAN_TURNS: u64 = 256;

/// After this many turns in a row without time, the next one has time, however long it took.
const WAIT_TURNS_MAX: u32 = 64;

/// Finds the turns with packets that took long, for example because the host used the CPU for a
/// moment and left its caches cold. Deferred work would make them longer still.
#[derive(Debug, Default)]
pub(super) struct TimeBudget {
    /// `None` in simulations, because their time is not a CPU's: every turn has time there.
    clock: Option<Clock>,
    /// When this turn began, in ticks; `None` if there was no deferred work.
    begin: Option<u64>,
    has_packets: bool,
    /// [`MEAN_TURNS`] times the mean duration of a turn, in ticks.
    mean_sum: u64,
    /// Number of turns in a row without time.
    waited_count: u32,
}

impl TimeBudget {
    pub(super) fn by(clock: Clock) -> Self {
        Self { clock: Some(clock), ..Self::default() }
    }

    /// Notes that packets came in this turn.
    #[inline]
    pub(super) const fn packets_came(&mut self) {
        self.has_packets = true;
    }

    /// Begins a turn. [`is_left`](Self::is_left) returns at its end whether it has time.
    pub(super) fn turn_begins(&mut self) {
        self.has_packets = false;
        self.begin = self.clock.as_ref().map(Clock::raw);
    }

    /// Whether there is time left in this turn.
    pub(super) fn is_left(&mut self) -> bool {
        // Between turns without packets, a core may have slept.
        let begin = self.begin.take().filter(|_| self.has_packets);
        let Some((clock, begin)) = self.clock.as_ref().zip(begin) else { return true };
        let took = clock.raw().saturating_sub(begin);
        let mean = self.mean_sum / MEAN_TURNS;
        let is_long = mean > 0 && 4 * took > LONG_FOURTHS * mean;
        self.mean_sum = match mean {
            0 => MEAN_TURNS * took,
            // A turn in which the thread was off its CPU is not typical of other turns.
            _ => self.mean_sum - mean + took.min(4 * mean),
        };
        self.waited_count = if is_long { self.waited_count + 1 } else { 0 };
        if self.waited_count > WAIT_TURNS_MAX {
            self.waited_count = 0;
        }
        self.waited_count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quanta::Mock;
    use std::sync::Arc;

    /// Takes a turn with packets. Returns whether time is left.
    fn turn(budget: &mut TimeBudget, time: &Mock, took: u64) -> bool {
        budget.turn_begins();
        budget.packets_came();
        time.increment(took);
        budget.is_left()
    }

    fn time_budget() -> (TimeBudget, Arc<Mock>) {
        let (clock, time) = Clock::mock();
        (TimeBudget::by(clock), time)
    }

    #[test]
    fn a_turn_that_took_longer_than_others_has_no_time_left() {
        let (mut budget, time) = time_budget();
        assert!((0..1_000).all(|_| turn(&mut budget, &time, 2_000)));
        assert!(!turn(&mut budget, &time, 2_600));
        assert!(!turn(&mut budget, &time, 1_000_000));
        assert!(turn(&mut budget, &time, 2_400));
    }

    #[test]
    fn a_turn_without_packets_has_time_left_whatever_it_took() {
        let (mut budget, time) = time_budget();
        assert!(turn(&mut budget, &time, 2_000));
        budget.turn_begins();
        time.increment(1_000_000);
        assert!(budget.is_left());
    }

    #[test]
    fn where_all_turns_get_longer_none_waits_for_long() {
        let (mut budget, time) = time_budget();
        assert!((0..1_000).all(|_| turn(&mut budget, &time, 200)));
        let with_time: Vec<_> = (0..2_000).filter(|_| turn(&mut budget, &time, 2_000)).collect();
        assert_eq!(with_time[0], WAIT_TURNS_MAX as usize);
        assert!(with_time.windows(2).all(|pair| pair[1] - pair[0] <= 1 + WAIT_TURNS_MAX as usize));
        assert!((1_900..2_000).all(|turn| with_time.contains(&turn)));
    }

    #[test]
    fn without_a_clock_all_turns_have_time() {
        let mut budget = TimeBudget::default();
        budget.turn_begins();
        budget.packets_came();
        assert!(budget.is_left());
    }
}
