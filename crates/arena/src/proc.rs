//! What the kernel tells of a region, from `/proc` and `/sys`.

use std::fs;

/// What `smaps` says of one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Smap {
    /// Bytes of a page as the kernel maps it.
    pub(crate) page_bytes: usize,
    /// Bytes on pages larger than the small ones, transparent or from the reserved pool.
    pub(crate) huge_bytes: usize,
}

/// What `/proc/self/smaps` says of the mapping that starts at `addr`.
pub(crate) fn smap(addr: usize) -> Option<Smap> {
    parse_smaps(&fs::read_to_string("/proc/self/smaps").ok()?, addr)
}

/// The node that holds most pages of the mapping that starts at `addr`.
pub(crate) fn node(addr: usize) -> Option<u32> {
    parse_numa_maps(&fs::read_to_string("/proc/self/numa_maps").ok()?, addr)
}

/// The NUMA nodes that are online, as the kernel lists them (`0-1`).
pub(crate) fn nodes_online() -> String {
    match fs::read_to_string("/sys/devices/system/node/online") {
        Ok(nodes) => nodes.trim().to_owned(),
        Err(_) => "0".to_owned(),
    }
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

fn parse_smaps(text: &str, addr: usize) -> Option<Smap> {
    let start = format!("{addr:x}-");
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&start));
    lines.next()?;
    let mut page_bytes = None;
    let mut huge_bytes = 0;
    for line in lines {
        let Some((name, rest)) = line.split_once(':') else { break };
        let Some(bytes) = kib(rest) else {
            // The last line of a mapping has flags for a value; the next mapping's first has a
            // colon too, in its device.
            if name == "VmFlags" {
                break;
            }
            continue;
        };
        match name {
            "KernelPageSize" => page_bytes = Some(bytes),
            "AnonHugePages" | "Private_Hugetlb" => huge_bytes += bytes,
            _ => {}
        }
    }
    Some(Smap { page_bytes: page_bytes?, huge_bytes })
}

/// The bytes in ` 2048 kB`.
fn kib(text: &str) -> Option<usize> {
    text.trim().strip_suffix("kB")?.trim_end().parse::<usize>().ok()?.checked_mul(1024)
}

fn parse_numa_maps(text: &str, addr: usize) -> Option<u32> {
    let start = format!("{addr:x} ");
    let line = text.lines().find(|line| line.starts_with(&start))?;
    let counts = line.split(' ').filter_map(|field| {
        let (node, count) = field.strip_prefix('N')?.split_once('=')?;
        Some((count.parse::<u64>().ok()?, node.parse::<u32>().ok()?))
    });
    counts.max_by_key(|&(count, _)| count).map(|(_, node)| node)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0
Size:               2048 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
AnonHugePages:         0 kB
Private_Hugetlb:       0 kB
THPeligible:           1
VmFlags: rd wr mr mw me ac hg
7f1000000000-7f1000400000 rw-p 00000000 00:00 0
Size:               4096 kB
KernelPageSize:        4 kB
AnonHugePages:      2048 kB
THPeligible:           1
VmFlags: rd wr mr mw me ac hg
7f2000000000-7f2000400000 rw-p 00000000 00:0f 1234      /anon_hugepage (deleted)
Size:               4096 kB
KernelPageSize:     2048 kB
AnonHugePages:         0 kB
Private_Hugetlb:    4096 kB
VmFlags: rd wr mr mw me de ht
";

    #[test]
    fn each_mapping_is_read_alone() {
        let found = |addr| parse_smaps(SMAPS, addr).map(|map| (map.page_bytes, map.huge_bytes));
        assert_eq!(found(0x7f00_0000_0000), Some((4096, 0)));
        assert_eq!(found(0x7f10_0000_0000), Some((4096, 2 << 20)));
        assert_eq!(found(0x7f20_0000_0000), Some((2 << 20, 4 << 20)));
        assert_eq!(found(0x7f00_0020_0000), None);
        assert_eq!(found(0xf00_0000_0000), None);
    }

    #[test]
    fn what_is_no_smaps_is_nothing() {
        assert_eq!(parse_smaps("", 4096), None);
        assert_eq!(parse_smaps("1000-2000 rw-p\nKernelPageSize: many kB\n", 4096), None);
    }

    #[test]
    fn the_node_with_most_pages_wins() {
        let maps = "1000 default anon=3 N0=1 N1=2 kernelpagesize_kB=4\n\
                    2000 prefer:1 anon=9 dirty=9 N0=9 kernelpagesize_kB=4\n\
                    3000 default\n";
        let nodes = [0x1000, 0x2000, 0x3000, 0x4000].map(|addr| parse_numa_maps(maps, addr));
        assert_eq!(nodes, [Some(1), Some(0), None, None]);
    }

    #[test]
    fn node_lists_have_ranges() {
        let listed: Vec<_> = (0..7).filter(|&node| is_listed(node, "0-1,4,6-x")).collect();
        assert_eq!(listed, [0, 1, 4]);
    }
}
