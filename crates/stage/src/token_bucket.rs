//! Rate limits: token buckets, for one core and for all cores together.

use crate::Instant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The rate at which tokens come into a bucket, and the most that it holds.
///
/// The rate is apart from the buckets, so that a table of a million of them has it once. A token is
/// whatever is counted: a packet, a byte, a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TokenRate {
    /// In each period this number of tokens comes.
    count: u64,
    period_ns: u64,
    /// The most tokens in a bucket.
    burst: u64,
}

const SECOND: Duration = Duration::from_secs(1);

impl TokenRate {
    /// The rate of `count` tokens a second, for buckets of `burst` tokens. See [`new`](Self::new).
    #[must_use]
    pub const fn per_second(count: u64, burst: u64) -> Self {
        Self::new(count, SECOND, burst)
    }

    /// The rate of `count` tokens in each `period`, for buckets of `burst` tokens. Tokens come one by
    /// one, evenly over the period.
    ///
    /// A period of 0 counts as one nanosecond. If the product of the count and the period in
    /// nanoseconds exceeds 64 bits, as with more than 18 billion a second, both are halved until it
    /// doesn't, which rounds the rate a little. A burst is at most as large as 64 bits allow in the
    /// same way.
    #[must_use]
    pub const fn new(count: u64, period: Duration, burst: u64) -> Self {
        let mut count = count;
        let mut period_ns = match period.as_nanos() {
            0 => 1,
            ns if ns > u64::MAX as u128 => u64::MAX,
            ns => ns as u64,
        };
        while count > u64::MAX / period_ns {
            (count, period_ns) = (count / 2, period_ns / 2);
        }
        let most = u64::MAX / period_ns;
        let burst = if burst < most { burst } else { most };
        Self { count, period_ns, burst }
    }

    /// The most tokens in a bucket.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// The time that an empty bucket takes to fill. A bucket left alone for that long equals a new
    /// one. If no tokens come, this is the maximum, 584 years.
    #[must_use]
    pub const fn time_to_fill(&self) -> Duration {
        Duration::from_nanos(match self.count {
            0 => u64::MAX,
            count => (self.burst * self.period_ns).div_ceil(count),
        })
    }

    /// The number of tokens that have come since the clock's zero, modulo 2^64.
    #[inline]
    const fn come_at(&self, now: Instant) -> u64 {
        let (periods, rest_ns) = (now.as_ns() / self.period_ns, now.as_ns() % self.period_ns);
        let come = rest_ns * self.count / self.period_ns;
        periods.wrapping_mul(self.count).wrapping_add(come)
    }
}

/// A token bucket of one core. New buckets are full.
///
/// It is exact: tokens come neither faster nor slower than the [`TokenRate`], however often and
/// however irregularly they are taken. A take costs a multiplication, and neither a
/// division nor a lock.
///
/// ```
/// use hotloop_stage::{Instant, TokenBucket, TokenRate};
///
/// let rate = TokenRate::per_second(3, 2);
/// let mut bucket = TokenBucket::default();
/// let mut takes = |ms: u64| bucket.take(&rate, 1, Instant::from_ns(ms * 1_000_000));
/// assert_eq!([0, 0, 0, 333, 334].map(|ms| takes(ms)), [true, true, false, false, true]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenBucket {
    /// The gap to a full bucket, in fractions of a token: `period_ns` of them are one, and
    /// `count` of them come in a nanosecond.
    missing: u64,
    /// The time of `missing`.
    at: Instant,
}

impl TokenBucket {
    /// Takes `count` tokens if the bucket has them, and returns whether it did. If it has fewer,
    /// all stay. A time before that of the last take counts as that time.
    #[inline]
    pub fn take(&mut self, rate: &TokenRate, count: u64, now: Instant) -> bool {
        self.fill(rate, now);
        let room = rate.burst * rate.period_ns - self.missing;
        match count.checked_mul(rate.period_ns) {
            Some(wanted) if wanted <= room => {
                self.missing += wanted;
                true
            }
            _ => false,
        }
    }

    /// Returns the number of whole tokens in the bucket. It costs a division.
    #[inline]
    #[must_use]
    pub fn available(&self, rate: &TokenRate, now: Instant) -> u64 {
        let mut filled = *self;
        filled.fill(rate, now);
        rate.burst - filled.missing.div_ceil(rate.period_ns)
    }

