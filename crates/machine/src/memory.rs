//! Checks memory: huge pages, limits on locking, swap, and nodes.

use super::cpu_list::CpuList;
use super::device::Device;
use super::finding::Verdict;
use super::machine::{Machine, status_field};
use super::root::Unread;

/// The bit of CAP_IPC_LOCK in a set of capabilities: capabilities(7).
const IPC_LOCK: u64 = 1 << 14;

/// The least lockable memory, in bytes: some rings of packet sockets, and the tables of a small
/// program.
const LOCKABLE_BYTES_MIN: u64 = 64 << 20;

/// Huge pages of one size on one node.
struct Pool {
    node: Option<usize>,
    kib: u64,
    count: i64,
    free: i64,
}

/// Whether the nodes that programs use have huge pages.
pub(super) fn huge_pages(machine: &Machine) -> Result<Verdict, Unread> {
    let pools = pools(machine)?;
    let has = |node: Option<usize>| {
        pools.iter().any(|pool| {
            pool.count > 0 && (node.is_none() || pool.node.is_none() || pool.node == node)
        })
    };
    const WHY: &str = "tables and mempools on 4 KiB pages miss the TLB at nearly each packet; a NIC on \
                       PCI may need huge pages to work at all";
    if !has(None) {
        return Ok(Verdict::speed(
            "no huge pages are reserved",
            WHY,
            "echo 1024 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages  # 2 GiB; kept by \
             vm.nr_hugepages in /etc/sysctl.d",
        ));
    }
    if let Some(node) = used_nodes(machine).into_iter().find(|node| !has(Some(*node))) {
        return Ok(Verdict::speed(
            format!("node {node} has no huge pages, others have"),
            "its workers and ports use small pages, or another node's memory",
            format!(
                "echo 1024 > /sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"
            ),
        ));
    }
    let each = pools.iter().filter(|pool| pool.count > 0).map(|pool| {
        let node = pool.node.map_or_else(String::new, |node| format!(" on node {node}"));
        format!("{} of {} pages of {} MiB free{node}", pool.free, pool.count, pool.kib >> 10)
    });
    Ok(Verdict::ok(each.collect::<Vec<_>>().join(", ")))
}

/// The pools of each node, or of the machine if it has no nodes.
fn pools(machine: &Machine) -> Result<Vec<Pool>, Unread> {
    let nodes = machine.root.some_cpus("sys/devices/system/node/online").unwrap_or_default();
    let mut folders: Vec<_> = nodes
        .iter()
        .map(|node| (Some(node), format!("sys/devices/system/node/node{node}/hugepages")))
        .filter(|(_, folder)| machine.root.has(folder))
        .collect();
    if folders.is_empty() {
        folders.push((None, "sys/kernel/mm/hugepages".to_owned()));
    }
    let mut pools = Vec::new();
    for (node, folder) in folders {
        for size in machine.root.names(&folder)? {
            let kib = size.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB"));
            let Some(kib) = kib.and_then(|kib| kib.parse().ok()) else { continue };
            let number = |name: &str| machine.root.number(&format!("{folder}/{size}/{name}"));
            pools.push(Pool {
                node,
                kib,
                count: number("nr_hugepages")?,
                free: number("free_hugepages")?,
            });
        }
    }
    Ok(pools)
}

/// The nodes of workers and devices, as far as known.
fn used_nodes(machine: &Machine) -> Vec<usize> {
    let none = CpuList::default();
    let workers = machine.workers().unwrap_or(&none);
    let nodes = machine.nodes().unwrap_or_default().into_iter();
    let of_workers = nodes.filter(|(_, cpus)| !cpus.and(workers).is_empty()).map(|(node, _)| node);
    let of_devices = machine.devices.iter().filter_map(|device| device.node(&machine.root));
    of_workers.chain(of_devices).collect()
}

