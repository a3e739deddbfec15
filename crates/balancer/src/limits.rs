//! Limits on new connections: token buckets, one for each service that has a limit, and one for
//! each prefix that connections come from. Uses atomics, no lock. All workers together stay within
//! a service's limit.
//!
//! The buckets are the only state that workers share, since a limit per second holds for all
//! workers together, however clients are spread over them. A worker writes to a bucket only when a
//! connection begins and the limit allows it; a refused connection only reads. An attack therefore
//! moves these cache lines between cores no more often than the limits allow.
//!
//! In a replay workers have no common time, as each runs at the time of its packets: there they
//! take from buckets in the order of the capture ([`crate::capture_order`]).
//!
//! A bucket is one number, the time at which it is full again (the "theoretical arrival time" of
//! the generic cell rate algorithm, ITU-T I.371): a connection adds an interval to it, and may
//! begin if it is no more than a second away. Connections up to the limit may therefore begin at
//! once, and on average no more than the limit in each second: in the first second of a burst,
//! twice the limit.
//!
//! A [`SharedTokenBucket`](hotloop::stage::SharedTokenBucket) owns its rate, and its number counts
//! tokens of that rate. A bucket here outlives its rate, so that a reload with another limit doesn't
//! refill it; and a connection compares four of a prefix's buckets before it raises any.

use crate::address::{mask_v4, mask_v6};
use crate::maglev::mixed;
use crate::spec;
use hotloop::stage::Instant;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest limit: above it, intervals in whole nanoseconds would be off by more than 1 %.
pub const LIMIT_MAX: u32 = 10_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// The reason that a connection may not begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// Too many connections begin from the client's prefix.
    Source,
    /// Too many connections begin to the service.
    Service,
}

/// A number of connections per second.
#[derive(Clone, Copy, Debug)]
struct Rate {
    interval_ns: u64,
    /// The maximum distance of a bucket's time from now.
    ahead_ns: u64,
}

impl Rate {
    fn per_second(limit: u32) -> Self {
        let interval_ns = SECOND_NS.div_ceil(limit.max(1).into());
        Self { interval_ns, ahead_ns: interval_ns * u64::from(limit.saturating_sub(1)) }
    }

    /// The bucket's time after one more connection; `None` if it may not begin now.
    #[inline]
    fn next(self, full: u64, now: Instant) -> Option<u64> {
        let now = now.as_ns();
        (full <= now.saturating_add(self.ahead_ns))
            .then(|| full.max(now).saturating_add(self.interval_ns))
    }
}

/// When a bucket is full again, in nanoseconds of the workers' clocks. In its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket(AtomicU64);

/// The limit of a service.
#[derive(Clone, Debug)]
pub struct ServiceLimit {
    bucket: Arc<Bucket>,
    rate: Rate,
}

impl ServiceLimit {
    /// Whether one more connection to the service may begin now; if so, it is counted.
    #[must_use]
    pub fn admits(&self, now: Instant) -> bool {
        // Relaxed: no other data depends on the number. Each failed attempt is another worker's
        // successful one.
        let next = |full| self.rate.next(full, now);
        self.bucket.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// Number of buckets per prefix: it is limited only if all of them are empty.
const ROW_COUNT: usize = 4;

/// Base-2 logarithm of the number of buckets in each row.
const ROW_BITS: u32 = 15;

const ROW_LEN: usize = 1 << ROW_BITS;

/// The buckets of all prefixes: [`ROW_COUNT`] rows. In each row, a secret hash selects one bucket
/// for a prefix, which shares it with others. 1 MiB, however many prefixes there are.
struct Sketch {
    buckets: Box<[AtomicU64]>,
    seeds: [u64; 2],
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sketch(..)")
    }
}

impl Sketch {
    fn new(seeds: [u64; 2]) -> Self {
        let buckets = (0..ROW_COUNT * ROW_LEN).map(|_| AtomicU64::new(0)).collect();
        Self { buckets, seeds }
    }

    #[inline]
    fn of(&self, [high, low]: [u64; 2]) -> [&AtomicU64; ROW_COUNT] {
        let hash = mixed(mixed(high ^ self.seeds[0]) ^ low ^ self.seeds[1]);
        std::array::from_fn(|row| {
            let index = (hash >> (row as u32 * ROW_BITS)) as usize % ROW_LEN;
            &self.buckets[row * ROW_LEN + index]
        })
    }
}

/// The limit of each prefix that connections come from.
///
/// A prefix shares its buckets with others. The fullest of its four buckets counts, and each is
/// raised no further than the connection asks for (a count-min sketch with conservative update).
/// The error is one-sided: sharing can make a prefix's limit lower, never higher, except that
/// several workers which look at the same moment may each let one pass. A prefix with few
/// connections is limited if prefixes at their limits have all four of its buckets: with `n` of
/// these, the probability is (1 − e^(−n/32,768))⁴, which is one in a million for 1,000 and one in
/// two hundred for 10,000. Spoofed sources in great number limit everyone once they exceed 32,768
/// times the limit.
#[derive(Clone, Debug)]
pub struct SourceLimit {
    sketch: Arc<Sketch>,
    rate: Rate,
    mask_v4: u32,
    mask_v6: u128,
}

impl SourceLimit {
    /// Whether one more connection from the prefix of `source` may begin now; if so, it is counted.
    #[must_use]
    pub fn admits(&self, source: IpAddr, now: Instant) -> bool {
        let buckets = self.sketch.of(self.key(source));
        let full = buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).min().unwrap_or(0);
        let Some(next) = self.rate.next(full, now) else { return false };
        for bucket in buckets {
            bucket.fetch_max(next, Ordering::Relaxed);
        }
        true
    }

