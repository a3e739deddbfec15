//! The minimum that a lookup in a large table can do: read a control byte, then the line it points
//! to.

use hotloop::arena::{Arena, ArenaBox, ArenaError};

/// Slots of a group, and bytes of its control.
const GROUP_SLOTS: usize = 15;
const GROUP_BYTES: usize = 16;

/// Number of keys in flight at once.
const WINDOW: usize = 64;

/// A line of an entry.
type Line = [u64; 8];

/// Control bytes and lines, laid out like the flow table's, with nothing to compare.
#[derive(Debug)]
pub struct Floor {
    control: ArenaBox<[u8]>,
    lines: ArenaBox<[Line]>,
}

impl Floor {
    /// Number of bytes of an arena that this takes.
    #[must_use]
    pub fn bytes(slot_count: usize) -> usize {
        let group_count = slot_count.div_ceil(GROUP_SLOTS);
        group_count * (GROUP_BYTES + GROUP_SLOTS * size_of::<Line>()) + 4_096
    }

    /// Memory of the size of a table with `slot_count` slots, in `arena`.
    ///
    /// # Errors
    /// If the memory does not fit.
    pub fn new(arena: &Arena, slot_count: usize) -> Result<Self, ArenaError> {
        let group_count = slot_count.div_ceil(GROUP_SLOTS);
        let mut control = arena.boxed_zeroed::<u8>(group_count * GROUP_BYTES)?;
        for (index, byte) in control.iter_mut().enumerate() {
            *byte = (index * 7 % GROUP_SLOTS) as u8;
        }
        let mut lines = arena.boxed_zeroed::<Line>(group_count * GROUP_SLOTS)?;
        lines.fill([1; 8]);
        Ok(Self { control, lines })
    }

    /// For each of these random numbers, reads a control byte, then a line, a window at a time.
    /// Returns their number.
    #[must_use]
    pub fn read(&self, numbers: &[[u64; 2]]) -> u64 {
        let (control, lines) = (&self.control[..], &self.lines[..]);
        let group_count = (control.len() / GROUP_BYTES) as u128;
        let mut sum = 0;
        let mut places = [0; WINDOW];
        for window in numbers.chunks(WINDOW) {
            for (place, number) in places.iter_mut().zip(window) {
                *place = ((u128::from(number[0]) * group_count) >> 64) as usize;
                prefetch(&control[*place * GROUP_BYTES]);
            }
            for place in &mut places[..window.len()] {
                let slot = usize::from(control[*place * GROUP_BYTES + 3]);
                *place = *place * GROUP_SLOTS + slot;
                prefetch(&lines[*place]);
            }
            for place in &places[..window.len()] {
                sum += lines[*place][2];
            }
        }
        sum
    }
}

/// Begins to read the line of `place`.
#[inline(always)]
pub(super) fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: 1. SSE is part of x86-64. 2. A prefetch changes nothing, whatever it points to.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
