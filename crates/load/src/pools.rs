//! The mempools' figures, with the low-water mark of each: the fewest free mbufs seen while the
//! program ran.

use hotloop_dpdk::{MempoolLevel, MempoolMemory, mempool_levels, mempools};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// How often to sample the mempools.
const INTERVAL: Duration = Duration::from_millis(100);

thread_local! {
    /// The mark of each mempool, in the order of their creation, as this control thread has seen
    /// it.
    static LOWEST: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Samples the mempools regularly.
#[derive(Debug)]
pub struct Pools {
    due: Instant,
}

impl Pools {
    /// Forgets the marks of an earlier run.
    pub fn new() -> Self {
        LOWEST.with_borrow_mut(Vec::clear);
        Self { due: Instant::now() }
    }

    /// Samples the mempools, if it is time to.
    pub fn turn(&mut self) {
        let now = Instant::now();
        if now >= self.due {
            self.due = now + INTERVAL;
            let free: Vec<_> = mempool_levels().into_iter().map(|level| level.free_count).collect();
            LOWEST.with_borrow_mut(|lowest| lower(lowest, &free));
        }
    }
}

/// A mempool of this process.
#[derive(Clone, Copy, Debug)]
pub struct MempoolFigures {
    /// Its current fill level.
    pub level: MempoolLevel,
    /// The fewest free mbufs that this thread's [`Loads`](crate::Loads) have seen, or sees now.
    pub free_min: u32,
    /// Its memory.
    pub memory: MempoolMemory,
}

/// Reads the figures of each mempool, in the order of [`mempools`].
#[must_use]
pub fn mempool_figures() -> Vec<MempoolFigures> {
    let lowest = LOWEST.with_borrow(Clone::clone);
    // Mempools that were never sampled are missing at the end.
    let lowest = lowest.into_iter().chain(std::iter::repeat(u32::MAX));
    let pools = mempools().into_iter().zip(mempool_levels()).zip(lowest);
    let figures = pools.map(|(((_, memory), level), lowest)| MempoolFigures {
        level,
        free_min: lowest.min(level.free_count),
        memory,
    });
    figures.collect()
}

fn lower(lowest: &mut Vec<u32>, free: &[u32]) {
    lowest.resize(free.len(), u32::MAX);
    lowest.iter_mut().zip(free).for_each(|(lowest, free)| *lowest = (*lowest).min(*free));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_each_is_kept() {
        let mut lowest = Vec::new();
        for free in [&[9][..], &[4, 7], &[6, 3], &[5, 8, 2]] {
            lower(&mut lowest, free);
        }
        assert_eq!(lowest, [4, 3, 2]);
    }
}
