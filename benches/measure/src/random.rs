//! Cheap random numbers, the same in every run.

/// A cheap random number generator.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    #[inline(always)]
    pub const fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let product = (self.0 as u128).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let bits = (product >> 64) as u64 ^ product as u64;
        (((bits >> 32) * bound as u64) >> 32) as u32
    }

    /// The numbers below `count`, each once, in random order.
    #[must_use]
    pub fn shuffled(&mut self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<_> = (0..count).collect();
        for last in (1..count).rev() {
            numbers.swap(last as usize, self.below(last + 1) as usize);
        }
        numbers
    }
}