/// Whether the kernel makes huge pages on its own, at any time.
pub(super) fn transparent(machine: &Machine) -> Result<Verdict, Unread> {
    let path = "sys/kernel/mm/transparent_hugepage/enabled";
    let text = machine.root.text(path)?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let (chosen, _) =
        chosen.ok_or_else(|| Unread::new(format!("/{path} has no chosen value: {text:?}")))?;
    if chosen != "always" {
        return Ok(Verdict::ok(format!("transparent huge pages: {chosen}")));
    }
    Ok(Verdict::speed(
        "the kernel makes transparent huge pages of any memory, unasked",
        "it compacts memory for them when a page is first touched, and moves pages while workers run: \
         pauses of up to milliseconds",
        format!("echo madvise > /{path}  # kept by transparent_hugepage=madvise at boot"),
    ))
}

/// Whether programs may lock memory.
pub(super) fn lockable(machine: &Machine) -> Result<Verdict, Unread> {
    let capabilities = status_field(&machine.root, "CapEff")?;
    let bits = u64::from_str_radix(&capabilities, 16);
    let bits = bits.map_err(|_| Unread::new(format!("CapEff is no set: {capabilities:?}")))?;
    if bits & IPC_LOCK != 0 {
        return Ok(Verdict::ok("any memory may be locked here: CAP_IPC_LOCK"));
    }
    let limits = machine.root.text("proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    let soft = soft.ok_or_else(|| Unread::new("/proc/self/limits has no \"Max locked memory\""))?;
    let Ok(bytes) = soft.parse::<u64>() else {
        return Ok(Verdict::ok("any memory may be locked here"));
    };
    if bytes >= LOCKABLE_BYTES_MIN {
        return Ok(Verdict::ok(format!("{} MiB may be locked here", bytes >> 20)));
    }
    let what = format!("a program that is started here may lock {} KiB of memory", bytes >> 10);
    let fix = "ulimit -l unlimited  # in a systemd unit: LimitMEMLOCK=infinity, or \
               AmbientCapabilities=CAP_IPC_LOCK";
    Ok(match machine.devices.iter().any(Device::locks_memory) {
        true => Verdict::safety(
            what,
            "net_af_xdp, NICs that are bound to vfio-pci and packet sockets of many queues do not start",
            fix,
        ),
        false => Verdict::speed(what, "what is not locked may be swapped out", fix),
    })
}

/// Whether memory has been swapped out.
pub(super) fn swap(machine: &Machine) -> Result<Verdict, Unread> {
    let text = machine.root.text("proc/meminfo")?;
    let kib = |name: &str| {
        let value = |line: &str| {
            line.strip_prefix(name)?.strip_prefix(':')?.split_whitespace().next()?.parse().ok()
        };
        text.lines()
            .find_map(value)
            .ok_or_else(|| Unread::new(format!("/proc/meminfo has no {name}")))
    };
    let (total, free): (u64, u64) = (kib("SwapTotal")?, kib("SwapFree")?);
    if total == 0 {
        return Ok(Verdict::ok("no swap"));
    }
    if free >= total {
        return Ok(Verdict::ok("nothing is swapped out"));
    }
    Ok(Verdict::speed(
        format!("{} MiB of memory are swapped out", (total - free) >> 10),
        "a core that touches a page of its own that was swapped out waits for the disk, milliseconds",
        "swapoff -a  # or give programs that run beside hotloop less memory",
    ))
}

/// Whether the kernel moves memory between nodes.
pub(super) fn balancing(machine: &Machine) -> Result<Verdict, Unread> {
    if machine.nodes().is_ok_and(|nodes| nodes.len() == 1) {
        return Ok(Verdict::ok("one node: memory is not moved between nodes"));
    }
    if machine.root.number("proc/sys/kernel/numa_balancing")? == 0 {
        return Ok(Verdict::ok("memory is not moved between nodes"));
    }
    machine.nodes()?;
    Ok(Verdict::speed(
        "the kernel moves memory between nodes by itself",
        "it takes pages away from cores to see who uses them: page faults in the packet path",
        "sysctl kernel.numa_balancing=0",
    ))
}
