//! The place of a packet's time of arrival in its mbuf.

use hotloop_dpdk_sys as sys;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Offset in bytes at which drivers store the time of arrival in an mbuf. 0 until EAL is
/// initialised.
static TIMESTAMP_OFFSET: AtomicU64 = AtomicU64::new(0);
/// The flag of `ol_flags` that marks a stored time.
static TIMESTAMP_FLAG: AtomicU64 = AtomicU64::new(0);

/// Registers the place of timestamps in mbufs, once.
pub(crate) fn register() {
    let (mut offset, mut flag) = (-1, 0);
    // SAFETY: 1. An `int` and a `u64` to write to. 2. EAL is initialised: `eal::start` calls this after it.
    let result = unsafe { sys::rte_mbuf_dyn_rx_timestamp_register(&mut offset, &mut flag) };
    let end = offset as usize + size_of::<u64>();
    if result == 0 && offset > 0 && end <= size_of::<sys::RawMbuf>() {
        TIMESTAMP_OFFSET.store(offset as u64, Relaxed);
        TIMESTAMP_FLAG.store(flag, Relaxed);
    }
}

/// Offset of the time of arrival in an mbuf, and the flag that marks it as present. The eight bytes
/// at the offset lie within the mbuf. The flag is 0 if there are no timestamps.
#[inline]
pub(crate) fn place() -> (usize, u64) {
    (TIMESTAMP_OFFSET.load(Relaxed) as usize, TIMESTAMP_FLAG.load(Relaxed))
}