    /// Lets the tokens come in that came since the last take.
    #[inline]
    fn fill(&mut self, rate: &TokenRate, now: Instant) {
        let come = now.ns_since(self.at).saturating_mul(rate.count);
        self.at = self.at.max(now);
        // The bucket may have been used at another rate, for which it was deeper.
        self.missing = self.missing.saturating_sub(come).min(rate.burst * rate.period_ns);
    }
}

/// A token bucket that cores share: all of them together stay within its rate. New buckets are full.
///
/// It is exact like a [`TokenBucket`], except that tokens come whole, at fixed times, and that no more
/// than 2^63 may come between two takes: 16 years of 18 billion a second. It takes no lock: its state is one number, the count of tokens at which the bucket is full again (the
/// generic cell rate algorithm of ITU-T I.371, in tokens instead of time). A take costs two
/// divisions, and one atomic exchange if there are enough tokens; a refusal only reads. Cores that
/// take at the same moment repeat the exchange, and each take moves the bucket's cache line to the
/// core: some 50 to 100 ns if another core took before. A rate for each core
/// ([`TokenBucket`]) has none of that cost, where traffic is spread evenly enough.
///
/// ```
/// use hotloop_stage::{Instant, SharedTokenBucket, TokenRate};
/// use std::sync::Arc;
///
/// let bucket = Arc::new(SharedTokenBucket::new(TokenRate::per_second(1_000, 10)));
/// let of_another_core = Arc::clone(&bucket);
/// let now = Instant::from_ns(5_000_000_000);
/// assert!(bucket.take(7, now) && of_another_core.take(3, now) && !bucket.take(1, now));
/// assert!(of_another_core.take(1, now + std::time::Duration::from_millis(1)));
/// ```
#[derive(Debug)]
#[repr(align(64))]
pub struct SharedTokenBucket {
    full_at: AtomicU64,
    rate: TokenRate,
}

impl SharedTokenBucket {
    /// A full bucket.
    #[must_use]
    pub const fn new(rate: TokenRate) -> Self {
        Self { full_at: AtomicU64::new(0), rate }
    }

    /// Takes `count` tokens and returns true if the bucket has them; otherwise takes none. A core with
    /// a clock that is late can take no more tokens than the bucket had at that earlier time.
    #[inline]
    pub fn take(&self, count: u64, now: Instant) -> bool {
        let come = self.rate.come_at(now);
        let next = |full_at: u64| {
            let ahead = full_at.wrapping_sub(come);
            // Behind: the bucket has been full for a while. 0: it is new.
            let is_full = ahead > u64::MAX / 2 || full_at == 0;
            let missing = if is_full { 0 } else { ahead }.checked_add(count)?;
            (missing <= self.rate.burst).then_some(come.wrapping_add(missing))
        };
        // Relaxed: no other data depends on the number.
        self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::thread;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Rates of all sizes: of packets in seconds, of bytes, of a few in a day.
    fn rate() -> impl Strategy<Value = TokenRate> {
        let period = prop_oneof![Just(SECOND_NS), 1..SECOND_NS, Just(86_400 * SECOND_NS)];
        (prop_oneof![0..10u64, 0..20_000_000_000u64], period, 0..10_000u64).prop_map(
            |(count, period_ns, burst)| {
                let count = count.min(period_ns.saturating_mul(18));
                TokenRate::new(count, Duration::from_nanos(period_ns), burst)
            },
        )
    }

    /// Steps of time, mostly close to each other, and numbers of tokens.
    fn takes() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let step = prop_oneof![Just(0u64), 0..100u64, 0..SECOND_NS, 0..100_000_000 * SECOND_NS];
        prop::collection::vec((step, prop_oneof![Just(1u64), 0..2_000u64]), 1..100)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let rate = TokenRate::per_second(1_000, 10);
        let (mut bucket, shared) = (TokenBucket::default(), SharedTokenBucket::new(rate));
        let mut taken = |now_ns| {
            let now = Instant::from_ns(now_ns);
            let own = (0..100).filter(|_| bucket.take(&rate, 1, now)).count();
            assert_eq!((0..100).filter(|_| shared.take(1, now)).count(), own);
            own
        };
        assert_eq!(taken(5 * SECOND_NS), 10);
        assert_eq!(taken(5 * SECOND_NS), 0);
        assert_eq!(taken(5 * SECOND_NS + 3_500_000), 3);
        assert_eq!(taken(5 * SECOND_NS + 4_000_000), 1);
        assert_eq!(taken(9 * SECOND_NS), 10);
        assert_eq!(taken(8 * SECOND_NS), 0, "time never goes back");
    }

