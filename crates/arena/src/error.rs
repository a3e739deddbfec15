//! Why memory can't be allocated, and what to do about it.

use std::fmt;

use rustix::io::Errno;

use crate::request::{Pages, SMALL_BYTES};

/// Why pages of one kind were not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The kernel refused to map them, with this error.
    Kernel(Errno),
    /// The pool has too few: none were reserved, or others hold them.
    TooFewReserved {
        /// Pages needed.
        needed_count: usize,
        /// Pages of the pool that nobody holds or was promised.
        free_count: usize,
        /// Pages of the pool.
        reserved_count: usize,
    },
    /// All pages should be populated now, and the machine or the memory cgroup has too little
    /// memory.
    TooLittleMemory {
        /// Bytes available.
        available_bytes: usize,
    },
    /// The kernel promised the pages, but failed with this error to populate them.
    Undelivered(Errno),
    /// The kernel provided the memory, but on other pages.
    OnOtherPages {
        /// Size of these pages in bytes.
        page_bytes: usize,
    },
    /// The memory should be locked, and exceeds the limit of the process.
    OverMemlock {
        /// Bytes that the process may lock in total (`RLIMIT_MEMLOCK`).
        limit_bytes: u64,
    },
    /// The kernel claims to have locked the memory, but reports less as locked.
    PartlyLocked {
        /// Bytes that are locked.
        locked_bytes: usize,
    },
    /// The memory must lie on one node, and some of it lies elsewhere.
    OnOtherNode {
        /// The requested node.
        node: u32,
        /// The node that has most of it.
        given_node: u32,
    },
    /// The memory must lie on one node, and the kernel doesn't report where it lies.
    NodeUnknown {
        /// The requested node.
        node: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Kernel(errno) => errno.fmt(f),
            Self::TooFewReserved { reserved_count: 0, .. } => f.write_str("none are reserved"),
            Self::TooFewReserved { needed_count, free_count, reserved_count } => {
                write!(f, "{needed_count} are needed, {free_count} of {reserved_count} are free")
            }
            Self::TooLittleMemory { available_bytes } => {
                write!(f, "only {available_bytes} bytes of memory are available")
            }
            Self::Undelivered(errno) => write!(f, "promised but not given ({errno})"),
            Self::OnOtherPages { page_bytes } => {
                write!(f, "the kernel gave {} KiB pages", page_bytes >> 10)
            }
            Self::OverMemlock { limit_bytes } => {
                write!(f, "the process may lock {limit_bytes} bytes in all")
            }
            Self::PartlyLocked { locked_bytes } => {
                write!(f, "the kernel locked only {locked_bytes} bytes")
            }
            Self::OnOtherNode { node, given_node } => {
                write!(f, "not all lies on NUMA node {node}, most of it on {given_node}")
            }
            Self::NodeUnknown { node } => {
                write!(f, "the kernel doesn't tell whether it lies on NUMA node {node}")
            }
        }
    }
}

/// Why an arena can't be made, or has no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The request was for no bytes.
    #[error("an arena of 0 bytes was asked for: ask for as many as will be allocated from it")]
    Empty,
    /// The request named no pages to try.
    #[error("an arena was asked for with no kind of pages to try: name at least one")]
    NoPages,
    /// The request was for more bytes than an address space has.
    #[error("an arena of {bytes} bytes was asked for, more than can be addressed: ask for less")]
    TooLarge {
        /// Bytes requested.
        bytes: usize,
    },
    /// The request was for a NUMA node that doesn't exist.
    #[error("an arena was asked for on NUMA node {node}; online are: {online}. Name one of them")]
    NoSuchNode {
        /// The requested node.
        node: u32,
        /// The existing nodes, as the kernel lists them.
        online: String,
    },
    /// No kind of pages was available.
    #[error("no arena of {bytes} bytes: {}. To get it, {}", list(tried), remedies(*bytes, tried))]
    NoMemory {
        /// Bytes requested.
        bytes: usize,
        /// The kinds tried, in order, and why each failed.
        tried: Vec<(Pages, Refusal)>,
    },
    /// The arena has no free piece that is large enough for an allocation.
    #[error(
        "no room for {needed_bytes} bytes in the arena, whose largest free piece has \
         {free_bytes_max}: ask for a larger arena (Request::bytes), or drop what it holds first"
    )]
    NoRoom {
        /// Maximum number of bytes that the allocation needs: whole cache lines, and what its
        /// alignment may skip. `usize::MAX` if that exceeds the address space.
        needed_bytes: usize,
        /// Size of the largest free piece in bytes.
        free_bytes_max: usize,
    },
}

fn list(tried: &[(Pages, Refusal)]) -> String {
    let each: Vec<_> = tried.iter().map(|(pages, why)| format!("{pages}: {why}")).collect();
    each.join("; ")
}

