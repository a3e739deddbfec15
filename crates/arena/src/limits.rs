//! Limits of available memory: pools of reserved pages, the machine, the memory cgroup.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::proc::{kib, read};

/// The state of a pool of reserved pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    /// Pages that nobody holds or was promised.
    pub(crate) free_count: usize,
    /// Total number of pages.
    pub(crate) reserved_count: usize,
}

/// The pool of pages of `page_bytes`. `None` if the kernel has no such pages, or doesn't show them.
pub(crate) fn pool(page_bytes: usize) -> Option<Pool> {
    let kib = page_bytes >> 10;
    let folder = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB"));
    let count = |name| number::<usize>(&folder.join(name));
    let free_count = count("free_hugepages")?.saturating_sub(count("resv_hugepages")?);
    Some(Pool { free_count, reserved_count: count("nr_hugepages")? })
}

/// Bytes that can be populated before the kernel begins to swap or to kill processes: the memory
/// available on the machine or the total limit of this process's cgroups, whichever is less.
pub(crate) fn available_bytes() -> Option<usize> {
    let machine = read("/proc/meminfo").and_then(|text| mem_available(&text));
    let cgroups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = cgroup_limits(&cgroups);
    limits.iter().filter_map(|path| number(path)).chain(machine).min()
}

fn mem_available(meminfo: &str) -> Option<usize> {
    kib(meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?)
}

/// The files that may hold a memory limit of the groups in `/proc/self/cgroup`, of either version,
/// and of their parents.
fn cgroup_limits(cgroups: &str) -> Vec<PathBuf> {
    let mut limits = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        limits.extend(group.ancestors().map(|group| Path::new(root).join(group).join(name)));
    }
    limits
}

/// The number in a file; `None` for text like `max`.
fn number<N: FromStr>(path: &Path) -> Option<N> {
    read(path)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_found_among_the_rest() {
        let meminfo = "MemTotal:       24684252 kB\nMemAvailable:    1024 kB\nBuffers: 8 kB\n";
        assert_eq!(mem_available(meminfo), Some(1 << 20));
        assert_eq!(mem_available("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn both_versions_of_cgroups_have_limits() {
        let limits = cgroup_limits("9:name=systemd:/\n4:cpu,memory:/a/b:c\n0::/d\nno line\n");
        let expected = [
            "/sys/fs/cgroup/memory/a/b:c/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/d/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(limits, expected.map(PathBuf::from));
    }

    #[test]
    fn a_size_that_no_kernel_has_has_no_pool() {
        assert_eq!(pool(3 << 20), None);
    }

    #[test]
    fn some_memory_is_available() {
        assert!(available_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }
}
