//! The free parts of a region as ranges of offsets, without pointers.

use std::iter;
use std::ops::Range;

/// The free parts of a region, in order of their offsets. No two are adjacent.
pub(crate) struct FreeRanges {
    ranges: Vec<Range<usize>>,
    free_bytes: usize,
}

impl FreeRanges {
    /// A region of `bytes`, all of them free.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { ranges: iter::once(0..bytes).collect(), free_bytes: bytes }
    }

    pub(crate) fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    /// Length of the largest free range in bytes.
    pub(crate) fn largest_bytes(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).max().unwrap_or(0)
    }

    /// Takes `bytes` with an address that is a multiple of `align`, a power of two, from the first
    /// range that fits, and returns their offset. `base` is the address of offset 0.
    pub(crate) fn take(&mut self, bytes: usize, align: usize, base: usize) -> Option<usize> {
        let (index, offset) = self.ranges.iter().enumerate().find_map(|(index, range)| {
            let offset = (base + range.start).checked_next_multiple_of(align)? - base;
            let end = offset.checked_add(bytes)?;
            (end <= range.end).then_some((index, offset))
        })?;
        let range = self.ranges[index].clone();
        let rest = [range.start..offset, offset + bytes..range.end];
        self.ranges.splice(index..=index, rest.into_iter().filter(|part| !part.is_empty()));
        self.free_bytes -= bytes;
        Some(offset)
    }

    /// Gives back a range that `take` returned.
    pub(crate) fn give(&mut self, offset: usize, bytes: usize) {
        let mut given = offset..offset + bytes;
        // The ranges that the new one merges with, if any: one that ends at its start, one that
        // starts at its end.
        let first = self.ranges.partition_point(|range| range.end < given.start);
        let mut last = first;
        if let Some(before) = self.ranges.get(last).filter(|range| range.end == given.start) {
            given.start = before.start;
            last += 1;
        }
        if let Some(after) = self.ranges.get(last) {
            debug_assert!(given.end <= after.start, "freed twice");
            if after.start == given.end {
                given.end = after.end;
                last += 1;
            }
        }
        self.ranges.splice(first..last, [given]);
        self.free_bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The free ranges in a map of bytes.
    fn ranges_of(is_free: &[bool]) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (offset, _) in is_free.iter().enumerate().filter(|&(_, &free)| free) {
            match ranges.last_mut() {
                Some(range) if range.end == offset => range.end += 1,
                _ => ranges.push(offset..offset + 1),
            }
        }
        ranges
    }

    proptest! {
        #[test]
        fn behaves_like_a_map_of_bytes(
            ops in prop::collection::vec((any::<bool>(), 1..40_usize, 0..5_u32, any::<prop::sample::Index>()), 0..200),
        ) {
            const BYTES: usize = 256;
            const BASE: usize = 3 * 1024 + 4;
            let mut free = FreeRanges::new(BYTES);
            let mut is_free = [true; BYTES];
            let mut held: Vec<Range<usize>> = Vec::new();
            for (takes, bytes, align_bits, which) in ops {
                let align = 1 << align_bits;
                if takes {
                    let fits = |offset: &usize| {
                        (BASE + offset).is_multiple_of(align)
                            && is_free.get(*offset..offset + bytes).is_some_and(|part| !part.contains(&false))
                    };
                    let expected = (0..BYTES).find(fits);
                    prop_assert_eq!(free.take(bytes, align, BASE), expected);
                    if let Some(offset) = expected {
                        is_free[offset..offset + bytes].fill(false);
                        held.push(offset..offset + bytes);
                    }
                } else if !held.is_empty() {
                    let range = held.swap_remove(which.index(held.len()));
                    free.give(range.start, range.len());
                    is_free[range].fill(true);
                }
                prop_assert_eq!(&free.ranges, &ranges_of(&is_free));
                prop_assert_eq!(free.free_bytes(), is_free.iter().filter(|&&free| free).count());
                let largest = free.ranges.iter().map(|range| range.len()).max();
                prop_assert_eq!(free.largest_bytes(), largest.unwrap_or(0));
            }
        }
    }
}
