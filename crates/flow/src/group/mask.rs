//! A set of slots of one group.

use super::GROUP_SLOTS;

const ALL: u32 = (1 << GROUP_SLOTS) - 1;

/// Slots of a group, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mask(u32);

impl Mask {
    /// Makes a mask; bits above those of slots are ignored.
    #[inline(always)]
    pub(crate) fn of_bits(bits: u32) -> Self {
        Self(bits & ALL)
    }

    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    #[inline(always)]
    pub(crate) fn complement(self) -> Self {
        Self(!self.0 & ALL)
    }

    #[inline(always)]
    pub(crate) fn first(self) -> Option<usize> {
        (!self.is_empty()).then(|| self.0.trailing_zeros() as usize)
    }

    /// All slots except the first.
    #[inline(always)]
    pub(crate) fn rest(self) -> Self {
        Self(self.0 & self.0.wrapping_sub(1))
    }

    /// The slots from `start` on, then those before it.
    pub(crate) fn iter_from(self, start: usize) -> impl Iterator<Item = usize> {
        let turned = Self::of_bits(self.0 >> start | self.0 << (GROUP_SLOTS - start));
        turned.into_iter().map(move |slot| {
            let slot = slot + start;
            if slot < GROUP_SLOTS { slot } else { slot - GROUP_SLOTS }
        })
    }
}

impl IntoIterator for Mask {
    type Item = usize;
    type IntoIter = Slots;

    #[inline(always)]
    fn into_iter(self) -> Slots {
        Slots(self)
    }
}

/// The slots of a mask, from the lowest.
pub(crate) struct Slots(Mask);

impl Iterator for Slots {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let first = self.0.first()?;
        self.0 = self.0.rest();
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_upwards_from_anywhere() {
        let mask = Mask::of_bits(0b1100_0000_0000_1001);
        assert!(mask.into_iter().eq([0, 3, 14]));
        assert!(mask.iter_from(0).eq([0, 3, 14]));
        assert!(mask.iter_from(3).eq([3, 14, 0]));
        assert!(mask.iter_from(4).eq([14, 0, 3]));
        assert!(mask.iter_from(14).eq([14, 0, 3]));
        assert_eq!(mask.complement().bits().count_ones(), 12);
        assert_eq!(Mask::of_bits(0).first(), None);
        assert!(Mask::of_bits(1 << 15).is_empty());
    }
}
