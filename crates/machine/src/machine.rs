//! The machine as the checks see it: its root, its CPUs, and the devices to use.

use super::cpu_list::CpuList;
use super::device::Device;
use super::root::{Root, Unread};
use super::setup::Setup;

/// A machine, and the parts of it that programs will use.
pub(super) struct Machine {
    pub(super) root: Root,
    /// The CPUs of workers, or why they are unknown.
    pub(super) workers: Result<CpuList, Unread>,
    /// Whether the user named them. Otherwise they are those that programs choose.
    pub(super) are_workers_named: bool,
    pub(super) devices: Vec<Device>,
}

impl Machine {
    pub(super) fn new(root: Root, setup: &Setup) -> Self {
        let named = setup.cpus.clone().filter(|cpus| !cpus.is_empty());
        Self {
            are_workers_named: named.is_some(),
            workers: named.map_or_else(|| usual_workers(&root), Ok),
            devices: setup.devices.iter().map(|name| Device::new(&root, name)).collect(),
            root,
        }
    }

    /// The CPUs of workers.
    pub(super) fn workers(&self) -> Result<&CpuList, Unread> {
        self.workers.as_ref().map_err(Clone::clone)
    }

    /// The CPUs left to the kernel and to other programs.
    pub(super) fn others(&self) -> Result<CpuList, Unread> {
        Ok(online(&self.root)?.without(self.workers()?))
    }

    /// `others` as a command takes them, or a placeholder for the reader to fill in if it is empty.
    pub(super) fn others_text(&self) -> String {
        let others = self.others().ok().filter(|others| !others.is_empty());
        others.map_or_else(|| "<CPUs without workers>".to_owned(), |others| others.to_string())
    }

    /// The hardware threads of a CPU's physical core, including itself.
    pub(super) fn siblings(&self, cpu: usize) -> Result<CpuList, Unread> {
        siblings(&self.root, cpu)
    }

    /// Each NUMA node and its CPUs.
    pub(super) fn nodes(&self) -> Result<Vec<(usize, CpuList)>, Unread> {
        let nodes = self.root.some_cpus("sys/devices/system/node/online")?;
        let cpus = |node| {
            let path = format!("sys/devices/system/node/node{node}/cpulist");
            Ok((node, self.root.cpus(&path)?))
        };
        nodes.iter().map(cpus).collect()
    }

    /// The CPUs to which the scheduler moves no thread on its own: isolcpus, and isolated
    /// partitions of cgroups.
    pub(super) fn isolated(&self) -> Result<CpuList, Unread> {
        let partitions = self.root.cpus("sys/fs/cgroup/cpuset.cpus.isolated").unwrap_or_default();
        Ok(booted_isolated(&self.root)?.or(&partitions))
    }

    /// The value of a parameter on the kernel's command line. If repeated, the last one counts.
    pub(super) fn boot_parameter(&self, name: &str) -> Result<Option<String>, Unread> {
        let line = self.root.text("proc/cmdline")?;
        let value = |word: &str| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        Ok(line.split_whitespace().filter_map(value).next_back())
    }
}

fn online(root: &Root) -> Result<CpuList, Unread> {
    root.some_cpus("sys/devices/system/cpu/online")
}

fn booted_isolated(root: &Root) -> Result<CpuList, Unread> {
    root.cpus("sys/devices/system/cpu/isolated")
}

fn siblings(root: &Root, cpu: usize) -> Result<CpuList, Unread> {
    root.cpus(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
}

/// A field of /proc/self/status.
pub(super) fn status_field(root: &Root, name: &str) -> Result<String, Unread> {
    let status = root.text("proc/self/status")?;
    let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
    let missing = || Unread::new(format!("/proc/self/status has no {name}"));
    status.lines().find_map(value).ok_or_else(missing)
}

/// The CPUs that this process may run on.
pub(super) fn allowed(root: &Root) -> Result<CpuList, Unread> {
    let list = status_field(root, "Cpus_allowed_list")?;
    list.parse().map_err(|_| Unread::new(format!("/proc/self/status lists no CPUs: {list:?}")))
}

/// The CPUs of workers if the user names none: the isolated ones. If no CPU is isolated, all that
/// this process may use but the first, one of each physical core, as placement does.
fn usual_workers(root: &Root) -> Result<CpuList, Unread> {
    let mut cpus = booted_isolated(root).unwrap_or_default();
    if cpus.is_empty() {
        cpus = match (online(root), allowed(root)) {
            (Ok(online), Ok(allowed)) => online.and(&allowed),
            (Ok(cpus), Err(_)) | (Err(_), Ok(cpus)) => cpus,
            (Err(unread), Err(_)) => return Err(unread),
        };
        if cpus.len() > 1 {
            cpus = cpus.iter().skip(1).collect();
        }
    }
    let is_first = |cpu: &usize| {
        let siblings = siblings(root, *cpu).unwrap_or_default();
        !siblings.iter().any(|sibling| sibling < *cpu && cpus.contains(sibling))
    };
    Ok(cpus.iter().filter(is_first).collect())
}
