//! The CPUs of a machine that this process may use, read from the kernel's files.

use std::collections::BTreeSet;
use std::path::Path;

/// One CPU, as the kernel numbers them: a hardware thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cpu {
    /// The kernel's number.
    pub id: usize,
    /// The CPU's NUMA node, if the kernel reports it.
    pub node: Option<u32>,
    /// The CPU's index among the usable hardware threads of one physical core, from 0.
    pub sibling_index: usize,
}

/// The CPUs that this process may use: the online ones in its affinity mask, which a cgroup's
/// cpuset narrows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Topology {
    /// The CPUs, in the kernel's order.
    pub cpus: Vec<Cpu>,
}

impl Topology {
    /// Reads the topology below `root`, which is `/` except in tests. Missing files mean the
    /// simplest case: one node, no siblings, no mask, and the CPUs of the mask online. Without any
    /// file there is one CPU.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let list = |path: &str| text(path).map(|text| parse_list(&text));
        let status = text("proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let allowed = mask.map(parse_list);
        let online = list("sys/devices/system/cpu/online");
        let online = online.or_else(|| allowed.clone()).unwrap_or_else(|| BTreeSet::from([0]));
        let is_allowed = |id: &usize| allowed.as_ref().is_none_or(|allowed| allowed.contains(id));
        let usable: BTreeSet<usize> = online.into_iter().filter(is_allowed).collect();
        let nodes = list("sys/devices/system/node/online").unwrap_or_default();
        let node_cpus: Vec<_> = nodes
            .into_iter()
            .filter_map(|node| {
                let cpus = list(&format!("sys/devices/system/node/node{node}/cpulist"))?;
                Some((u32::try_from(node).ok()?, cpus))
            })
            .collect();
        let cpu = |id: usize| {
            let path = format!("sys/devices/system/cpu/cpu{id}/topology/thread_siblings_list");
            let siblings = list(&path).unwrap_or_default();
            let node = node_cpus.iter().find(|(_, cpus)| cpus.contains(&id));
            Cpu {
                id,
                node: node.map(|(node, _)| *node),
                sibling_index: siblings.range(..id).filter(|id| usable.contains(id)).count(),
            }
        };
        Self { cpus: usable.iter().copied().map(cpu).collect() }
    }
}

/// The numbers in a kernel list such as `0-3,8,10-11`. Entries that are neither a number nor a
/// range are skipped.
fn parse_list(text: &str) -> BTreeSet<usize> {
    /// No machine has more; a range from a broken file must not fill the memory.
    const CPU_COUNT_MAX: usize = 1 << 16;
    let mut numbers = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse::<usize>()) {
            numbers.extend(first..=last.min(CPU_COUNT_MAX));
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_are_numbers_and_ranges() {
        let numbers = |text| parse_list(text).into_iter().collect::<Vec<_>>();
        assert_eq!(numbers("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(numbers(""), [0; 0]);
        assert_eq!(numbers("x,2,-,5-4"), [2]);
        assert_eq!(numbers("7-99999999999").len(), 65_530);
    }
}
