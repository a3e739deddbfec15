//! Counts of a pool's mbufs: how many it needs, and how many are there.

use std::fmt;

/// The holders of a pool's mbufs at the same time.
///
/// ```
/// let need = hotloop_dpdk::MempoolNeed {
///     rx_descriptor_count: 1024,
///     tx_descriptor_count: 2048,
///     in_flight_count: 4096,
///     thread_count: 3,
///     cache_count: 256,
/// };
/// assert_eq!(need.mbuf_count(), 8320);
/// assert_eq!(
///     need.to_string(),
///     "1024 RX descriptors + 2048 TX descriptors + 4096 in rings, bursts and stages \
///      + 3 threads x 1.5 x 256 in caches = 8320"
/// );
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MempoolNeed {
    /// RX descriptors of the queues that the pool fills.
    pub rx_descriptor_count: usize,
    /// TX descriptors of every queue that the pool's mbufs may be sent to.
    pub tx_descriptor_count: usize,
    /// Packets that may be between queues: in rings, in bursts, held by stages.
    pub in_flight_count: usize,
    /// Threads that allocate mbufs from the pool or free them.
    pub thread_count: usize,
    /// The size of each thread's cache, which DPDK before 26.07 may exceed by half.
    pub cache_count: u32,
}

impl MempoolNeed {
    /// The sum; `usize::MAX` on overflow.
    #[must_use]
    pub const fn mbuf_count(&self) -> usize {
        let caches = self.thread_count.saturating_mul(3).saturating_mul(self.cache_count as usize);
        self.rx_descriptor_count
            .saturating_add(self.tx_descriptor_count)
            .saturating_add(self.in_flight_count)
            .saturating_add(caches.div_ceil(2))
    }
}

impl fmt::Display for MempoolNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} RX descriptors + {} TX descriptors + {} in rings, bursts and stages + {} threads x \
             1.5 x {} in caches = {}",
            self.rx_descriptor_count,
            self.tx_descriptor_count,
            self.in_flight_count,
            self.thread_count,
            self.cache_count,
            self.mbuf_count()
        )
    }
}

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
