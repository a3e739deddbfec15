//! How many packets are due.

use hotloop::stage::Tick;

const NS_PER_S: u64 = 1_000_000_000;

/// How much time may be made up for when the core was not running, in nanoseconds.
const DEBT_NS_MAX: u64 = 100_000_000;

/// How fast one core sends.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Packets a second; none for as many as go.
    rate: Option<u64>,
    last: Option<Tick>,
    /// What is due, in 1/1,000,000,000 of a packet.
    due: u64,
}

impl Pace {
    /// The share of core `core_index` of `core_count` in `rate` packets a second, at most 10^9; as
    /// fast as it goes where that is none.
    #[must_use]
    pub fn new(rate: Option<u64>, core_index: usize, core_count: usize) -> Self {
        let (index, count) = (core_index as u64, core_count as u64);
        let rate = rate.map(|rate| rate / count + u64::from(index < rate % count));
        Self { rate, last: None, due: 0 }
    }

    /// How many packets to send now, at most `max`. They count as sent: what could not be made is
    /// given back by [`give_back`](Self::give_back). Time begins with the first call.
    #[inline]
    pub fn take(&mut self, now: Tick, max: usize) -> usize {
        let Some(rate) = self.rate else { return max };
        let passed_ns = self.last.map_or(0, |last| now.ns_since(last)).min(DEBT_NS_MAX);
        self.last = Some(now);
        // At most 10^8 ns of 10^9 packets a second each, or one packet of a very slow rate.
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

    /// What is sent when asked every `step_ns`, from the first call on, for this long.
    fn sent(mut pace: Pace, step_ns: u64, duration_ns: u64) -> usize {
        (0..=duration_ns / step_ns).map(|step| pace.take(Tick::from_ns(step * step_ns), 64)).sum()
    }

    #[test]
    fn the_rate_is_kept_whatever_the_steps() {
        for (rate, step_ns) in [(1_000, 100), (1_000_000, 777), (1_000_000, 62_500), (7, 1_000_000)]
        {
            let pace = Pace::new(Some(rate), 0, 1);
            let expected = rate as usize;
            let count = sent(pace, step_ns, NS_PER_S);
            assert!(count.abs_diff(expected) <= 1, "{rate} every {step_ns} ns: {count}");
        }
    }

    #[test]
    fn cores_share_the_rate() {
        let counts = [0, 1, 2].map(|index| sent(Pace::new(Some(1001), index, 3), 1000, NS_PER_S));
        assert_eq!(counts, [334, 334, 333]);
        assert_eq!(sent(Pace::new(Some(1), 1, 2), 1000, NS_PER_S), 0);
    }

    #[test]
    fn a_long_pause_is_made_up_for_in_part_only() {
        let mut pace = Pace::new(Some(10_000), 0, 1);
        assert_eq!(pace.take(Tick::from_ns(0), 64), 0);
        let late = Tick::from_ns(10 * NS_PER_S);
        let caught_up: usize = (0..1000).map(|_| pace.take(late, 64)).sum();
        assert_eq!(caught_up, 1000);
    }

    #[test]
    fn what_is_given_back_is_due_again() {
        let mut pace = Pace::new(Some(1000), 0, 1);
        assert_eq!(pace.take(Tick::from_ns(0), 64), 0);
        assert_eq!(pace.take(Tick::from_ns(10_000_000), 64), 10);
        pace.give_back(4);
        assert_eq!(pace.take(Tick::from_ns(10_000_000), 64), 4);
    }

    #[test]
    fn without_a_rate_all_is_due() {
        let mut pace = Pace::new(None, 0, 1);
        pace.give_back(3);
        assert_eq!([pace.take(Tick::from_ns(0), 64), pace.take(Tick::from_ns(0), 10)], [64, 10]);
    }
}
