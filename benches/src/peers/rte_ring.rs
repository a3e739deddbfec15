//! DPDK's ring, single producer and single consumer, in loops of C.

use hotloop::dpdk::Eal;
use std::ffi::{CString, c_char, c_uint};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The largest burst that the loops in C have room for.
const BATCH_MAX: u32 = 64;

#[repr(C)]
struct RawRing {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn peer_ring_create(name: *const c_char, slots: c_uint) -> *mut RawRing;
    fn peer_ring_free(ring: *mut RawRing);
    fn peer_ring_produce(ring: *mut RawRing, count: u64, batch: c_uint);
    fn peer_ring_consume(ring: *mut RawRing, count: u64, batch: c_uint) -> u64;
}

/// A ring of DPDK's, by what frees it.
#[derive(Debug)]
struct Ring(NonNull<RawRing>);

/// Its end that sends.
#[derive(Debug)]
pub struct Producer(Arc<Ring>);

/// Its end that receives.
#[derive(Debug)]
pub struct Consumer(Arc<Ring>);

// SAFETY: 1. rte_ring.h: a ring may be used from any thread, with one at a time that produces and one
// that consumes. 2. `ring` makes one end of each kind, neither is `Clone`, and both work through
// `&mut self`.
unsafe impl Sync for Ring {}

// SAFETY: nothing of a ring, freeing it included, is bound to a thread.
unsafe impl Send for Ring {}

/// A ring of `slots` slots, as DPDK's programs make them: one slot stays empty. (A ring of exact size
/// would have twice the slots, and twice the memory to move.)
///
/// # Errors
/// Where DPDK has no memory for it, or `slots` is no power of two.
pub fn ring(_: Eal, slots: u32) -> Result<(Producer, Consumer), String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("peer_{}", COUNT.fetch_add(1, Relaxed));
    let name = CString::new(name).expect("holds no zero byte");
    // SAFETY: 1. `name` is a C string, which DPDK copies. 2. EAL is initialised.
    let raw = unsafe { peer_ring_create(name.as_ptr(), slots) };
    let raw = NonNull::new(raw).ok_or_else(|| format!("DPDK has no memory for {slots} slots"))?;
    let ring = Arc::new(Ring(raw));
    Ok((Producer(ring.clone()), Consumer(ring)))
}

impl Producer {
    /// Sends the numbers from 0 to `count`, without it, in bursts of `batch`.
    ///
    /// # Panics
    /// When `batch` is 0 or above 64.
    pub fn produce(&mut self, count: u64, batch: u32) {
        assert!((1..=BATCH_MAX).contains(&batch));
        // SAFETY: 1. The ring is alive. 2. This is its only producer. 3. `batch` fits the loop.
        unsafe { peer_ring_produce(self.0.0.as_ptr(), count, batch) }
    }
}

impl Consumer {
    /// Receives `count` numbers in bursts of up to `batch`, and returns their sum.
    ///
    /// # Panics
    /// When `batch` is 0 or above 64.
    #[must_use]
    pub fn consume(&mut self, count: u64, batch: u32) -> u64 {
        assert!((1..=BATCH_MAX).contains(&batch));
        // SAFETY: 1. The ring is alive. 2. This is its only consumer. 3. `batch` fits the loop.
        unsafe { peer_ring_consume(self.0.0.as_ptr(), count, batch) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: 1. `peer_ring_create` made it. 2. Both ends are gone.
        unsafe { peer_ring_free(self.0.as_ptr()) }
    }
}
