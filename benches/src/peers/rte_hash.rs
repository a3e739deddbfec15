//! DPDK's hash table, driven by loops in C, with its values in an array of their own.
//!
//! Used in the best way for a C program: bursts of keys hashed with inlined CRC instructions;
//! values in an array indexed by the key's position, each on a line of its own and prefetched for
//! the whole burst. Keys and values lie in memory of our arena, on the same pages as all other
//! tables: in DPDK's terms, an external heap.

use hotloop::arena::{Allocator, Arena, Obtained, Pages};
use hotloop::dpdk::Eal;
use std::alloc::Layout;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[repr(C)]
struct RawHash {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn peer_hash_create(
        name: *const c_char,
        entries: u32,
        memory: *mut c_void,
        bytes: usize,
        page_bytes: usize,
    ) -> *mut RawHash;
    fn peer_hash_free(hash: *mut RawHash);
    fn peer_hash_add(hash: *mut RawHash, key: *const [u64; 2], word: u64) -> c_int;
    fn peer_hash_find(
        hash: *mut RawHash,
        keys: *const [u64; 2],
        count: usize,
        now: u64,
        step: u64,
    ) -> u64;
}

/// A hash table of DPDK.
#[derive(Debug)]
pub struct Hash {
    raw: NonNull<RawHash>,
    /// All of its memory, which is dropped after the table.
    _arena: Arena,
}

impl Hash {
    /// Bytes that a table for `entries` keys takes, and a little more: buckets of 64 bytes for
    /// eight keys, their number rounded up to a power of two; 32 bytes for a key; 64 for a value; 4
    /// in a ring of free positions, rounded up as well.
    #[must_use]
    pub fn bytes(entries: usize) -> usize {
        let slots = entries.next_power_of_two();
        slots * 8 + (entries + 1_024) * (32 + 64) + 2 * slots * 4 + (8 << 20)
    }

    /// A table for `entries` keys in `arena`, which must have [`bytes`](Self::bytes) free in one
    /// piece.
    ///
    /// # Errors
    /// If the arena has less, or if DPDK refuses.
    pub fn new(_: Eal, entries: u32, (arena, got): (Arena, Obtained)) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let page_bytes: usize = if got.pages == Pages::Small { 4 << 10 } else { 2 << 20 };
        let bytes = Self::bytes(entries as usize).next_multiple_of(page_bytes);
        let layout =
            Layout::from_size_align(bytes, page_bytes).map_err(|error| error.to_string())?;
        let memory =
            arena.allocate(layout).map_err(|_| format!("no {bytes} bytes in the arena"))?;
        let name = format!("peer_{}", COUNT.fetch_add(1, Relaxed));
        let name = CString::new(name).expect("holds no zero byte");
        let memory = memory.as_ptr().cast::<c_void>();
        // SAFETY: 1. `name` is a C string, which DPDK copies. 2. `memory` is `bytes` long, aligned to
        // its pages, used by nothing else, and mapped for as long as the arena in `self` lives. 3. EAL is
        // initialised.
        let raw = unsafe { peer_hash_create(name.as_ptr(), entries, memory, bytes, page_bytes) };
        let raw =
            NonNull::new(raw).ok_or_else(|| format!("DPDK makes no table of {entries} keys"))?;
        Ok(Self { raw, _arena: arena })
    }

    /// Adds a key with a value that begins with `word`.
    ///
    /// # Errors
    /// If the table is full.
    pub fn add(&mut self, key: &[u64; 2], word: u64) -> Result<(), String> {
        // SAFETY: 1. The table is alive, and `&mut self` its only user. 2. `key` matches the
        // declaration in C.
        match unsafe { peer_hash_add(self.raw.as_ptr(), key, word) } {
            0 => Ok(()),
            error => Err(format!("rte_hash takes no more keys (error {error})")),
        }
    }

    /// Looks up keys in bursts of 64, DPDK's maximum and its fastest (a third faster than 32).
    /// Returns the sum of the first words of the values found.
    #[must_use]
    pub fn find(&mut self, keys: &[[u64; 2]]) -> u64 {
        self.find_at(keys, 0, 0)
    }

    /// [`find`](Self::find) that also writes the time into each value found: `now`, which is not 0,
    /// for the first burst, and `step` more for each further one.
    #[must_use]
    pub fn find_at(&mut self, keys: &[[u64; 2]], now: u64, step: u64) -> u64 {
        let (raw, count) = (self.raw.as_ptr(), keys.len());
        // SAFETY: 1. The table is alive, and `&mut self` its only user. 2. `keys` are `count` keys
        // that match the declaration in C.
        unsafe { peer_hash_find(raw, keys.as_ptr(), count, now, step) }
    }
}

impl Drop for Hash {
    fn drop(&mut self) {
        // SAFETY: 1. `peer_hash_create` made the table, and this is its last use. 2. Its memory is
        // still mapped: the arena is dropped after this.
        unsafe { peer_hash_free(self.raw.as_ptr()) }
    }
}
