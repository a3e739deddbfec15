//! Comparison of tags with SSE2, which every x86_64 has.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_load_si128, _mm_max_epu8, _mm_movemask_epi8, _mm_set1_epi32,
    _mm_setr_epi8,
};

use super::{Group, Lanes, Mask};

pub(crate) struct Sse2;

impl Lanes for Sse2 {
    #[inline(always)]
    fn matches(group: &Group, tag: u8) -> Mask {
        // SAFETY: 1. SSE2 is part of every x86_64.
        Mask::of_bits(unsafe { matches(group, tag) })
    }

    #[inline(always)]
    fn tagged(group: &Group, byte: u8) -> Mask {
        // SAFETY: 1. SSE2 is part of every x86_64.
        Mask::of_bits(unsafe { tagged(group, byte) })
    }
}

/// [`Lanes::matches`], with the count.
///
/// # Safety
/// The processor has SSE2.
#[inline]
#[target_feature(enable = "sse2")]
fn matches(group: &Group, tag: u8) -> u32 {
    equal(group, all(tag))
}

/// [`Lanes::tagged`], with the count.
///
/// # Safety
/// The processor has SSE2.
#[inline]
#[target_feature(enable = "sse2")]
fn tagged(group: &Group, byte: u8) -> u32 {
    equal(group, tags(all(byte)))
}

/// 16 times a byte.
///
/// # Safety
/// The processor has SSE2.
#[inline]
#[target_feature(enable = "sse2")]
fn all(byte: u8) -> __m128i {
    _mm_set1_epi32(i32::from_ne_bytes([byte; 4]))
}

/// The tags that these bytes make: 0 becomes 1, and no other byte changes. On whole lanes, that is
/// one instruction.
///
/// # Safety
/// The processor has SSE2.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn tags(bytes: __m128i) -> __m128i {
    // The last byte is compared with the count, which is left out. If this were 1 as well, the
    // compiler would notice that all are alike, and compute the tag before filling the lanes.
    let least = _mm_setr_epi8(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0);
    _mm_max_epu8(bytes, least)
}

/// Compares all 16 bytes with those of `wanted`, one bit each.
///
/// # Safety
/// The processor has SSE2.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn equal(group: &Group, wanted: __m128i) -> u32 {
    let bytes: *const __m128i = (&raw const *group).cast();
    // SAFETY: 1. A group is 16 bytes, aligned to 16 bytes.
    let bytes = unsafe { _mm_load_si128(bytes) };
    _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted)) as u32
}