    /// The prefix as numbers, different ones for each IP version: no host is in
    /// ffff:ffff:ffff:ffff::/64.
    fn key(&self, source: IpAddr) -> [u64; 2] {
        match source {
            IpAddr::V4(source) => [u64::MAX, (source.to_bits() & self.mask_v4).into()],
            IpAddr::V6(source) => {
                let bits = source.to_bits() & self.mask_v6;
                [(bits >> 64) as u64, bits as u64]
            }
        }
    }
}

/// The existing buckets, which outlast service tables: a reload does not refill them.
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    /// The bucket of each service number.
    services: HashMap<u32, Arc<Bucket>>,
    sketch: Option<Arc<Sketch>>,
    /// The seeds of the sketch, unless they are random.
    seeds: Option<[u64; 2]>,
}

impl Buckets {
    /// Buckets that the same prefixes share in every run: for replays, which have no attacker.
    #[must_use]
    pub fn repeatable() -> Self {
        Self { seeds: Some([0, 1]), ..Self::default() }
    }

    /// The limit of the service with this number.
    #[must_use]
    pub fn service(&mut self, id: u32, limit: u32) -> ServiceLimit {
        let bucket = Arc::clone(self.services.entry(id).or_default());
        ServiceLimit { bucket, rate: Rate::per_second(limit) }
    }

    /// The limit of each prefix that connections come from, if there is one.
    #[must_use]
    pub fn sources(&mut self, limits: &spec::Limits) -> Option<SourceLimit> {
        let limit = limits.source_max?;
        let random = || [(); 2].map(|()| RandomState::new().build_hasher().finish());
        let seeds = self.seeds.unwrap_or_else(random);
        let sketch = self.sketch.get_or_insert_with(|| Arc::new(Sketch::new(seeds)));
        Some(SourceLimit {
            sketch: Arc::clone(sketch),
            rate: Rate::per_second(limit),
            mask_v4: mask_v4(limits.source_prefix_v4),
            mask_v6: mask_v6(limits.source_prefix_v6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::thread;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_ns(1_000 * SECOND_NS + ms * 1_000_000)
    }

    fn limits(source_max: u32) -> spec::Limits {
        spec::Limits {
            service_max: None,
            source_max: Some(source_max),
            source_prefix_v4: 24,
            source_prefix_v6: 64,
        }
    }

    #[test]
    fn as_many_as_the_limit_begin_at_once_and_then_one_an_interval() {
        for limit in [1, 2, 7, 1000, LIMIT_MAX] {
            let of = Buckets::default().service(0, limit);
            let count = |now| (0..=limit).take_while(|_| of.admits(now)).count() as u32;
            assert_eq!(count(at_ms(0)), limit);
            assert_eq!(count(at_ms(0)), 0);
            let half = count(at_ms(500));
            assert!(half <= limit / 2 && half + 1 >= limit / 2, "{half} of {limit}");
            // Unused capacity is lost after a second.
            assert_eq!(count(at_ms(60_000)), limit);
        }
    }

    #[test]
    fn a_service_keeps_its_bucket_when_its_limit_changes() {
        let mut buckets = Buckets::default();
        let before = buckets.service(3, 10);
        assert!((0..10).all(|_| before.admits(at_ms(0))));
        assert!(!buckets.service(3, 10).admits(at_ms(1)));
        assert!(buckets.service(4, 10).admits(at_ms(1)), "another's");
    }

    #[test]
    fn workers_together_let_no_more_pass_than_the_limit() {
        let of = Buckets::default().service(0, 5000);
        let passed: usize = thread::scope(|scope| {
            let worker = || (0..10_000).filter(|_| of.admits(at_ms(0))).count();
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(passed, 5000);
    }

    #[test]
    fn a_prefix_has_one_limit_and_its_neighbours_have_their_own() {
        let of = Buckets::default().sources(&limits(10)).unwrap();
        let admits = |source: &str| of.admits(source.parse().unwrap(), at_ms(0));
        for (one, another) in
            [("198.51.100", "198.51.101.1"), ("2001:db8:0:7:", "2001:db8:0:8::1"), ("0.0.0", "::1")]
        {
            let separator = if one.ends_with(':') { ":" } else { "." };
            let hosts = (0..20).map(|host| format!("{one}{separator}{host}"));
            assert_eq!(hosts.filter(|host| admits(host)).count(), 10, "{one}");
            assert!(admits(another));
        }
    }

    /// Checks the bound in the documentation, and the side of the error.
    #[test]
    fn few_prefixes_are_limited_by_what_others_do_and_none_passes_its_limit() {
        let of = Buckets::default().sources(&limits(5)).unwrap();
        let source = |number: u32| IpAddr::from(Ipv4Addr::from_bits(number << 8));
        let attackers = 0..10_000;
        let mut most = 0;
        for round in 0..40 {
            for number in attackers.clone() {
                let passed = (0..20).filter(|_| of.admits(source(number), at_ms(round * 25)));
                most = most.max(passed.count());
            }
        }
        assert!(most <= 5, "{most} at once");
        let honest = 100_000..200_000;
        let limited = honest.filter(|number| !of.admits(source(*number), at_ms(1000))).count();
        // Half a per cent by the formula, as long as the honest prefixes fill no bucket themselves.
        assert!(limited < 3_000, "{limited} of 100,000");
    }
}
