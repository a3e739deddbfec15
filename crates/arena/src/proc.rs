//! The kernel's report on a region, from `/proc` and `/sys`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

/// One mapping in `smaps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Smap {
    /// Size of a page as the kernel maps it, in bytes.
    pub(crate) page_bytes: usize,
    /// Populated bytes.
    pub(crate) resident_bytes: usize,
    /// Bytes on pages larger than the small ones, transparent or from the reserved pool.
    pub(crate) huge_bytes: usize,
    /// Bytes that can't be swapped out.
    pub(crate) locked_bytes: usize,
}

/// The nodes of one mapping's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// The node with most of the pages.
    pub(crate) node: u32,
    /// Bytes on other nodes.
    pub(crate) off_node_bytes: usize,
}

/// The entry of `/proc/self/smaps` for the mapping that starts at `addr`.
pub(crate) fn smap(addr: usize) -> Option<Smap> {
    parse_smaps(lines("/proc/self/smaps")?, addr)
}

/// The nodes of the pages of the mapping that starts at `addr`.
pub(crate) fn nodes(addr: usize) -> Option<Nodes> {
    // A single node has all pages.
    if let Ok(node) = nodes_online().parse() {
        return Some(Nodes { node, off_node_bytes: 0 });
    }
    parse_numa_maps(lines("/proc/self/numa_maps")?, addr)
}

/// The lines of a file that describes one mapping after another, read a few at a time. To describe
/// a mapping, the kernel walks all of its pages: a caller that stops at the right one saves the
/// rest.
fn lines(path: &str) -> Option<impl Iterator<Item = String>> {
    const STEP_BYTES: usize = 1024;
    let file = if cfg!(miri) { None } else { File::open(path).ok() }?;
    Some(BufReader::with_capacity(STEP_BYTES, file).lines().map_while(Result::ok))
}

/// The NUMA nodes that are online, as the kernel lists them (`0-1`).
pub(crate) fn nodes_online() -> String {
    match read("/sys/devices/system/node/online") {
        Some(nodes) => nodes.trim().to_owned(),
        None => "0".to_owned(),
    }
}

/// The text of a file of the kernel. Miri has no kernel.
pub(crate) fn read(path: impl AsRef<Path>) -> Option<String> {
    if cfg!(miri) { None } else { fs::read_to_string(path).ok() }
}

/// Whether `node` is in a list like `0-1,4`.
pub(crate) fn is_listed(node: u32, list: &str) -> bool {
    list.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&node),
            _ => false,
        }
    })
}

fn parse_smaps(mut lines: impl Iterator<Item = String>, addr: usize) -> Option<Smap> {
    let start = format!("{addr:x}-");
    lines.find(|line| line.starts_with(&start))?;
    let mut page_bytes = None;
    let (mut small_bytes, mut transparent_bytes, mut reserved_bytes) = (0, 0, 0);
    let mut is_locked = false;
    for line in lines {
        let Some((name, rest)) = line.split_once(':') else { break };
        match (name, kib(rest)) {
            ("KernelPageSize", Some(bytes)) => page_bytes = Some(bytes),
            // Reserved pages are not counted here.
            ("Rss", Some(bytes)) => small_bytes = bytes,
            ("AnonHugePages", Some(bytes)) => transparent_bytes = bytes,
            // Some kernels (6.18) occasionally count private pages as shared.
            ("Private_Hugetlb" | "Shared_Hugetlb", Some(bytes)) => reserved_bytes += bytes,
            // The last line of a mapping. The next mapping's first line has a colon, too, in its
            // device.
            ("VmFlags", _) => {
                is_locked = rest.split(' ').any(|flag| flag == "lo");
                break;
            }
            _ => {}
        }
    }
    // Not the line `Locked`, which halves pages that a forked child shares for a moment.
    let locked_bytes = if is_locked { small_bytes } else { 0 };
    Some(Smap {
        page_bytes: page_bytes?,
        resident_bytes: small_bytes + reserved_bytes,
        huge_bytes: transparent_bytes + reserved_bytes,
        // The kernel never swaps these out.
        locked_bytes: locked_bytes + reserved_bytes,
    })
}

