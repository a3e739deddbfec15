//! Control groups: 15 tags and a count in 16 bytes. All tags are compared at once.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod backend;
mod mask;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod sse2;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::tagged as tagged_avx2;
pub use backend::Backend;
pub(crate) use mask::Mask;
pub(crate) use scalar::Scalar;

/// The back-end of every processor of this architecture.
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon as Native;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use scalar::Scalar as Native;
#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::Sse2 as Native;

/// Number of slots in a group.
pub(crate) const GROUP_SLOTS: usize = 15;

/// Index of the count.
const OVERFLOW: usize = GROUP_SLOTS;

/// The tag of a free slot.
const FREE: u8 = 0;

/// The tags of 15 slots, 0 for free slots, followed by the overflow count: the number of flows that
/// have this as their first group but are in their second one. At 255 the count sticks, even when
/// flows leave: it may then be too high, which costs needless searches of second groups, but it is
/// never 0 while a flow can be found in one.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Group([u8; GROUP_SLOTS + 1]);

impl Group {
    pub(crate) const EMPTY: Self = Self([FREE; GROUP_SLOTS + 1]);

    #[inline(always)]
    pub(crate) fn overflow(&self) -> u8 {
        self.0[OVERFLOW]
    }

    /// Counts another flow of this group that is in its second group.
    pub(crate) fn raise_overflow(&mut self) {
        self.0[OVERFLOW] = self.0[OVERFLOW].saturating_add(1);
    }

    /// Counts one flow fewer.
    pub(crate) fn lower_overflow(&mut self) {
        if self.0[OVERFLOW] < u8::MAX {
            self.0[OVERFLOW] = self.0[OVERFLOW].saturating_sub(1);
        }
    }

    /// Stores the tag of a flow, which is not 0, for `slot`.
    #[inline(always)]
    pub(crate) fn occupy(&mut self, slot: usize, tag: u8) {
        self.0[slot] = tag;
    }

    #[inline(always)]
    pub(crate) fn vacate(&mut self, slot: usize) {
        self.0[slot] = FREE;
    }

    /// The tag of a slot, unless it is free.
    #[cfg(test)]
    pub(crate) fn tag(&self, slot: usize) -> Option<u8> {
        assert!(slot < GROUP_SLOTS);
        Some(self.0[slot]).filter(|&tag| tag != FREE)
    }
}

/// Makes a flow's tag, 1 to 255, from a byte of its hash.
#[inline(always)]
pub(crate) fn tag(byte: u8) -> u8 {
    // In 32 bits, which takes fewer instructions than in 8.
    let byte = u32::from(byte);
    (byte + u32::from(byte == FREE.into())) as u8
}

/// Comparison of tags.
pub(crate) trait Lanes {
    /// The slots with this tag. All 16 bytes are compared; the mask leaves out the count.
    fn matches(group: &Group, tag: u8) -> Mask;

    /// The slots with the tag that this byte makes.
    #[inline(always)]
    fn tagged(group: &Group, byte: u8) -> Mask {
        Self::matches(group, tag(byte))
    }

    #[inline(always)]
    fn free(group: &Group) -> Mask {
        Self::matches(group, FREE)
    }

    #[inline(always)]
    fn occupied(group: &Group) -> Mask {
        Self::matches(group, FREE).complement()
    }
}
