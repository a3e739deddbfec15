//! Requests for arenas.

use std::fmt;

/// Bytes of the largest pages, on x86-64 and on AArch64 with 4 KiB pages.
pub(crate) const GIGANTIC_BYTES: usize = 1 << 30;

/// Size of a huge page on the same, in bytes.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// Size of the default pages in bytes.
pub(crate) const SMALL_BYTES: usize = 4 << 10;

/// The pages that memory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pages {
    /// 1 GiB pages from the pool that the administrator reserved.
    Gigantic,
    /// 2 MiB pages from the pool that the administrator reserved (`vm.nr_hugepages`).
    Huge,
    /// 2 MiB pages that the kernel makes if it finds room (transparent huge pages).
    Transparent,
    /// 4 KiB pages.
    Small,
}

impl Pages {
    /// Size and alignment unit in bytes of a region on such pages.
    pub(crate) fn unit_bytes(self) -> usize {
        match self {
            Self::Gigantic => GIGANTIC_BYTES,
            Self::Huge | Self::Transparent => HUGE_BYTES,
            Self::Small => SMALL_BYTES,
        }
    }

    /// Whether the pages come from a pool that the administrator reserved. Such pages are never
    /// swapped.
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

/// A request for memory. [`Request::new`] fills in the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes wanted; rounded up to whole pages.
    pub bytes: usize,
    /// The pages to try, best first; the first kind that the kernel provides is used.
    pub pages: Vec<Pages>,
    /// The NUMA node for the memory. With `None`, that is the node that first touches it.
    ///
    /// A preference: if the node has no room, or if the kernel ignores the preference, the memory
    /// lies elsewhere, and [`Obtained::node`](crate::Obtained::node) reports where.
    pub node: Option<u32>,
    /// Whether pages on any other node than `node` are refused. Has no effect without `node`;
    /// implies `prefault`, since only populated pages have a node.
    pub node_only: bool,
    /// Whether the memory must never be swapped out. A hard requirement: memory that can't be
    /// locked is refused. Implies `prefault`. Reserved pages are never swapped, so they need no
    /// right to lock.
    pub lock: bool,
    /// Whether to populate all pages now rather than when first touched, which may be in the packet
    /// path. Reserved pages are always populated; for other kinds the first 2 MiB are, to see what
    /// they are.
    pub prefault: bool,
}

impl Request {
    /// A request for `bytes` on any pages, the largest available, on no particular node, not
    /// locked, populated now.
    ///
    /// Pages of 1 GiB are included if rounding up to whole ones wastes at most an eighth of the
    /// requested size; smaller requests begin with pages of 2 MiB. A request that names
    /// [`Pages::Gigantic`] gets them for any size.
    pub fn new(bytes: usize) -> Self {
        let mut pages = vec![Pages::Huge, Pages::Transparent, Pages::Small];
        if rounding_waste_bytes(bytes, GIGANTIC_BYTES) <= bytes / 8 && bytes > 0 {
            pages.insert(0, Pages::Gigantic);
        }
        Self { bytes, pages, node: None, node_only: false, lock: false, prefault: true }
    }

    /// Whether all pages must be populated before the arena is returned, if they are of the kind
    /// `pages`.
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
