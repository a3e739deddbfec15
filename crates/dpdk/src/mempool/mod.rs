//! Mempools: where mbufs come from and go back to.

mod memory;
mod raw;
mod report;
mod size;

use crate::lock::{Control, lock};
use crate::{Eal, Error, Mbuf};
use hotloop_dpdk_sys as sys;
use hotloop_stage::Burst;
use raw::RawMempool;
use std::fmt;
use std::sync::{Arc, Mutex};

pub use memory::MempoolMemory;
pub use report::MempoolReport;
pub use size::MempoolNeed;

/// Bytes before a packet's data that a fresh mbuf leaves free: `RTE_PKTMBUF_HEADROOM`.
pub const HEADROOM_BYTES: u16 = sys::SH_PKTMBUF_HEADROOM as u16;

/// Pools that nobody has a handle of. A pool is never freed: an mbuf of it may be anywhere, and the
/// last one to come home may still be on its way in when it is counted.
static PARKED: Mutex<Vec<(Shape, RawMempool)>> = Mutex::new(Vec::new());

/// Every pool of the process, in the order in which they were made.
static ALL: Mutex<Vec<(Shape, RawMempool)>> = Mutex::new(Vec::new());

/// What a mempool is to be like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MempoolConfig {
    /// How many mbufs it holds, at most [`MBUF_COUNT_MAX`](Self::MBUF_COUNT_MAX). One less than a
    /// power of two wastes no memory.
    pub mbuf_count: u32,
    /// The size of each mbuf's buffer in bytes, [`HEADROOM_BYTES`] included, which are fewer.
    pub data_room_bytes: u16,
    /// How many mbufs each lcore keeps to itself, at most 512 and a third of `mbuf_count`; with DPDK before 26.07, up to
    /// half as many again may be there at times. 0 makes every call take a lock-free detour.
    pub cache_count: u32,
    /// The NUMA node whose memory it takes; any, where it is `None`.
    pub node: Option<u32>,
    /// Whether each mbuf must lie in physically contiguous memory, as devices on a bus need it.
    /// Virtual devices don't; without it, mbufs are packed, which without hugepages is 2.8 times
    /// as fast.
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
    /// The most mbufs that a pool can have: DPDK keeps them in a ring of the next power of two, and
    /// its rings have at most 2^30 slots, of which one stays free. Memory ends earlier.
    pub const MBUF_COUNT_MAX: u32 = (1 << 30) - 1;

    /// The size that caches have by default: 256, or 512 in a pipeline with DPDK 26.07 or later. There, a cache takes
    /// from the pool, or gives back to it, half of its size at a time, so that a thread that does only one of
    /// both would turn to the pool twice as often (release notes of DPDK 26.07).
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

/// What makes one pool as good as another.
type Shape = MempoolConfig;

/// A pool of mbufs: a handle, of which there may be many.
///
/// Every method may be called from any thread; those that are registered with EAL
/// ([`lcore::register`](crate::lcore::register)) have a cache of their own and are twice as fast.
/// When the last handle is dropped, the pool is kept for the next one of the same shape: its memory
/// is never freed, so that mbufs may outlive every handle.
///
/// ```
/// use hotloop_dpdk::{Eal, Mempool, MempoolConfig, PacketBuf};
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

/// A pool while there are handles.
struct Owned {
    shape: Shape,
    raw: RawMempool,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Nobody else could, while this thread lives.
        self.raw.flush_own_cache();
        lock(&PARKED).push((self.shape, self.raw));
    }
}

impl Mempool {
    /// A pool as `config` says: one that is parked, where it is whole, else a new one.
    ///
    /// # Errors
    /// [`Error::MempoolConfig`] for a configuration that cannot be, [`Error::MempoolCreate`] where
    /// EAL's memory does not suffice.
    pub fn new(eal: Eal, config: &MempoolConfig) -> Result<Self, Error> {
        let _ = eal;
        config.check()?;
        Self::unpark_or_create(&mut Control::lock()?, config, |parked| parked == config)
    }

    /// As [`new`](Self::new), or a larger pool where one is parked, for a port: what it needs
    /// depends on the ports beside it, so that hardly two pools would be alike.
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

    /// One mbuf without data, or `None` where the pool is empty.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> Option<Mbuf> {
        self.0.raw.alloc()
    }

    /// Puts `count` mbufs without data at the end of `burst`, and says whether it did: all or none.
    /// None, where the pool has fewer, or the burst less [room](Burst::room).
    #[inline]
    pub fn alloc_burst(&self, burst: &mut Burst<Mbuf>, count: usize) -> bool {
        self.0.raw.alloc_burst(burst, count)
    }

    /// What it was made as.
    #[must_use]
    pub fn config(&self) -> &MempoolConfig {
        &self.0.shape
    }

    /// Checks that the pool is large enough for what will hold mbufs of it.
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

    /// Takes every mbuf out of the pool, looks at each one's address, and puts them back.
    ///
    /// What other threads have is missing: what they hold, and what is in the cache of one that is
    /// registered with EAL. A cache is emptied when its thread ends. So the report is read after the
    /// threads that used the pool were joined, by `JoinHandle::join` or `ScopedJoinHandle::join`: the
    /// end of a scope does not wait for a thread's registration to end. While it runs, others find
    /// the pool empty.
    #[must_use]
    pub fn report(&self) -> MempoolReport {
        report::read(&self.0.raw, self.config().mbuf_count)
    }

    /// What memory it got.
    #[must_use]
    pub fn memory(&self) -> MempoolMemory {
        self.0.raw.memory()
    }

    /// DPDK's mempool, for functions of DPDK's that this crate does not have. It lives as long as
    /// the process.
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

/// How full a mempool is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MempoolLevel {
    /// How many mbufs it has.
    pub mbuf_count: u32,
    /// How many of them nobody uses: those in caches of lcores too, which only their threads can get.
    /// While others use the pool it is no exact count.
    pub free_count: u32,
    /// How often [`Mempool::alloc`] and [`Mempool::alloc_burst`] found too few. What devices found is
    /// counted by them, as `rx_nombuf`.
    pub failed_count: u64,
}

/// How full each mempool of the process is, in the order of [`mempools`]. For the control thread: it
/// looks at the cache of every lcore.
#[must_use]
pub fn mempool_levels() -> Vec<MempoolLevel> {
    let level = |(shape, raw): &(Shape, RawMempool)| MempoolLevel {
        mbuf_count: shape.mbuf_count,
        free_count: raw.free_count().min(shape.mbuf_count),
        failed_count: raw.failed_count(),
    };
    lock(&ALL).iter().map(level).collect()
}

/// Every mempool of the process, those that nobody has a handle of too, with what memory each got. For
/// the control thread: it makes system calls.
#[must_use]
pub fn mempools() -> Vec<(MempoolConfig, MempoolMemory)> {
    lock(&ALL).iter().map(|(shape, raw)| (*shape, raw.memory())).collect()
}

/// The smallest parked pool that fits and has all its mbufs home. One that lacks some stays
/// parked: they may come home yet.
fn unpark(fits: impl Fn(&Shape) -> bool) -> Option<(Shape, RawMempool)> {
    let mut parked = lock(&PARKED);
    parked.sort_by_key(|(shape, _)| shape.mbuf_count);
    let index = parked
        .iter()
        .position(|(shape, raw)| fits(shape) && report::read(raw, shape.mbuf_count).is_whole())?;
    Some(parked.swap_remove(index))
}

/// Puts what the calling thread's caches hold into their pools.
pub(crate) fn flush_own_caches() {
    lock(&ALL).iter().for_each(|(_, raw)| raw.flush_own_cache());
}
