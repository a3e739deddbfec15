//! What is asked of an arena, and what came of it.

use std::fmt;

/// Bytes of a huge page on x86-64 and on AArch64 with 4 KiB pages.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// Bytes of the pages that every mapping has by default.
pub(crate) const SMALL_BYTES: usize = 4 << 10;

/// The pages that memory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pages {
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
            Self::Huge | Self::Transparent => HUGE_BYTES,
            Self::Small => SMALL_BYTES,
        }
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
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
    pub node: Option<u32>,
    /// Whether to take all pages now rather than when first touched, which may be in the packet
    /// path. [`Pages::Huge`] are always taken now.
    pub prefault: bool,
}

impl Request {
    /// `bytes` on any pages, the largest that can be had, on no particular node, taken now.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes,
            pages: vec![Pages::Huge, Pages::Transparent, Pages::Small],
            node: None,
            prefault: true,
        }
    }
}

/// What a [`Request`] got, as the kernel tells it (`/proc/self/smaps`, `/proc/self/numa_maps`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obtained {
    /// The pages of the region. [`Pages::Transparent`] means some of it: see `huge_bytes`.
    pub pages: Pages,
    /// Bytes of the region.
    pub bytes: usize,
    /// Bytes that lie on huge pages by now; none when `/proc` can't be read.
    pub huge_bytes: Option<usize>,
    /// The node that most of the pages lie on; none when the kernel doesn't say.
    pub node: Option<u32>,
}

impl fmt::Display for Obtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB on {}", self.bytes >> 10, self.pages)?;
        if let (Pages::Transparent, Some(huge_bytes)) = (self.pages, self.huge_bytes) {
            write!(f, " ({} KiB of it)", huge_bytes >> 10)?;
        }
        match self.node {
            Some(node) => write!(f, ", node {node}"),
            None => Ok(()),
        }
    }
}

/// Why pages of one kind could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel refused, with this error.
    Kernel(rustix::io::Errno),
    /// The kernel gave the memory, but on small pages.
    OnSmallPages,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(errno) => errno.fmt(f),
            Self::OnSmallPages => f.write_str("the kernel gave 4 KiB pages"),
        }
    }
}

/// Why there is no arena.
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
        /// Bytes asked for.
        bytes: usize,
    },
    /// The request was for a NUMA node that isn't there.
    #[error("an arena was asked for on NUMA node {node}; online are: {online}. Name one of them")]
    NoSuchNode {
        /// The node asked for.
        node: u32,
        /// The nodes that are there, as the kernel lists them.
        online: String,
    },
    /// No kind of pages could be had.
    #[error("no arena of {bytes} bytes: {}. {}", list(tried), remedy(*bytes, tried))]
    NoMemory {
        /// Bytes asked for.
        bytes: usize,
        /// What was tried, in order, and why it failed.
        tried: Vec<(Pages, Refusal)>,
    },
}

fn list(tried: &[(Pages, Refusal)]) -> String {
    let each: Vec<_> = tried.iter().map(|(pages, why)| format!("{pages}: {why}")).collect();
    each.join("; ")
}

fn remedy(bytes: usize, tried: &[(Pages, Refusal)]) -> String {
    let mut remedies = Vec::new();
    for (pages, _) in tried {
        remedies.push(match pages {
            Pages::Huge => format!(
                "reserve {} huge pages (sysctl vm.nr_hugepages)",
                bytes.div_ceil(HUGE_BYTES)
            ),
            Pages::Transparent => "allow transparent huge pages \
                (/sys/kernel/mm/transparent_hugepage/enabled: madvise)"
                .into(),
            Pages::Small => "ask for less, or raise the limits (ulimit -v, memory cgroup)".into(),
        });
    }
    format!("To get it, {}", remedies.join("; or "))
}
