//! A frame of a capture, and its limits.

/// The longest record that is read, in bytes: a longer one is damaged.
pub const RECORD_BYTES_MAX: u32 = 16 << 20;

/// The link type of Ethernet frames, the only one that is read.
pub(crate) const ETHERNET: u32 = 1;

/// A frame of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// When it was captured, in nanoseconds since the epoch. A frame without a time has that of the
    /// frame before it, and the first one 0.
    pub timestamp_ns: u64,
    /// Its bytes, as many as were captured.
    pub data: &'a [u8],
    /// How many bytes it had on the wire.
    pub original_bytes: u32,
}
