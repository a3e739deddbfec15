//! Comparison of tags with NEON, which every aarch64 has.

use std::arch::aarch64::{
    uint8x16_t, vaddv_u8, vandq_u8, vceqq_u8, vdupq_n_u8, vget_high_u8, vget_low_u8, vld1q_u8,
};

use super::{Group, Lanes, Mask};

pub(crate) struct Neon;

/// The bit in the mask for each byte of a half.
const WEIGHTS: Group = Group([1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]);

impl Lanes for Neon {
    #[inline(always)]
    fn matches(group: &Group, tag: u8) -> Mask {
        // SAFETY: 1. NEON is part of every aarch64.
        Mask::of_bits(unsafe { equal(group, tag) })
    }
}

/// Compares all 16 bytes with `tag`, one bit each.
///
/// # Safety
/// The processor has NEON.
#[inline]
#[target_feature(enable = "neon")]
fn equal(group: &Group, tag: u8) -> u32 {
    let equal = vceqq_u8(bytes(group), vdupq_n_u8(tag));
    let weights = vandq_u8(equal, bytes(&WEIGHTS));
    let low = vaddv_u8(vget_low_u8(weights));
    let high = vaddv_u8(vget_high_u8(weights));
    u32::from(low) | u32::from(high) << 8
}

/// # Safety
/// The processor has NEON.
#[inline]
#[target_feature(enable = "neon")]
fn bytes(group: &Group) -> uint8x16_t {
    // SAFETY: 1. A group is 16 bytes.
    unsafe { vld1q_u8(group.0.as_ptr()) }
}
