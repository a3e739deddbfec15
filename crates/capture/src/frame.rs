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
    /// The captured bytes.
    pub data: &'a [u8],
    /// Length of the frame on the wire, in bytes.
    pub original_bytes: u32,
}
