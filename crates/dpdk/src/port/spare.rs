//! Unclaimed queues of a device.
//!
//! Some drivers cannot have fewer queues of one direction than of the other, and some get packets
//! on every queue from the moment the device exists. If RX queues are claimed, the first polls the
//! spare ones, too, so that nothing is lost; otherwise the first TX queue frees the packets.

use hotloop_dpdk_sys::{self as sys, RawMbuf};
use std::ops::Range;
use std::ptr;

/// Packets freed at a time.
const BURST: u16 = 64;

/// Receives one burst from each of the queues, frees the packets, and returns their number.
///
/// # Safety
/// 1. The port runs with these queues. 2. Nobody else polls them. 3. The stack has room: [`crate::stack`].
pub(super) unsafe fn drain(port_id: u16, queues: Range<u16>) -> usize {
    let mut freed = 0;
    for index in queues {
        let mut mbufs = [ptr::null_mut::<RawMbuf>(); BURST as usize];
        // SAFETY: 1. The port runs with the queue, which nobody else polls, by contract. 2. There
        // is room for `BURST` pointers. 3. And on the stack, by contract.
        let count = unsafe { sys::sh_rx_burst(port_id, index, mbufs.as_mut_ptr(), BURST) };
        for &mbuf in &mbufs[..usize::from(count)] {
            // SAFETY: 1. rte_ethdev.h: received mbufs are the caller's, and are not used after.
            unsafe { sys::sh_mbuf_free(mbuf) };
        }
        freed += usize::from(count);
    }
    freed
}
