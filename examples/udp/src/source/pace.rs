//! The number of packets that are due.

const NS_PER_S: u64 = 1_000_000_000;

/// Maximum time to make up for when the core was not running, in nanoseconds.
const DEBT_NS_MAX: u64 = 100_000_000;

/// The sending rate of one core.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Packets a second; `None` for no limit.
    rate: Option<u64>,
    /// When packets were last taken, in nanoseconds.
    last_ns: Option<u64>,
    /// The amount due, in 1/1,000,000,000 of a packet.
    due: u64,
}

impl Pace {
    /// The share of core `core_index` of `core_count` in `rate` packets a second, at most 10^9;
    /// without a rate, no limit.
    #[must_use]
    pub fn new(rate: Option<u64>, core_index: usize, core_count: usize) -> Self {
        let (index, count) = (core_index as u64, core_count as u64);
        let rate = rate.map(|rate| rate / count + u64::from(index < rate % count));
        Self { rate, last_ns: None, due: 0 }
    }

    /// Returns the number of packets to send at `now_ns`, at most `max`. They count as sent:
    /// [`give_back`](Self::give_back) those that are not. Time begins with the first call.
    #[inline]
    pub fn take(&mut self, now_ns: u64, max: usize) -> usize {
        self.rate.map_or(max, |rate| self.take_of(rate, now_ns, max))
    }

    fn take_of(&mut self, rate: u64, now_ns: u64, max: usize) -> usize {
        let passed_ns = self.last_ns.map_or(0, |last_ns| now_ns.saturating_sub(last_ns));
        let passed_ns = passed_ns.min(DEBT_NS_MAX);
        self.last_ns = Some(now_ns);
        // At most 10^8 ns of 10^9 packets a second each, or one packet for a very slow rate.
        let due_max = (DEBT_NS_MAX * rate).max(NS_PER_S);
        self.due = (self.due + passed_ns * rate).min(due_max);
        let count = (self.due / NS_PER_S).min(max as u64);
        self.due -= count * NS_PER_S;
        count as usize
    }

    /// Makes `count` packets due again.
    #[inline]
    pub const fn give_back(&mut self, count: usize) {
        if self.rate.is_some() {
            self.due += count as u64 * NS_PER_S;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of packets at each of these times, in nanoseconds; at most 64 at each.
    fn take(pace: &mut Pace, times_ns: impl IntoIterator<Item = u64>) -> Vec<usize> {
        times_ns.into_iter().map(|ns| pace.take(ns, 64)).collect()
    }

    /// The number of packets in a second, taken every `step_ns`.
    fn sent(mut pace: Pace, step_ns: u64) -> usize {
        take(&mut pace, (0..=NS_PER_S / step_ns).map(|step| step * step_ns)).iter().sum()
    }

    #[test]
    fn the_rate_is_kept_whatever_the_steps() {
        for (rate, step_ns) in [(1_000, 100), (1_000_000, 777), (1_000_000, 62_500), (7, 1_000_000)]
        {
            let pace = Pace::new(Some(rate), 0, 1);
            let expected = rate as usize;
            let count = sent(pace, step_ns);
            assert!(count.abs_diff(expected) <= 1, "{rate} every {step_ns} ns: {count}");
        }
    }

    #[test]
    fn cores_share_the_rate() {
        let counts = [0, 1, 2].map(|index| sent(Pace::new(Some(1001), index, 3), 1000));
        assert_eq!(counts, [334, 334, 333]);
        assert_eq!(sent(Pace::new(Some(1), 1, 2), 1000), 0);
    }

    #[test]
    fn a_long_pause_is_made_up_for_in_part_only() {
        let mut pace = Pace::new(Some(10_000), 0, 1);
        let times_ns = (0..1000).map(|turn| 10 * NS_PER_S + turn);
        let counts = take(&mut pace, [0].into_iter().chain(times_ns));
        assert_eq!((counts[0], counts.iter().sum::<usize>()), (0, 1000));
    }

    #[test]
    fn what_is_given_back_is_due_again() {
        let mut pace = Pace::new(Some(1000), 0, 1);
        assert_eq!(take(&mut pace, [0, 10_000_000]), [0, 10]);
        pace.give_back(4);
        assert_eq!(take(&mut pace, [10_000_000]), [4]);
    }

    #[test]
    fn without_a_rate_all_is_due() {
        let mut pace = Pace::new(None, 0, 1);
        pace.give_back(3);
        assert_eq!([pace.take(0, 64), pace.take(0, 10)], [64, 10]);
    }
}
