//! Whether a pool is whole.

use super::raw::RawMempool;
use crate::lcore;
use crate::lock::lock;
use std::fmt;
use std::sync::Mutex;

/// What was found in a pool when every mbuf was taken out of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MempoolReport {
    /// How many mbufs belong to it.
    pub expected_count: u32,
    /// How many were found, each counted once.
    pub seen_count: u32,
    /// How many times one was found again: somebody gave it back twice.
    pub duplicate_count: u32,
    /// How many other threads were registered with EAL; their caches may hold what is missing.
    pub other_lcore_count: u32,
}

impl MempoolReport {
    /// Whether every mbuf was there, each once.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.seen_count == self.expected_count && self.duplicate_count == 0
    }
}

impl fmt::Display for MempoolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of its {} mbufs are home, {} of them twice",
            self.seen_count, self.expected_count, self.duplicate_count
        )?;
        if self.other_lcore_count > 0 && self.seen_count < self.expected_count {
            write!(
                f,
                " (caches of {} threads that are still registered could not be looked into)",
                self.other_lcore_count
            )?;
        }
        Ok(())
    }
}

/// Drains the pool, looks at the addresses, and fills it again, each mbuf once.
pub(super) fn read(pool: &RawMempool, expected_count: u32) -> MempoolReport {
    /// Two of these see the pool one after the other.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = lock(&ONE_AT_A_TIME);
    pool.flush_own_cache();
    let mut objects = Vec::with_capacity(expected_count as usize);
    while let Some(object) = pool.take() {
        objects.push(object);
    }
    let taken = objects.len();
    objects.sort_unstable();
    objects.dedup();
    let seen = objects.len();
    for object in objects {
        // SAFETY: 1. It was taken from this pool above. 2. It stands here once: doubles were removed.
        unsafe { pool.put(object) };
    }
    MempoolReport {
        expected_count,
        seen_count: seen as u32,
        duplicate_count: (taken - seen) as u32,
        other_lcore_count: lcore::others_count() as u32,
    }
}
