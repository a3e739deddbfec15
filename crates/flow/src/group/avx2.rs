//! Tags compared with AVX2: those of two groups at once.

use std::arch::x86_64::{
    __m128i, _mm_load_si128, _mm256_cmpeq_epi8, _mm256_movemask_epi8, _mm256_set_m128i,
    _mm256_set1_epi8,
};

use super::sse2::Sse2;
use super::{Group, Lanes, Mask, Pair};

/// Only for code that is compiled for AVX2, and runs where the processor has it.
pub(crate) struct Avx2;

impl Lanes for Avx2 {
    #[inline(always)]
    fn matches(group: &Group, tag: u8) -> Mask {
        Sse2::matches(group, tag)
    }

    #[inline(always)]
    fn matches_both(first: &Group, second: &Group, tag: u8) -> Pair {
        // SAFETY: 1. Only `Lookup::burst_avx2` uses these lanes, which needs the same of the
        // processor, and a test that asks for it first.
        Pair::of_bits(unsafe { equal(first, second, tag) })
    }
}

/// Which of the bytes are `tag`, one bit each, the first group's in the lower half.
///
/// # Safety
/// The processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
fn equal(first: &Group, second: &Group, tag: u8) -> u32 {
    let both = _mm256_set_m128i(bytes(second), bytes(first));
    _mm256_movemask_epi8(_mm256_cmpeq_epi8(both, _mm256_set1_epi8(tag as i8))) as u32
}

#[inline]
#[target_feature(enable = "avx2")]
fn bytes(group: &Group) -> __m128i {
    let bytes: *const __m128i = (&raw const *group).cast();
    // SAFETY: 1. A group is 16 bytes, aligned to as many.
    unsafe { _mm_load_si128(bytes) }
}