fn remedies(bytes: usize, tried: &[(Pages, Refusal)]) -> String {
    let mut remedies = Vec::new();
    for &(pages, refusal) in tried {
        let remedy = remedy(bytes, pages, refusal);
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    remedies.join("; or ")
}

fn remedy(bytes: usize, pages: Pages, refusal: Refusal) -> String {
    match refusal {
        Refusal::TooFewReserved { needed_count, free_count, reserved_count } => {
            let total_count = reserved_count + needed_count.saturating_sub(free_count);
            reserve(pages, total_count)
        }
        Refusal::Kernel(Errno::INVAL) if pages != Pages::Small => {
            format!("name other pages: this kernel has no {pages}")
        }
        Refusal::Undelivered(_) if pages.are_reserved() => {
            "raise the cgroup's limit on huge pages (hugetlb.*.max)".into()
        }
        Refusal::OnOtherPages { .. } if pages.are_reserved() => {
            reserve(pages, bytes.div_ceil(pages.unit_bytes()))
        }
        Refusal::OnOtherPages { .. } => "allow transparent huge pages \
             (/sys/kernel/mm/transparent_hugepage/enabled: madvise)"
            .into(),
        Refusal::OverMemlock { .. } | Refusal::PartlyLocked { .. } => {
            let kib = bytes.next_multiple_of(SMALL_BYTES) >> 10;
            format!(
                "let the process lock {kib} KiB more (ulimit -l, LimitMEMLOCK= of a systemd \
                 unit), give it CAP_IPC_LOCK, or ask without `lock`"
            )
        }
        Refusal::OnOtherNode { node, .. } | Refusal::NodeUnknown { node } => format!(
            "free memory on node {node}, reserve pages on it \
             (/sys/devices/system/node/node{node}/hugepages), let the process use it \
             (cpuset.mems, CAP_SYS_NICE in a container), or ask without `node_only`"
        ),
        Refusal::TooLittleMemory { .. } => {
            "ask for less, free memory, or raise the memory cgroup's limit".into()
        }
        Refusal::Kernel(_) | Refusal::Undelivered(_) => {
            "ask for less, or raise the limits (ulimit -v, memory cgroup)".into()
        }
    }
}

/// How to get `count` pages into the pool.
fn reserve(pages: Pages, count: usize) -> String {
    let kib = pages.unit_bytes() >> 10;
    let boot = match pages {
        Pages::Gigantic => format!(", or boot with hugepagesz=1G hugepages={count}"),
        _ => String::new(),
    };
    format!(
        "reserve {count} pages in all (as root: echo {count} > \
         /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages{boot})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tried: &[(Pages, Refusal)]) -> String {
        ArenaError::NoMemory { bytes: 3 << 30, tried: tried.to_vec() }.to_string()
    }

    #[test]
    fn too_few_pages_say_how_many_to_reserve_and_where() {
        let too_few = Refusal::TooFewReserved { needed_count: 3, free_count: 1, reserved_count: 4 };
        assert_eq!(
            message(&[(Pages::Gigantic, too_few)]),
            "no arena of 3221225472 bytes: 1 GiB pages: 3 are needed, 1 of 4 are free. To get it, \
             reserve 6 pages in all (as root: echo 6 > \
             /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages, or boot with \
             hugepagesz=1G hugepages=6)"
        );
        let none =
            Refusal::TooFewReserved { needed_count: 1_536, free_count: 0, reserved_count: 0 };
        assert_eq!(
            message(&[(Pages::Huge, none)]),
            "no arena of 3221225472 bytes: 2 MiB pages: none are reserved. To get it, reserve \
             1536 pages in all (as root: echo 1536 > \
             /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)"
        );
    }

    #[test]
    fn each_remedy_is_named_once() {
        let over = Refusal::OverMemlock { limit_bytes: 65_536 };
        let text = message(&[(Pages::Transparent, over), (Pages::Small, over)]);
        assert_eq!(text.matches("the process may lock 65536 bytes in all").count(), 2);
        assert_eq!(text.matches("lock 3145728 KiB more (ulimit -l").count(), 1);
        assert_eq!(text.matches("CAP_IPC_LOCK").count(), 1);
    }

    #[test]
    fn every_refusal_has_a_remedy_of_its_kind() {
        let node = Refusal::OnOtherNode { node: 1, given_node: 0 };
        for (pages, refusal, remedy) in [
            (Pages::Gigantic, Refusal::Kernel(Errno::INVAL), "this kernel has no 1 GiB pages"),
            (Pages::Huge, Refusal::Kernel(Errno::NOMEM), "ulimit -v"),
            (Pages::Huge, Refusal::Undelivered(Errno::FAULT), "hugetlb.*.max"),
            (Pages::Huge, Refusal::OnOtherPages { page_bytes: 4_096 }, "reserve 1536 pages"),
            (Pages::Small, Refusal::Undelivered(Errno::NOMEM), "memory cgroup"),
            (Pages::Small, Refusal::TooLittleMemory { available_bytes: 1 }, "free memory"),
            (Pages::Small, Refusal::PartlyLocked { locked_bytes: 1 }, "ask without `lock`"),
            (Pages::Small, Refusal::NodeUnknown { node: 1 }, "CAP_SYS_NICE"),
            (Pages::Small, node, "/sys/devices/system/node/node1/hugepages"),
            (
                Pages::Transparent,
                Refusal::OnOtherPages { page_bytes: 4_096 },
                "/sys/kernel/mm/transparent_hugepage/enabled",
            ),
        ] {
            let text = message(&[(pages, refusal)]);
            assert!(text.contains(&refusal.to_string()), "{text}");
            assert!(text.split_once("To get it, ").unwrap().1.contains(remedy), "{text}");
        }
    }
}
