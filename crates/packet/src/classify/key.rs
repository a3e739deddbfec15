//! From a frame straight to its flow's key.

use crate::{
    classify::{
        Depth, Summary,
        fast::{HeadersV4, HeadersV6},
    },
    flow_key::FlowKey,
};

impl FlowKey {
    /// The key of the flow of a frame. `frame` is its first segment, `len_bytes` its length over all
    /// segments, and `depth` selects the keyed header. `None` if it is not IP, or malformed.
    ///
    /// The same as [`Summary::of`] followed by [`Summary::key`], but faster.
    ///
    /// ```
    /// use hotloop_packet::{build::udp, classify::Depth, flow_key::FlowKey};
    ///
    /// let frame = udp().to("203.0.113.10:53").payload(b"query").build();
    /// let key = FlowKey::of(&frame, frame.len(), Depth::Outermost).expect("an IP packet");
    /// assert_eq!(key.destination_port(), 53);
    /// assert_eq!(FlowKey::of(&frame[..40], 40, Depth::Outermost), None);
    /// ```
    #[inline]
    pub fn of(frame: &[u8], len_bytes: usize, depth: Depth) -> Option<Self> {
        match HeadersV4::find(frame, len_bytes) {
            Some(headers) => Some(Self::V4(headers.key())),
            None => match depth {
                Depth::Outermost => of_any::<false>(frame, len_bytes),
                Depth::Innermost => of_any::<true>(frame, len_bytes),
            },
        }
    }
}

/// [`FlowKey::of`] for any frame. Not inlined, to keep its callers small.
#[inline(never)]
fn of_any<const INNERMOST: bool>(frame: &[u8], len_bytes: usize) -> Option<FlowKey> {
    match HeadersV6::find(frame, len_bytes) {
        Some(headers) => Some(FlowKey::V6(headers.key())),
        None => walk::<INNERMOST>(frame, len_bytes),
    }
}

/// Walks header by header. Not inlined, so that the code before this call saves no registers.
#[inline(never)]
fn walk<const INNERMOST: bool>(frame: &[u8], len_bytes: usize) -> Option<FlowKey> {
    Summary::walk::<INNERMOST>(frame, len_bytes).key(frame)
}
