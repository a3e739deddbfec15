//! What is asked of an arena.

use std::fmt;

/// Bytes of the largest pages, on x86-64 and on AArch64 with 4 KiB pages.
pub(crate) const GIGANTIC_BYTES: usize = 1 << 30;

/// Bytes of a huge page on the same.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// Bytes of the pages that every mapping has by default.
pub(crate) const SMALL_BYTES: usize = 4 << 10;

/// The pages that memory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pages {
    /// 1 GiB pages from the pool that the administrator reserved.
    Gigantic,
    /// 2 MiB pages from the pool that the administrator reserved (`vm.nr_hugepages`).
    Huge,
    /// 2 MiB pages that the kernel makes where it finds room (transparent huge pages).
    Transparent,
    /// 4 KiB pages.
    Small,
}

impl Pages {
    /// The size that a region on such pages is a multiple of, and is aligned to, in bytes.
    pub(crate) fn unit_bytes(self) -> usize {
        match self {
            Self::Gigantic => GIGANTIC_BYTES,
            Self::Huge | Self::Transparent => HUGE_BYTES,
            Self::Small => SMALL_BYTES,
        }
    }

    /// Whether they come from a pool that the administrator reserved. Such pages are never swapped.
    pub(crate) fn are_reserved(self) -> bool {
        matches!(self, Self::Gigantic | Self::Huge)
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gigantic => "1 GiB pages",
            Self::Huge => "2 MiB pages",
            Self::Transparent => "transparent huge pages",
            Self::Small => "4 KiB pages",
        })
    }
}

/// A wish for memory. [`Request::new`] fills in what is not said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes wanted; rounded up to whole pages.
    pub bytes: usize,
    /// The pages to try, best first; the first kind that the kernel gives is taken.
    pub pages: Vec<Pages>,
    /// The NUMA node that the memory should lie on; none leaves it to where it is first touched.
    ///
    /// A preference: where the node has no room, or the kernel takes no such wish, the memory lies
    /// elsewhere, and [`Obtained::node`](crate::Obtained::node) says where.
    pub node: Option<u32>,
    /// Whether pages on any other node than `node` are refused. Has no effect without `node`;
    /// implies `prefault`, since only pages that were taken lie anywhere.
    pub node_only: bool,
    /// Whether the memory must never be swapped out. A promise: what can't be locked is refused.
    /// Implies `prefault`. Reserved pages are never swapped, so that they need no right to lock.
    pub lock: bool,
    /// Whether to take all pages now rather than when first touched, which may be in the packet
    /// path. Reserved pages always are, and of others the first 2 MiB, which show what they are.
    pub prefault: bool,
}

impl Request {
    /// `bytes` on any pages, the largest that can be had, on no particular node, not locked, taken
    /// now.
    ///
    /// Pages of 1 GiB are among them where rounding up to whole ones wastes at most an eighth of
    /// what was asked for; smaller requests begin with those of 2 MiB. A request
    /// that names [`Pages::Gigantic`] gets them for any size.
    pub fn new(bytes: usize) -> Self {
        let mut pages = vec![Pages::Huge, Pages::Transparent, Pages::Small];
        if rounding_waste_bytes(bytes, GIGANTIC_BYTES) <= bytes / 8 && bytes > 0 {
            pages.insert(0, Pages::Gigantic);
        }
        Self { bytes, pages, node: None, node_only: false, lock: false, prefault: true }
    }

    /// Whether all pages are to be taken before the arena is handed out, where they are `pages`.
    pub(crate) fn takes_all(&self, pages: Pages) -> bool {
        let is_judged = self.node_only && self.node.is_some();
        self.prefault || self.lock || is_judged || pages.are_reserved()
    }
}

fn rounding_waste_bytes(bytes: usize, unit_bytes: usize) -> usize {
    (unit_bytes - bytes % unit_bytes) % unit_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gigantic_pages_are_a_default_where_they_waste_little() {
        const MIB: usize = 1 << 20;
        let has_gigantic =
            |mib: usize| Request::new(mib * MIB).pages.first() == Some(&Pages::Gigantic);
        let sizes = [0, 1, 900, 911, 1_024, 1_025, 1_800, 1_900, 2_048, 20 * 1_024 + 1];
        let expected = [false, false, false, true, true, false, false, true, true, true];
        assert_eq!(sizes.map(has_gigantic), expected);
        assert_eq!(Request::new(usize::MAX).pages.len(), 4);
    }
}
