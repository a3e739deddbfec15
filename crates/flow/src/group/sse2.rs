//! Tags compared with SSE2, which every x86_64 has.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi32,
};

use super::{Group, Lanes, Mask};

pub(crate) struct Sse2;

impl Lanes for Sse2 {
    #[inline(always)]
    fn matches(group: &Group, tag: u8) -> Mask {
        // SAFETY: 1. SSE2 is part of every x86_64.
        Mask::of_bits(unsafe { equal(group, tag) })
    }
}

/// Which of the 16 bytes are `tag`, one bit each.
///
/// # Safety
/// The processor has SSE2.
#[inline]
#[target_feature(enable = "sse2")]
fn equal(group: &Group, tag: u8) -> u32 {
    let bytes: *const __m128i = (&raw const *group).cast();
    // SAFETY: 1. A group is 16 bytes, aligned to as many.
    let bytes = unsafe { _mm_load_si128(bytes) };
    _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi32(i32::from_ne_bytes([tag; 4])))) as u32
}