/// The bytes in ` 2048 kB`.
pub(crate) fn kib(text: &str) -> Option<usize> {
    text.trim().strip_suffix("kB")?.trim_end().parse::<usize>().ok()?.checked_mul(1024)
}

fn parse_numa_maps(mut lines: impl Iterator<Item = String>, addr: usize) -> Option<Nodes> {
    let start = format!("{addr:x} ");
    let line = lines.find(|line| line.starts_with(&start))?;
    let page_kib = line.split(' ').find_map(|field| field.strip_prefix("kernelpagesize_kB="))?;
    let page_bytes = page_kib.parse::<usize>().ok()?.checked_mul(1024)?;
    let counts = line.split(' ').filter_map(|field| {
        let (node, count) = field.strip_prefix('N')?.split_once('=')?;
        Some((count.parse::<usize>().ok()?, node.parse::<u32>().ok()?))
    });
    let total_count: usize = counts.clone().map(|(count, _)| count).sum();
    let (count, node) = counts.max_by_key(|&(count, _)| count)?;
    Some(Nodes { node, off_node_bytes: (total_count - count) * page_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0
Size:               2048 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                  12 kB
AnonHugePages:         0 kB
Private_Hugetlb:       0 kB
Locked:                0 kB
THPeligible:           1
VmFlags: rd wr mr mw me ac hg
7f1000000000-7f1000400000 rw-p 00000000 00:00 0
Size:               4096 kB
KernelPageSize:        4 kB
Rss:                3072 kB
AnonHugePages:      2048 kB
Locked:             1536 kB
THPeligible:           1
VmFlags: rd wr mr mw me lo ac hg
7f2000000000-7f2000400000 rw-p 00000000 00:0f 1234      /anon_hugepage (deleted)
Size:               4096 kB
KernelPageSize:     2048 kB
Rss:                   0 kB
AnonHugePages:         0 kB
Shared_Hugetlb:     2048 kB
Private_Hugetlb:    2048 kB
VmFlags: rd wr mr mw me de ht
";

    fn lines_of(text: &str) -> impl Iterator<Item = String> {
        text.lines().map(str::to_owned)
    }

    #[test]
    fn each_mapping_is_read_alone() {
        let found = |addr| {
            parse_smaps(lines_of(SMAPS), addr).map(|map| {
                let bytes = [map.resident_bytes, map.huge_bytes, map.locked_bytes];
                (map.page_bytes, bytes.map(|bytes| bytes >> 10))
            })
        };
        assert_eq!(found(0x7f00_0000_0000), Some((4096, [12, 0, 0])));
        assert_eq!(found(0x7f10_0000_0000), Some((4096, [3072, 2048, 3072])));
        assert_eq!(found(0x7f20_0000_0000), Some((2 << 20, [4096, 4096, 4096])));
        assert_eq!(found(0x7f00_0020_0000), None);
        assert_eq!(found(0xf00_0000_0000), None);
    }

    #[test]
    fn what_is_no_smaps_is_nothing() {
        assert_eq!(parse_smaps(lines_of(""), 4096), None);
        let smaps = lines_of("1000-2000 rw-p\nKernelPageSize: many kB\n");
        assert_eq!(parse_smaps(smaps, 4096), None);
    }

    #[test]
    fn the_node_with_most_pages_wins() {
        let maps = "1000 default anon=3 N0=1 N1=2 kernelpagesize_kB=4\n\
                    2000 prefer:1 anon=9 dirty=9 N0=9 kernelpagesize_kB=2048\n\
                    3000 default\n\
                    4000 default kernelpagesize_kB=4\n";
        let nodes = [0x1000, 0x2000, 0x3000, 0x4000, 0x5000].map(|addr| {
            parse_numa_maps(lines_of(maps), addr).map(|map| (map.node, map.off_node_bytes))
        });
        assert_eq!(nodes, [Some((1, 4096)), Some((0, 0)), None, None, None]);
    }

    #[test]
    fn node_lists_have_ranges() {
        let listed: Vec<_> = (0..7).filter(|&node| is_listed(node, "0-1,4,6-x")).collect();
        assert_eq!(listed, [0, 1, 4]);
    }
}
