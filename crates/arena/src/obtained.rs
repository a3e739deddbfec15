//! The result of a request.

use std::fmt;

use crate::request::Pages;

/// The result of a [`Request`](crate::Request), as reported by the kernel after the pages were
/// populated: `/proc/self/smaps` for pages and locks, `/proc/self/numa_maps` for nodes, or
/// `get_mempolicy` of the first page if that can't be read.
///
/// Facts that the kernel doesn't report are `None`, never a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Obtained {
    /// The pages of the region. [`Pages::Transparent`] means some of the region: see `huge_bytes`.
    pub pages: Pages,
    /// Size of the region in bytes.
    pub bytes: usize,
    /// Bytes populated so far; the rest will be when first touched.
    pub resident_bytes: Option<usize>,
    /// Bytes on pages of 2 MiB or 1 GiB so far.
    pub huge_bytes: Option<usize>,
    /// Populated bytes that can't be swapped out: all or none, and all of reserved pages.
    pub locked_bytes: Option<usize>,
    /// The node with most of the pages.
    pub node: Option<u32>,
    /// Bytes on any other node; also `None` if only the first page's node is known.
    pub off_node_bytes: Option<usize>,
}

impl fmt::Display for Obtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB on {}", self.bytes >> 10, self.pages)?;
        match (self.pages, self.huge_bytes) {
            (Pages::Transparent, Some(bytes)) => write!(f, " ({} KiB of it)", bytes >> 10)?,
            (Pages::Small, Some(bytes)) if bytes > 0 => {
                write!(f, " (but {} KiB on huge pages)", bytes >> 10)?;
            }
            _ => {}
        }
        if let Some(bytes) = self.resident_bytes.filter(|&bytes| bytes < self.bytes) {
            write!(f, ", {} KiB taken", bytes >> 10)?;
        }
        if let Some(node) = self.node {
            write!(f, ", node {node}")?;
        }
        if let Some(bytes) = self.off_node_bytes.filter(|&bytes| bytes > 0) {
            write!(f, " (but {} KiB on others)", bytes >> 10)?;
        }
        match self.locked_bytes {
            Some(1..) => f.write_str(", locked"),
            _ => Ok(()),
        }
    }
}

/// Progress in populating an arena's memory.
///
/// If a kind of pages runs out on the way, the next kind begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The pages being populated.
    pub pages: Pages,
    /// Bytes populated so far.
    pub done_bytes: usize,
    /// Bytes to populate.
    pub total_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn it_is_one_line_for_an_operator() {
        let whole = Obtained {
            pages: Pages::Huge,
            bytes: 4 * MIB,
            resident_bytes: Some(4 * MIB),
            huge_bytes: Some(4 * MIB),
            locked_bytes: Some(4 * MIB),
            node: Some(1),
            off_node_bytes: Some(0),
        };
        assert_eq!(whole.to_string(), "4096 KiB on 2 MiB pages, node 1, locked");

        let partly = Obtained {
            pages: Pages::Transparent,
            huge_bytes: Some(2 * MIB),
            resident_bytes: Some(3 * MIB),
            locked_bytes: Some(0),
            off_node_bytes: Some(MIB),
            ..whole
        };
        let text = "4096 KiB on transparent huge pages (2048 KiB of it), 3072 KiB taken, node 1 \
                    (but 1024 KiB on others)";
        assert_eq!(partly.to_string(), text);

        let forced = Obtained { pages: Pages::Small, node: None, off_node_bytes: None, ..partly };
        let text = "4096 KiB on 4 KiB pages (but 2048 KiB on huge pages), 3072 KiB taken";
        assert_eq!(forced.to_string(), text);

        let unknown = Obtained {
            pages: Pages::Gigantic,
            bytes: 1 << 30,
            resident_bytes: None,
            huge_bytes: None,
            locked_bytes: None,
            ..forced
        };
        assert_eq!(unknown.to_string(), "1048576 KiB on 1 GiB pages");
    }
}
