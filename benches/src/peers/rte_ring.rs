//! DPDK's ring with a single producer and a single consumer, in C loops.

use super::forward::{From, To};
use hotloop::dpdk::{Eal, Mbuf};
use std::ffi::{CString, c_char, c_uint};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

/// Maximum burst of the loops in C.
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
    fn peer_ring_by_turns(ring: *mut RawRing, count: u64, batch: c_uint) -> u64;
    fn peer_dispatch(from: u16, ring: *mut RawRing, back: *mut RawRing, stop: *const i32);
    fn peer_work(ring: *mut RawRing, to: u16, swaps: i32, stop: *const i32) -> u64;
    fn peer_count(ring: *mut RawRing, back: *mut RawRing, port: u16, stop: *const i32) -> u64;
    fn peer_free_mbufs(ring: *mut RawRing);
}

/// Owns a ring of DPDK and frees it.
#[derive(Debug)]
struct Ring(NonNull<RawRing>);

/// The sending end, for numbers or mbufs.
#[derive(Debug)]
pub struct Producer<T>(Arc<Ring>, PhantomData<fn(T)>);

/// The receiving end.
#[derive(Debug)]
pub struct Consumer<T>(Arc<Ring>, PhantomData<fn(T)>);

// SAFETY: 1. rte_ring.h: a ring may be used from any thread, with one at a time that produces and
// one that consumes. 2. `ring` makes one end of each kind, neither is `Clone`, and both work
// through `&mut self`.
unsafe impl Sync for Ring {}

// SAFETY: no operation on a ring, including freeing it, is bound to a thread.
unsafe impl Send for Ring {}

/// A ring of `slots` slots in the form that DPDK programs use: one slot stays empty. (A ring of
/// exact size would have twice the slots, and twice the memory to move.)
///
/// # Errors
/// If DPDK has no memory for it, or if `slots` is not a power of two.
pub fn ring<T>(_: Eal, slots: u32) -> Result<(Producer<T>, Consumer<T>), String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("peer_{}", COUNT.fetch_add(1, Relaxed));
    let name = CString::new(name).expect("holds no zero byte");
    // SAFETY: 1. `name` is a C string, which DPDK copies. 2. EAL is initialised.
    let raw = unsafe { peer_ring_create(name.as_ptr(), slots) };
    let raw = NonNull::new(raw).ok_or_else(|| format!("DPDK has no memory for {slots} slots"))?;
    let ring = Arc::new(Ring(raw));
    Ok((Producer(ring.clone(), PhantomData), Consumer(ring, PhantomData)))
}

impl Producer<u64> {
    /// Sends the numbers from 0 to `count`, exclusive, in bursts of `batch`.
    ///
    /// # Panics
    /// If `batch` is 0 or above 64.
    pub fn produce(&mut self, count: u64, batch: u32) {
        assert!((1..=BATCH_MAX).contains(&batch));
        // SAFETY: 1. The ring is alive. 2. This is its only producer. 3. `batch` fits the loop.
        unsafe { peer_ring_produce(self.0.0.as_ptr(), count, batch) }
    }

    /// Sends the numbers below `count`, and receives each burst from `other`, the other end of the
    /// ring, before it sends the next. Returns their sum.
    ///
    /// # Panics
    /// If `batch` is 0 or above 64, or if `other` belongs to another ring.
    #[must_use]
    pub fn by_turns(&mut self, other: &mut Consumer<u64>, count: u64, batch: u32) -> u64 {
        assert!((1..=BATCH_MAX).contains(&batch) && Arc::ptr_eq(&self.0, &other.0));
        // SAFETY: 1. The ring is alive. 2. Both its ends are borrowed. 3. `batch` fits the loop.
        unsafe { peer_ring_by_turns(self.0.0.as_ptr(), count, batch) }
    }
}

impl Producer<Mbuf> {
    /// Receives packets into the ring until `stop` is not 0. Frees those that arrive through
    /// `back`.
    pub fn dispatch(
        &mut self,
        from: &mut From,
        back: Option<&mut Consumer<Mbuf>>,
        stop: &AtomicI32,
    ) {
        let back = back.map_or(null_mut(), |back| back.0.0.as_ptr());
        // SAFETY: 1. The rings are alive, and hold mbufs only, by their type. 2. This is the only
        // producer of one and the borrowed consumer the only one of the other. 3. The port runs as
        // long as `from` is held, and only `from` polls its queue.
        // 4. `stop` outlives the call, and C reads it atomically.
        unsafe { peer_dispatch(from.port, self.0.0.as_ptr(), back, stop.as_ptr()) }
    }
}

impl Consumer<Mbuf> {
    /// Sends packets from the ring until `stop` is not 0, and swaps Ethernet addresses if `swaps`.
    /// Returns the number sent.
    pub fn work(&mut self, to: &mut To, swaps: bool, stop: &AtomicI32) -> u64 {
        // SAFETY: 1. The ring is alive, and holds mbufs only, by its type. 2. This is its only
        // consumer. 3. The port runs as long as `to` is held, and only `to` uses its queue. 4.
        // `stop` outlives the call, and C reads it atomically.
        unsafe { peer_work(self.0.0.as_ptr(), to.port, i32::from(swaps), stop.as_ptr()) }
    }

    /// Counts datagrams to a port that arrive through the ring until `stop` is not 0, and frees
    /// them, or sends them through `back`. Returns their number.
    pub fn count(&mut self, back: Option<&mut Producer<Mbuf>>, port: u16, stop: &AtomicI32) -> u64 {
        let back = back.map_or(null_mut(), |back| back.0.0.as_ptr());
        // SAFETY: 1. The rings are alive, and hold mbufs only, by their type. 2. This is the only consumer of one and the borrowed
        // producer the only one of the other. 3. `stop` outlives the call, and C reads it atomically.
        unsafe { peer_count(self.0.0.as_ptr(), back, port, stop.as_ptr()) }
    }

    /// Frees the remaining mbufs.
    pub fn free_mbufs(&mut self) {
        // SAFETY: 1. The ring is alive, and holds mbufs only, by its type. 2. This is its only consumer.
        unsafe { peer_free_mbufs(self.0.0.as_ptr()) }
    }
}

impl Consumer<u64> {
    /// Receives `count` numbers in bursts of up to `batch`, and returns their sum.
    ///
    /// # Panics
    /// If `batch` is 0 or above 64.
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
