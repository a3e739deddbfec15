//! Shares a kind's budget among its senders.

use super::punt::PuntLimit;
use hotloop_stage::{Instant, TokenBucket, TokenRate};
use std::time::Duration;

/// Number of sources of a kind that can have a share of their own.
pub(super) const SHARE_COUNT: usize = 256;

/// Number of places where a source's share may be.
const WAY_COUNT: usize = 4;

const SECOND_NS: u64 = 1_000_000_000;

/// A source keeps its share, after its last packet, for `KEPT_TIMES` as long as it has had it,
/// within these bounds.
const KEPT_TIMES: u64 = 10;
const KEPT_NS_MIN: u64 = SECOND_NS;
const KEPT_NS_MAX: u64 = 300 * SECOND_NS;

/// A token bucket with its rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    rate: TokenRate,
    tokens: TokenBucket,
}

impl Bucket {
    pub(super) fn new(limit: PuntLimit) -> Self {
        let burst = if limit.per_second == 0 { 0 } else { limit.burst.max(1) };
        let rate = TokenRate::per_second(limit.per_second.into(), burst.into());
        Self { rate, tokens: TokenBucket::default() }
    }

    /// Whether one more packet may pass at this time, which never goes back.
    pub(super) fn take(&mut self, now_ns: u64) -> bool {
        self.tokens.take(&self.rate, 1, Instant::from_ns(now_ns))
    }
}

/// The part of a budget that a packet takes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BudgetPart {
    /// Its source's share.
    Own,
    /// The rest, open to all.
    Rest,
}

/// The budget of a kind.
///
/// Half of it is for sources that have a share, 1/256 of that half each. Any source may use the
/// rest, down to that half. So:
///
/// - No more packets pass than the limit, whoever sends them.
/// - A source's packets within its share all pass, whatever others send, if the limit's burst is at
///   least 512.
///
/// A source gets its share with its first packet, if one is free, and keeps it after its last
/// packet for ten times as long as it has had it. Sources that each send once, like a flood with
/// random addresses, therefore have it for a second, and cannot take it from one that was there
/// before. A share stays as empty as it was when another source gets it.
#[derive(Debug)]
pub(super) struct Budget {
    all: Bucket,
    share_rate: TokenRate,
    shares: Box<[Share]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// The owning source, as a secret hash.
    source: u64,
    since_ns: u64,
    /// Time after which another source may take it; 0 if it never had an owner.
    kept_until_ns: u64,
    tokens: TokenBucket,
}

impl Budget {
    pub(super) fn new(limit: PuntLimit) -> Self {
        let shares = vec![Share::default(); SHARE_COUNT].into_boxed_slice();
        let all = Bucket::new(limit);
        let part = 2 * SHARE_COUNT as u32;
        let burst = (all.rate.burst() / u64::from(part)).max(all.rate.burst().min(1));
        let period = Duration::from_secs(part.into());
        let share_rate = TokenRate::new(limit.per_second.into(), period, burst);
        Self { all, share_rate, shares }
    }

    /// The part that one more packet of this source takes from at this time, which never goes back.
    /// `None` if the packet is above the limit.
    pub(super) fn take(&mut self, source: u64, now_ns: u64) -> Option<BudgetPart> {
        let now = Instant::from_ns(now_ns);
        let own = share_of(&mut self.shares, source, now_ns).and_then(|share| {
            let mut tokens = share.tokens;
            tokens.take(&self.share_rate, 1, now).then_some((share, tokens))
        });
        let Bucket { rate, tokens } = self.all;
        // All but one token, if half of the bucket is less.
        let reserved = rate.burst() - (rate.burst() / 2).max(1).min(rate.burst());
        if own.is_none() && tokens.available(&rate, now) <= reserved || !self.all.take(now_ns) {
            return None;
        }
        let Some((share, tokens)) = own else { return Some(BudgetPart::Rest) };
        share.tokens = tokens;
        Some(BudgetPart::Own)
    }
}

