//! A frame of a capture, and its limits.

/// The longest record that is read, in bytes. A longer one counts as damaged.
pub const RECORD_BYTES_MAX: u32 = 16 << 20;

/// The link type of Ethernet frames, the only one that is read.
pub(crate) const ETHERNET: u32 = 1;

/// A frame of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Capture time, in nanoseconds since the epoch. A frame without a time takes that of the frame
    /// before it, or 0 if it is the first.
    pub timestamp_ns: u64,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Length of the frame on the wire, in bytes.
    pub original_bytes: u32,
}
