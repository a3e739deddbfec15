//! Comparison of tags, compiled for AVX2, which fills 16 bytes with one byte in a single
//! instruction.

use std::arch::x86_64::_mm_set1_epi8;

use super::{
    Group, Mask,
    sse2::{equal, tags},
};

/// [`Lanes::tagged`](super::Lanes::tagged) with AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn tagged(group: &Group, byte: u8) -> Mask {
    Mask::of_bits(equal(group, tags(_mm_set1_epi8(byte as i8))))
}
