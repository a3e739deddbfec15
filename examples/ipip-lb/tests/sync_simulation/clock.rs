//! A node's clock, which may be wrong: it may go faster or slower than others, jump, and stop.

use hotloop::testing::Rng;

/// Rates in thousandths: they differ by up to a factor of two.
const RATES: [u64; 4] = [750, 1_000, 1_200, 1_500];

/// Maximum length of a jump or a stop, in milliseconds.
const WRONG_MS_MAX: u64 = 200;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    now_us: u64,
    /// The right time of the last look at it.
    seen_ms: u64,
    rate: u64,
    stopped_until_ms: u64,
}

impl Clock {
    pub const fn right(now_ms: u64) -> Self {
        Self { now_us: now_ms * 1_000, seen_ms: now_ms, rate: 1_000, stopped_until_ms: 0 }
    }

    pub fn wrong(now_ms: u64, rng: &mut Rng) -> Self {
        let now_us = rng.below(1 << 40);
        Self { now_us, rate: RATES[rng.index(RATES.len())], ..Self::right(now_ms) }
    }

    pub const fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }

    /// Makes it go at this rate, in thousandths.
    pub const fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
    }

    /// Looks at the clock.
    pub fn advance(&mut self, now_ms: u64) {
        let since_ms = self.seen_ms.max(self.stopped_until_ms.min(now_ms));
        self.now_us += (now_ms - since_ms) * self.rate;
        self.seen_ms = now_ms;
    }

    /// Makes it jump or stop.
    pub fn disturb(&mut self, rng: &mut Rng) {
        let ms = rng.below(WRONG_MS_MAX);
        match rng.permille(500) {
            true => self.now_us += ms * 1_000,
            false => self.stopped_until_ms = self.seen_ms + ms,
        }
    }
}
