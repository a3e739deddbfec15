//! This crate's definition of the mbuf.

use core::ffi::c_void;
use core::sync::atomic::AtomicU16;

use crate::rte_mempool;

/// DPDK's `struct rte_mbuf`, field for field.
///
/// A separate definition, because DPDK 24.11 moved fields into anonymous unions: names differ while
/// offsets do not. `shim.c` asserts each offset against the installed headers.
#[repr(C, align(64))]
pub struct RawMbuf {
    /// Start of the buffer, headroom included.
    pub buf_addr: *mut u8,
    /// The same as an address for devices.
    pub buf_iova: u64,
    /// Offset of the data in bytes from `buf_addr`.
    pub data_off: u16,
    /// Number of owners of this segment; others may change it while it is above 1.
    pub refcnt: AtomicU16,
    /// Segments in the chain; valid in the first one.
    pub nb_segs: u16,
    /// The port that received the packet.
    pub port: u16,
    /// Flags: offloads, indirect and external buffers, dynamic flags.
    pub ol_flags: u64,
    /// The headers that the device recognised.
    pub packet_type: u32,
    /// Bytes in all segments; valid in the first one.
    pub pkt_len: u32,
    /// Bytes in this segment.
    pub data_len: u16,
    /// VLAN tag, if one was stripped.
    pub vlan_tci: u16,
    /// The hash union, which hotloop uses for a packet's metadata.
    pub hash: [u8; 8],
    /// Outer VLAN tag, if one was stripped.
    pub vlan_tci_outer: u16,
    /// Bytes in the buffer, headroom included.
    pub buf_len: u16,
    /// The mempool that the mbuf returns to.
    pub pool: *mut rte_mempool,
    /// The next segment, or null.
    pub next: *mut RawMbuf,
    /// Header lengths for TX offloads.
    pub tx_offload: u64,
    /// Shared information of an external buffer.
    pub shinfo: *mut c_void,
    /// Bytes between this struct and the buffer.
    pub priv_size: u16,
    /// Timesync flags.
    pub timesync: u16,
    /// Dynamic fields.
    pub dynfield1: [u32; 9],
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<RawMbuf>() == 128);
    assert!(offset_of!(RawMbuf, data_off) == 16);
    assert!(offset_of!(RawMbuf, refcnt) == 18);
    assert!(offset_of!(RawMbuf, nb_segs) == 20);
    assert!(offset_of!(RawMbuf, port) == 22);
    assert!(offset_of!(RawMbuf, ol_flags) == 24);
    assert!(offset_of!(RawMbuf, packet_type) == 32);
    assert!(offset_of!(RawMbuf, pkt_len) == 36);
    assert!(offset_of!(RawMbuf, data_len) == 40);
    assert!(offset_of!(RawMbuf, vlan_tci) == 42);
    assert!(offset_of!(RawMbuf, hash) == 44);
    assert!(offset_of!(RawMbuf, vlan_tci_outer) == 52);
    assert!(offset_of!(RawMbuf, buf_len) == 54);
    assert!(offset_of!(RawMbuf, pool) == 56);
    assert!(offset_of!(RawMbuf, next) == 64);
    assert!(offset_of!(RawMbuf, tx_offload) == 72);
    assert!(offset_of!(RawMbuf, shinfo) == 80);
    assert!(offset_of!(RawMbuf, priv_size) == 88);
    assert!(offset_of!(RawMbuf, timesync) == 90);
    assert!(offset_of!(RawMbuf, dynfield1) == 92);
};
