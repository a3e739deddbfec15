//! The minimum cost of a lookup in much memory: fetching one random line.

use super::floor::prefetch;
use hotloop::arena::{Arena, ArenaBox, ArenaError};
use hotloop_measure::random::Random;

/// Number of lines in flight at once.
const WINDOW: usize = 64;

type Line = [u64; 8];

/// Lines to fetch at random.
#[derive(Debug)]
pub struct RandomLines {
    lines: ArenaBox<[Line]>,
    random: Random,
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