    #[test]
    fn rates_at_their_ends() {
        let taken = |rate: TokenRate, count: u64| {
            let (mut bucket, shared) = (TokenBucket::default(), SharedTokenBucket::new(rate));
            let own =
                (0..100).filter(|ns| bucket.take(&rate, count, Instant::from_ns(*ns))).count();
            let all = (0..100).filter(|ns| shared.take(count, Instant::from_ns(*ns))).count();
            (own, all)
        };
        assert_eq!(taken(TokenRate::per_second(0, 0), 1), (0, 0));
        assert_eq!(taken(TokenRate::per_second(0, 7), 1), (7, 7));
        assert_eq!(taken(TokenRate::per_second(0, 7), 8), (0, 0));
        assert_eq!(taken(TokenRate::per_second(SECOND_NS, 1), 1), (100, 100));
        assert_eq!(taken(TokenRate::per_second(u64::MAX, u64::MAX), 1), (100, 100));
        assert_eq!(taken(TokenRate::per_second(u64::MAX, u64::MAX), u64::MAX), (0, 0));
        assert_eq!(taken(TokenRate::new(1, Duration::MAX, 1), 1), (1, 1));
        assert_eq!(taken(TokenRate::new(1, Duration::ZERO, 1), 1), (100, 100));
        let rate = TokenRate::per_second(3, 2);
        assert_eq!((rate.burst(), rate.time_to_fill()), (2, Duration::from_nanos(666_666_667)));
        assert!(TokenRate::per_second(0, 1).time_to_fill() > SECOND * 1_000_000_000);
    }

    #[test]
    fn cores_together_take_no_more_than_the_rate() {
        let shared = SharedTokenBucket::new(TokenRate::per_second(1_000, 5_000));
        let core = || (0..10_000).filter(|_| shared.take(1, Instant::from_ns(SECOND_NS))).count();
        let taken: usize = thread::scope(|scope| {
            let cores: Vec<_> = (0..4).map(|_| scope.spawn(core)).collect();
            cores.into_iter().map(|core| core.join().unwrap()).sum()
        });
        assert_eq!(taken, 5_000);
    }

    proptest! {
        /// Compares with a bucket in exact fractions of 128 bits, which fills up at each take.
        #[test]
        fn a_bucket_never_drifts(rate in rate(), takes in takes()) {
            let [count, period, burst] = [rate.count, rate.period_ns, rate.burst].map(u128::from);
            let (mut bucket, mut now_ns) = (TokenBucket::default(), 0);
            let mut level = burst * period;
            for (step, wanted) in takes {
                now_ns += step;
                level = (level + u128::from(step) * count).min(burst * period);
                let now = Instant::from_ns(now_ns);
                prop_assert_eq!(u128::from(bucket.available(&rate, now)), level / period);
                let cost = u128::from(wanted) * period;
                prop_assert_eq!(bucket.take(&rate, wanted, now), cost <= level);
                level -= if cost <= level { cost } else { 0 };
            }
        }

        /// Compares with a bucket into which the tokens come one by one, at exact times.
        #[test]
        fn a_shared_bucket_never_drifts(rate in rate(), takes in takes()) {
            let (bucket, mut now_ns) = (SharedTokenBucket::new(rate), 0);
            let come_at = |ns: u64| {
                u128::from(ns) * u128::from(rate.count) / u128::from(rate.period_ns)
            };
            let mut level = u128::from(rate.burst);
            for (step, wanted) in takes {
                let come = come_at(now_ns + step) - come_at(now_ns);
                now_ns += step;
                level = (level + come).min(rate.burst.into());
                let wanted_now = u128::from(wanted);
                prop_assert_eq!(bucket.take(wanted, Instant::from_ns(now_ns)), wanted_now <= level);
                level -= if wanted_now <= level { wanted_now } else { 0 };
            }
        }
    }
}
