//! The machine's caches and free memory, as reported by the kernel.

use std::fmt;
use std::fs;
use std::path::PathBuf;

/// A cache of memory, or of address translations.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cache {
    pub name: String,
    pub capacity: Capacity,
}

/// The capacity of a cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Capacity {
    Bytes(usize),
    /// For a TLB: pages of any size.
    Pages(usize),
}

/// The data caches of the first CPU, and its TLB if the kernel reports its size.
pub fn caches() -> Vec<Cache> {
    let folders = (0..)
        .map(|index| PathBuf::from(format!("/sys/devices/system/cpu/cpu0/cache/index{index}")));
    let read = |folder: &PathBuf| {
        let file = |name| fs::read_to_string(folder.join(name)).ok();
        Some([file("level")?, file("type")?, file("size")?])
    };
    let all = folders.map_while(|folder| read(&folder));
    let data = all.filter_map(|[level, kind, size]| cache(&level, &kind, &size));
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    data.chain(tlb(&cpus)).collect()
}

/// An entry of `/sys/devices/system/cpu/cpu0/cache`, if it holds data.
fn cache(level: &str, kind: &str, size: &str) -> Option<Cache> {
    let kib: usize = size.trim().strip_suffix('K')?.parse().ok()?;
    let cache = Cache { name: format!("L{}", level.trim()), capacity: Capacity::Bytes(kib << 10) };
    (kind.trim() != "Instruction").then_some(cache)
}

/// The TLB in `/proc/cpuinfo`, which reports it for AMD processors.
fn tlb(cpus: &str) -> Option<Cache> {
    let line = cpus.lines().find(|line| line.starts_with("TLB size"))?;
    let count = line.split_once(": ")?.1.split(' ').next()?.parse().ok()?;
    Some(Cache { name: "TLB".to_owned(), capacity: Capacity::Pages(count) })
}

/// Memory available for tables, in bytes: free memory, including reserved pages of 2 MiB.
pub fn free_bytes() -> usize {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |name: &str| -> Option<usize> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let of = |name| number(name).unwrap_or(0) << 10;
    of("MemAvailable:") + number("HugePages_Free:").unwrap_or(0) * of("Hugepagesize:")
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, capacity } = self;
        match capacity {
            Capacity::Bytes(bytes) => write!(f, "{name} {} KiB", bytes >> 10),
            Capacity::Pages(count) => write!(f, "{name} {count} pages"),
        }
    }
}
