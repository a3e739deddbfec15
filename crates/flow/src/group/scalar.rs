//! Comparison of tags in two words of eight bytes.

use super::{Group, Lanes, Mask};

pub(crate) struct Scalar;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = ONES << 7;
/// Gathers the lowest bit of each byte in the highest byte; the first byte's becomes the lowest.
const GATHER: u64 = 0x0102_0408_1020_4080;

impl Lanes for Scalar {
    #[inline(always)]
    fn matches(group: &Group, tag: u8) -> Mask {
        let word = u128::from_le_bytes(group.0);
        let wanted = ONES * u64::from(tag);
        let low = zero_bytes(word as u64 ^ wanted);
        let high = zero_bytes((word >> 64) as u64 ^ wanted);
        Mask::of_bits(low | high << 8)
    }
}

/// Finds the bytes of a word that are 0, one bit each.
#[inline(always)]
fn zero_bytes(word: u64) -> u32 {
    // The addition carries into the highest bit of each byte with any lower bit set, and never out
    // of the byte.
    let nonzero = ((word & !HIGHS) + !HIGHS) | word;
    let zero = (!nonzero & HIGHS) >> 7;
    (zero.wrapping_mul(GATHER) >> 56) as u32
}
