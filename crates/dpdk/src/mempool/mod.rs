//! Mempools: the source of mbufs, to which they return.

mod memory;
mod raw;
mod report;

use crate::lock::{Control, lock};
use crate::mbuf::{HEADROOM_BYTES, Mbuf};
use crate::mbuf_count::{MempoolNeed, MempoolReport};
use crate::{Eal, Error};
use hotloop_dpdk_sys as sys;
use hotloop_stage::Burst;
use raw::RawMempool;
use std::fmt;
use std::sync::{Arc, Mutex};

pub use memory::MempoolMemory;

/// Pools without any handle. A pool is never freed: its mbufs may be anywhere, and even after all
/// were counted, the last one may still be on its way in.
static PARKED: Mutex<Vec<(Shape, RawMempool)>> = Mutex::new(Vec::new());

/// Every pool of the process, in the order in which they were made.
static ALL: Mutex<Vec<(Shape, RawMempool)>> = Mutex::new(Vec::new());

/// The configuration of a mempool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MempoolConfig {
    /// Number of mbufs, at most [`MBUF_COUNT_MAX`](Self::MBUF_COUNT_MAX). One less than a power of
    /// two wastes no memory.
    pub mbuf_count: u32,
    /// The size of each mbuf's buffer in bytes, including the [`HEADROOM_BYTES`], which must be
    /// less.
    pub data_room_bytes: u16,
    /// Number of mbufs that each lcore caches, at most 512 and a third of `mbuf_count`. With DPDK
    /// before 26.07, a cache may hold up to 1.5 times that. With 0, every call takes a lock-free
    /// detour.
    pub cache_count: u32,
    /// The NUMA node of its memory; `None` for any.
    pub node: Option<u32>,
    /// Whether each mbuf must lie in physically contiguous memory, as devices on a bus need it.
    /// Virtual devices don't; otherwise mbufs are packed, which without hugepages is 2.8 times as
    /// fast.
    pub contiguous: bool,
}

impl Default for MempoolConfig {
    /// 8,191 mbufs that each hold a frame of 2,048 bytes, caches of 256, packed, on any node.
    fn default() -> Self {
        Self {
            mbuf_count: 8191,
            data_room_bytes: 2048 + HEADROOM_BYTES,
            cache_count: Self::cache_count_for(false),
            node: None,
            contiguous: false,
        }
    }
}

impl MempoolConfig {
    /// Maximum number of mbufs in a pool: DPDK keeps them in a ring of the next power of two, and
    /// its rings have at most 2^30 slots, and one stays free. Memory ends earlier.
    pub const MBUF_COUNT_MAX: u32 = (1 << 30) - 1;

    /// The default size of caches: 256, or 512 in a pipeline with DPDK 26.07 or later. There, a
    /// cache exchanges half of its size with the pool at a time, so with 256 a thread that only
    /// allocates or only frees would access the pool twice as often (release notes of DPDK 26.07).
    #[must_use]
    pub const fn cache_count_for(is_pipeline: bool) -> u32 {
        let needs_double = is_pipeline && sys::SH_MEMPOOL_REFILLS_HALF == 1;
        if needs_double { 512 } else { 256 }
    }

    fn check(&self) -> Result<(), Error> {
        let problem = if self.mbuf_count == 0 {
            "0 mbufs are wanted: ask for at least 1".into()
        } else if self.mbuf_count > Self::MBUF_COUNT_MAX {
            format!(
                "{} mbufs are wanted: at most {} are possible",
                self.mbuf_count,
                Self::MBUF_COUNT_MAX
            )
        } else if self.data_room_bytes <= HEADROOM_BYTES {
            format!(
                "buffers of {} bytes are wanted, of which {HEADROOM_BYTES} are headroom: ask for \
                 more, 2176 for frames of up to 2048 bytes",
                self.data_room_bytes
            )
        } else if self.cache_count > sys::SH_MEMPOOL_CACHE_MAX.min(self.mbuf_count / 3) {
            format!(
                "caches of {} mbufs are wanted in a pool of {}: at most {} are possible, and at \
                 most a third of the pool",
                self.cache_count,
                self.mbuf_count,
                sys::SH_MEMPOOL_CACHE_MAX
            )
        } else {
            return Ok(());
        };
        Err(Error::MempoolConfig { problem })
    }
}

/// Pools of equal shape are interchangeable.
type Shape = MempoolConfig;

/// A handle of a pool of mbufs. A pool may have many handles.
///
/// Every method may be called from any thread; threads registered with EAL
/// ([`lcore::register`](crate::lcore::register)) have a cache of their own and are twice as fast.
/// When the last handle is dropped, the pool is kept for the next request of the same shape: its
/// memory is never freed, so mbufs may outlive every handle.
///
/// ```
/// use hotloop_dpdk::{Eal, Mempool, MempoolConfig};
/// use hotloop_packet::PacketBuf;
///
/// let pool = Mempool::new(Eal::embedded()?, &MempoolConfig::default())?;
/// let mut mbuf = pool.alloc().expect("a fresh pool is full");
/// mbuf.append(4)?.copy_from_slice(b"ping");
/// assert_eq!(mbuf.data(), b"ping");
/// assert!(!pool.report().is_whole());
/// drop(mbuf);
/// assert!(pool.report().is_whole());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Mempool(Arc<Owned>);

/// A pool that has handles.
struct Owned {
    shape: Shape,
    raw: RawMempool,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // No other thread could flush it while this one lives.
        self.raw.flush_own_cache();
        lock(&PARKED).push((self.shape, self.raw));
    }
}

