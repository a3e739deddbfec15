//! Checks whether a pool is whole.

use super::raw::RawMempool;
use crate::lcore;
use crate::lock::lock;
use std::fmt;
use std::sync::Mutex;

/// The result of taking every mbuf out of a pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MempoolReport {
    /// Number of mbufs that belong to the pool.
    pub expected_count: u32,
    /// Number of different mbufs found.
    pub seen_count: u32,
    /// Number of duplicates found: mbufs that somebody gave back twice.
    pub duplicate_count: u32,
    /// Number of other threads registered with EAL, whose caches may hold missing mbufs.
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

/// Drains the pool, checks the addresses, and fills it again, with each mbuf once.
pub(super) fn read(pool: &RawMempool, expected_count: u32) -> MempoolReport {
    /// Two concurrent reports would take mbufs from each other.
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
        // SAFETY: 1. It was taken from this pool above. 2. It occurs here once: duplicates were
        // removed.
        unsafe { pool.put(object) };
    }
    MempoolReport {
        expected_count,
        seen_count: seen as u32,
        duplicate_count: (taken - seen) as u32,
        other_lcore_count: lcore::others_count() as u32,
    }
}
