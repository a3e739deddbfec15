//! TCP's flags where a packet's layout alone shows their place.

use hotloop::packet::classify::Layout;
use hotloop::packet::tcp::FLAGS_OFFSET;
use hotloop::packet::{ethernet, ipv4};

/// Offset of TCP's flags in a packet that satisfies [`Layout::is_fast_v4`], in bytes.
const FAST_FLAGS_OFFSET: usize = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES + FLAGS_OFFSET;

/// The first bytes of a packet that satisfies [`Layout::is_fast_v4`], up to TCP's flags.
pub type FastFront = [u8; FAST_FLAGS_OFFSET + 1];

/// TCP's flags, if the packet is TCP.
#[inline(always)]
pub const fn fast_flags(front: &FastFront) -> u8 {
    front[FAST_FLAGS_OFFSET]
}

/// TCP's flags in a packet that is keyed by its own header, if it is TCP; otherwise 0.
pub fn plain_flags(frame: &[u8], layout: Layout) -> u8 {
    let flags = layout.l4_offset(frame).and_then(|offset| frame.get(offset + FLAGS_OFFSET));
    flags.copied().unwrap_or(0)
}
