//! From a frame straight to its flow's key.

use crate::{
    classify::{
        Summary,
        fast::{HeadersV4, HeadersV6},
    },
    flow_key::FlowKey,
};

impl FlowKey {
    /// The key of the flow of a frame. `frame` is its first segment, and `len_bytes` its length over
    /// all segments. `None` if it is not IP, or malformed.
    ///
    /// The same as [`Summary::of`] followed by [`Summary::key`], but faster.
    ///
    /// ```
    /// use hotloop_packet::{build::udp, flow_key::FlowKey};
    ///
    /// let frame = udp().to("203.0.113.10:53").payload(b"query").build();
    /// let key = FlowKey::of(&frame, frame.len()).expect("an IP packet");
    /// assert_eq!(key.destination_port(), 53);
    /// assert_eq!(FlowKey::of(&frame[..40], 40), None);
    /// ```
    #[inline]
    pub fn of(frame: &[u8], len_bytes: usize) -> Option<Self> {
        match HeadersV4::find(frame, len_bytes) {
            Some(headers) => Some(Self::V4(headers.key())),
            None => of_any(frame, len_bytes),
        }
    }
}

/// [`FlowKey::of`] for any frame. Not inlined, to keep its callers small.
#[inline(never)]
fn of_any(frame: &[u8], len_bytes: usize) -> Option<FlowKey> {
    match HeadersV6::find(frame, len_bytes) {
        Some(headers) => Some(FlowKey::V6(headers.key())),
        None => Summary::walk(frame, len_bytes).key(frame),
    }
}
