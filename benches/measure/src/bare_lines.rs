//! The minimum of communication between two cores: a cache line that goes back and forth.

use crate::cores::Pair;
use crossbeam_utils::CachePadded;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

/// Two lines, each written by one core and read by the other.
#[derive(Debug, Default)]
pub struct BareLines {
    there: CachePadded<AtomicU64>,
    back: CachePadded<AtomicU64>,
}

impl BareLines {
    /// The time of `count` one-way trips, half of them in each direction.
    #[must_use]
    pub fn trips(&self, pair: Pair, count: u64) -> Duration {
        let round_trips = (count / 2).max(1);
        let start = self.there.load(Acquire);
        let echo = move || {
            for number in start + 1..=start + round_trips {
                while self.there.load(Acquire) != number {}
                self.back.store(number, Release);
            }
        };
        let call = || {
            for number in start + 1..=start + round_trips {
                self.there.store(number, Release);
                while self.back.load(Acquire) != number {}
            }
        };
        pair.run(echo, call).mul_f64(count as f64 / (2 * round_trips) as f64)
    }
}
