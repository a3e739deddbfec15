//! The low-water mark of each mempool: the fewest free mbufs that were seen while the program ran.

use hotloop_dpdk::mempool_levels;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// How often mempools are looked at.
const INTERVAL: Duration = Duration::from_millis(100);

thread_local! {
    /// By mempool, in the order in which they were made, as this control thread has seen them.
    static LOWEST: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Looks at mempools, again and again.
#[derive(Debug)]
pub(super) struct Pools {
    due: Instant,
}

impl Pools {
    /// What was seen in an earlier run doesn't count.
    pub(super) fn new() -> Self {
        LOWEST.with_borrow_mut(Vec::clear);
        Self { due: Instant::now() }
    }

    /// Looks, where it is time to.
    pub(super) fn turn(&mut self) {
        let now = Instant::now();
        if now >= self.due {
            self.due = now + INTERVAL;
            let free: Vec<_> = mempool_levels().into_iter().map(|level| level.free_count).collect();
            LOWEST.with_borrow_mut(|lowest| lower(lowest, &free));
        }
    }
}

/// The fewest free mbufs of each mempool, in the order of `hotloop_dpdk::mempools`, up to the last that
/// was looked at.
pub(crate) fn lowest_free() -> Vec<u32> {
    LOWEST.with_borrow(Clone::clone)
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