impl Mempool {
    /// A pool with this configuration: a parked one if it is whole, else a new one.
    ///
    /// # Errors
    /// [`Error::MempoolConfig`] for an impossible configuration, [`Error::MempoolCreate`] if EAL's
    /// memory does not suffice.
    pub fn new(eal: Eal, config: &MempoolConfig) -> Result<Self, Error> {
        let _ = eal;
        config.check()?;
        Self::unpark_or_create(&mut Control::lock()?, config, |parked| parked == config)
    }

    /// [`new`](Self::new) for a port, which may also return a larger parked pool: a port's need
    /// depends on the ports beside it, so hardly any two would be alike.
    pub(crate) fn at_least(control: &mut Control, config: &MempoolConfig) -> Result<Self, Error> {
        config.check()?;
        Self::unpark_or_create(control, config, |parked| {
            parked.mbuf_count >= config.mbuf_count
                && *config == Shape { mbuf_count: config.mbuf_count, ..*parked }
        })
    }

    fn unpark_or_create(
        control: &mut Control,
        config: &MempoolConfig,
        fits: impl Fn(&Shape) -> bool,
    ) -> Result<Self, Error> {
        let owned = match unpark(fits) {
            Some((shape, raw)) => Owned { shape, raw },
            None => {
                let raw = RawMempool::create(control, config)?;
                lock(&ALL).push((*config, raw));
                Owned { shape: *config, raw }
            }
        };
        Ok(Self(Arc::new(owned)))
    }

    /// One mbuf without data, or `None` if the pool is empty.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> Option<Mbuf> {
        self.0.raw.alloc()
    }

    /// Appends `count` mbufs without data to `burst`, and returns whether it did: all or none. Nothing
    /// if the pool has fewer, or if the burst has less [room](Burst::room).
    #[inline]
    pub fn alloc_burst(&self, burst: &mut Burst<Mbuf>, count: usize) -> bool {
        self.0.raw.alloc_burst(burst, count)
    }

    /// The pool's configuration.
    #[must_use]
    pub fn config(&self) -> &MempoolConfig {
        &self.0.shape
    }

    /// Checks that the pool is large enough for all holders of its mbufs.
    ///
    /// # Errors
    /// [`Error::MempoolTooSmall`] with the sum.
    pub fn require(&self, need: &MempoolNeed) -> Result<(), Error> {
        let found = self.config().mbuf_count;
        if need.mbuf_count() > found as usize {
            return Err(Error::MempoolTooSmall { found, need: *need });
        }
        Ok(())
    }

    /// Takes every mbuf out of the pool, checks each one's address, and puts them back.
    ///
    /// Mbufs that other threads hold are missing from the report, as are those in the caches of
    /// other registered threads. A thread's end flushes its cache, so read the report after joining
    /// the threads that used the pool, with `JoinHandle::join` or `ScopedJoinHandle::join`: the end
    /// of a scope does not wait for a thread's registration to end. During this call, other threads
    /// find the pool empty.
    #[must_use]
    pub fn report(&self) -> MempoolReport {
        report::read(&self.0.raw, self.config().mbuf_count)
    }

    /// The pool's memory.
    #[must_use]
    pub fn memory(&self) -> MempoolMemory {
        self.0.raw.memory()
    }

    /// DPDK's mempool, for DPDK functions that this crate does not have. It lives as long as the
    /// process.
    #[must_use]
    pub fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.0.raw.as_ptr()
    }
}

impl fmt::Debug for Mempool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mempool").field(self.config()).finish()
    }
}

/// The fill level of a mempool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MempoolLevel {
    /// Number of mbufs in the pool.
    pub mbuf_count: u32,
    /// Number of mbufs not in use, including those in lcores' caches, which only their threads can
    /// allocate. Not exact while others use the pool.
    pub free_count: u32,
    /// How often [`Mempool::alloc`] and [`Mempool::alloc_burst`] found too few. Devices count their
    /// own failures in `rx_nombuf`.
    pub failed_count: u64,
}

/// The fill level of each mempool of the process, in the order of [`mempools`]. For the control
/// thread: it reads the cache of every lcore.
#[must_use]
pub fn mempool_levels() -> Vec<MempoolLevel> {
    let level = |(shape, raw): &(Shape, RawMempool)| MempoolLevel {
        mbuf_count: shape.mbuf_count,
        free_count: raw.free_count().min(shape.mbuf_count),
        failed_count: raw.failed_count(),
    };
    lock(&ALL).iter().map(level).collect()
}

/// Every mempool of the process, including those without handles, with the memory of each. For the
/// control thread: it makes system calls.
#[must_use]
pub fn mempools() -> Vec<(MempoolConfig, MempoolMemory)> {
    lock(&ALL).iter().map(|(shape, raw)| (*shape, raw.memory())).collect()
}

/// The smallest parked pool that fits and has all its mbufs. A pool that lacks some stays parked:
/// they may still come back.
fn unpark(fits: impl Fn(&Shape) -> bool) -> Option<(Shape, RawMempool)> {
    let mut parked = lock(&PARKED);
    parked.sort_by_key(|(shape, _)| shape.mbuf_count);
    let index = parked
        .iter()
        .position(|(shape, raw)| fits(shape) && report::read(raw, shape.mbuf_count).is_whole())?;
    Some(parked.swap_remove(index))
}

/// Flushes the calling thread's caches into their pools.
pub(crate) fn flush_own_caches() {
    lock(&ALL).iter().for_each(|(_, raw)| raw.flush_own_cache());
}