/// The share of a source, possibly taken from the one that has been silent longest.
fn share_of(shares: &mut [Share], source: u64, now_ns: u64) -> Option<&mut Share> {
    let first = source as usize % (shares.len() / WAY_COUNT) * WAY_COUNT;
    let ways = &mut shares[first..first + WAY_COUNT];
    let known = ways.iter().position(|share| share.source == source && share.kept_until_ns > 0);
    let share = if let Some(at) = known {
        &mut ways[at]
    } else {
        let oldest = ways.iter_mut().min_by_key(|share| share.kept_until_ns)?;
        if oldest.kept_until_ns > now_ns {
            return None;
        }
        (oldest.source, oldest.since_ns) = (source, now_ns);
        oldest
    };
    let had_ns = now_ns - share.since_ns;
    share.kept_until_ns = now_ns + (had_ns * KEPT_TIMES).clamp(KEPT_NS_MIN, KEPT_NS_MAX);
    Some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 1,000 packets per second: a share is one packet in 512 ms.
    fn budget() -> Budget {
        Budget::new(PuntLimit { per_second: 1_000, burst: 1_000 })
    }

    /// For each of a set of places, `count` sources that belong there, and more.
    fn sources(count: u64) -> impl Iterator<Item = u64> {
        (1..=count).map(|number| number * SHARE_COUNT as u64)
    }

    #[test]
    fn a_bucket_lets_its_burst_through_and_then_its_rate() {
        let mut bucket = Bucket::new(PuntLimit { per_second: 1_000, burst: 10 });
        let mut passed = |now_ns| (0..100).filter(|_| bucket.take(now_ns)).count();
        assert_eq!(passed(5 * SECOND_NS), 10);
        assert_eq!(passed(5 * SECOND_NS), 0);
        assert_eq!(passed(5 * SECOND_NS + 3_500_000), 3);
        assert_eq!(passed(5 * SECOND_NS + 4_000_000), 1);
        // No more than the burst passes at once.
        assert_eq!(passed(9 * SECOND_NS), 10);
    }

    #[test]
    fn limits_at_their_ends() {
        let passed = |per_second, burst| {
            let limit = PuntLimit { per_second, burst };
            let (mut bucket, mut budget) = (Bucket::new(limit), Budget::new(limit));
            let in_bucket = (0..1_000).filter(|now_ns| bucket.take(*now_ns)).count();
            let in_budget = (0..1_000).filter(|now_ns| budget.take(1, *now_ns).is_some()).count();
            (in_bucket, in_budget)
        };
        assert_eq!(passed(0, 100), (0, 0));
        assert_eq!(passed(1, 0), (1, 1));
        // Half of the burst for a source alone.
        assert_eq!(passed(1, 100), (100, 50));
        assert_eq!(passed(1_000_000_000, 1), (1_000, 1_000));
        assert_eq!(passed(u32::MAX, u32::MAX), (1_000, 1_000));
    }

    #[test]
    fn one_source_gets_the_whole_rate_where_there_is_no_other() {
        let mut budget = budget();
        // 10,000 per second for 100 s.
        let passed = (0..1_000_000).filter(|at| budget.take(1, at * MS / 10).is_some()).count();
        assert!((100_000..101_000).contains(&passed), "{passed}");
    }

    #[test]
    fn all_shares_together_pass_after_others_have_taken_what_they_can() {
        let mut budget = Budget::new(PuntLimit { per_second: 10_000, burst: 10_000 });
        let now_ns = 100 * SECOND_NS;
        let rest = (0..10_000).filter(|_| budget.take(0, now_ns).is_some()).count();
        assert!((5_000..5_020).contains(&rest), "{rest}");
        // A share is 19 packets at once. Four sources for each place, one of them above that.
        let sources = (1..=SHARE_COUNT as u64).filter(|source| *source % 64 != 0);
        for source in sources {
            let passed = (0..100).filter(|_| budget.take(source, now_ns).is_some()).count();
            assert_eq!(passed, 19, "{source}");
        }
    }

    #[test]
    fn the_share_of_who_has_been_away_the_longest_is_free_first() {
        let mut budget = budget();
        let mut seen = |source, now_ms| share_of(&mut budget.shares, source, now_ms * MS).is_some();
        // The first stays for a second, the others send once, one after the other.
        let places: Vec<_> = sources(7).collect();
        for now_ms in [0, 500, 1_000] {
            assert!(seen(places[0], now_ms));
        }
        for (place, now_ms) in [(1, 1_100), (3, 1_200), (2, 1_300)] {
            assert!(seen(places[place], now_ms));
        }
        // No share is free within a second; then the one that was silent longest is taken.
        assert!(!seen(places[4], 2_099));
        assert!(seen(places[4], 2_100));
        assert!(!seen(places[5], 2_199) && !seen(places[1], 2_199));
        assert!(seen(places[5], 2_200) && !seen(places[3], 2_200));
        assert!(seen(places[2], 2_200));
        // The first keeps its own for ten times as long as it has had it, and no longer.
        for now_ms in (2_300..10_999).step_by(100) {
            assert!(seen(places[4], now_ms) && seen(places[5], now_ms) && seen(places[2], now_ms));
            assert!(!seen(places[6], now_ms), "{now_ms}");
        }
        assert!(seen(places[6], 11_000) && !seen(places[0], 11_000));
        assert_eq!(budget.shares.len(), SHARE_COUNT);
    }

    #[test]
    fn nobody_keeps_a_share_for_more_than_five_minutes() {
        let mut budget = budget();
        let mut seen =
            |source, now_s: u64| share_of(&mut budget.shares, source, now_s * SECOND_NS).is_some();
        for source in sources(4) {
            assert!(seen(source, 0) && seen(source, 1));
            for now_s in 2..1_000 {
                assert!(seen(source, now_s));
            }
        }
        assert!(!seen(77 * 256, 1_298) && seen(77 * 256, 1_299));
    }

    /// A share that changes hands does not get fuller.
    #[test]
    fn who_comes_and_goes_passes_no_more_than_the_limit() {
        let mut budget = budget();
        let mut passed = 0;
        for at in 0..3_000_000_u64 {
            // 50,000 packets per second for a minute, each from another source.
            let source = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7;
            passed += u64::from(budget.take(source, at * 20_000).is_some());
        }
        assert!((60_000..=61_000).contains(&passed), "{passed}");
    }
}
