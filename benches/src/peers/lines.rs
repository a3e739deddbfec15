//! The minimum cost of a lookup in much memory: fetching one random line.

use super::floor::prefetch;
use hotloop::arena::{Arena, ArenaBox, ArenaError};

/// Number of lines in flight at once.
const WINDOW: usize = 64;

type Line = [u64; 8];

/// Lines to fetch at random.
#[derive(Debug)]
pub struct RandomLines {
    lines: ArenaBox<[Line]>,
    random: Random,
}

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
}

impl RandomLines {
    /// Lines of `bytes` in total, in `arena`, which has a page more.
    ///
    /// # Errors
    /// If they don't fit.
    pub fn new(arena: &Arena, bytes: usize) -> Result<Self, ArenaError> {
        let mut lines = arena.boxed_zeroed::<Line>(bytes / size_of::<Line>())?;
        lines.fill([1; 8]);
        Ok(Self { lines, random: Random::seeded(1) })
    }

    /// Fetches `count` lines, 64 at a time, and returns the sum of their first words.
    pub fn fetch(&mut self, count: u64) -> u64 {
        let Self { lines, random } = self;
        let bound = lines.len() as u32;
        let mut sum = 0;
        let mut places = [0; WINDOW];
        for _ in 0..count.div_ceil(WINDOW as u64) {
            for place in &mut places {
                *place = random.below(bound) as usize;
                prefetch(&lines[*place]);
            }
            sum += places.iter().map(|&place| lines[place][2]).sum::<u64>();
        }
        sum
    }
}
