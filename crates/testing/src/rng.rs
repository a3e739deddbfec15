//! The random number generator for everything seeded here.

/// SplitMix64: 64 bits of state, a period of 2^64, the same numbers for the same seed on every
/// machine. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with numbers that depend only on `seed`.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, uniform to within one part in 2^64 / `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// An index into something of `len` items.
    ///
    /// # Panics
    /// If `len` is 0.
    pub const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True `permille` times in a thousand.
    pub const fn permille(&mut self, permille: u32) -> bool {
        self.below(1000) < permille as u64
    }

    /// Another generator, independent of this one's next numbers.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self(self.next_u64() ^ 0x6a09_e667_f3bc_c909)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_numbers_of_seed_1234567() {
        let mut rng = Rng::seeded(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn numbers_below_a_bound_reach_all_of_it() {
        let mut rng = Rng::seeded(1);
        let mut counts = [0_u32; 7];
        for _ in 0..7000 {
            counts[rng.index(7)] += 1;
        }
        assert!(counts.iter().all(|&count| (800..1200).contains(&count)), "{counts:?}");
    }

    #[test]
    fn permille_is_a_share_of_a_thousand() {
        let mut rng = Rng::seeded(2);
        let count = (0..100_000).filter(|_| rng.permille(250)).count();
        assert!((24_000..26_000).contains(&count), "{count}");
        assert!((0..1000).all(|_| !rng.permille(0)));
        assert!((0..1000).all(|_| rng.permille(1000)));
    }

    #[test]
    fn a_fork_yields_other_numbers() {
        let mut rng = Rng::seeded(3);
        let mut fork = rng.fork();
        assert_ne!(rng.next_u64(), fork.next_u64());
    }
}
