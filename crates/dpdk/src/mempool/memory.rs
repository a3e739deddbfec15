//! The memory of a pool.

use std::fmt;

/// Page size in bytes of a system without larger pages.
const SMALL_PAGE_BYTES: u64 = 4 << 10;

/// The memory of a mempool, as found after the pool was made, not as requested.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MempoolMemory {
    /// Size in bytes.
    pub bytes: u64,
    /// Page size in bytes, the smallest if pages differ; `None` if EAL doesn't know it.
    pub page_bytes: Option<u64>,
    /// The NUMA node that the kernel put the memory on, judged by the first page of each of its
    /// pieces; `None` if they differ, or if the kernel doesn't report it.
    pub node: Option<u32>,
}

impl MempoolMemory {
    /// Whether all of the memory lies on hugepages.
    #[must_use]
    pub fn is_on_hugepages(&self) -> bool {
        self.page_bytes.is_some_and(|bytes| bytes > SMALL_PAGE_BYTES)
    }
}

impl fmt::Display for MempoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB on ", self.bytes >> 10)?;
        match self.page_bytes {
            None => f.write_str("pages of unknown size")?,
            Some(bytes) if bytes >= 1 << 30 => write!(f, "{} GiB pages", bytes >> 30)?,
            Some(bytes) if bytes >= 1 << 20 => write!(f, "{} MiB pages", bytes >> 20)?,
            Some(bytes) => write!(f, "{} KiB pages", bytes >> 10)?,
        }
        self.node.map_or(Ok(()), |node| write!(f, ", node {node}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_line_for_an_operator() {
        let small = MempoolMemory { bytes: 1 << 20, page_bytes: Some(4096), node: Some(1) };
        assert_eq!(small.to_string(), "1024 KiB on 4 KiB pages, node 1");
        let huge = MempoolMemory { page_bytes: Some(2 << 20), ..small };
        assert_eq!(huge.to_string(), "1024 KiB on 2 MiB pages, node 1");
        let gigantic = MempoolMemory { page_bytes: Some(1 << 30), node: None, ..small };
        assert_eq!(gigantic.to_string(), "1024 KiB on 1 GiB pages");
        let unknown = MempoolMemory { page_bytes: None, ..small };
        assert_eq!(unknown.to_string(), "1024 KiB on pages of unknown size, node 1");
        let is_huge = [small, huge, gigantic, unknown].map(|memory| memory.is_on_hugepages());
        assert_eq!(is_huge, [false, true, true, false]);
    }
}
