//! Checks whether a pool is whole.

use super::raw::RawMempool;
use crate::lcore_id;
use crate::lock::lock;
use crate::mbuf_count::MempoolReport;
use std::sync::Mutex;

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
        other_lcore_count: lcore_id::others_count() as u32,
    }
}
