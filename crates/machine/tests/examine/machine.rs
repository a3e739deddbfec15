//! A machine without faults, made of files.

use hotloop_machine::{Finding, Setup, examine};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

pub const CPU: &str = "sys/devices/system/cpu";
pub const NODE: &str = "sys/devices/system/node";
pub const PCI: &str = "sys/bus/pci/devices";
pub const NIC: &str = "0000:41:00.0";
pub const PAGES: &str = "hugepages/hugepages-2048kB";

/// The entry at a path.
#[derive(Clone)]
pub enum Entry {
    File(String),
    ReadOnly(String),
    Link(String),
}

impl Entry {
    pub fn write(&self, path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match self {
            Self::File(text) => fs::write(path, text).unwrap(),
            Self::ReadOnly(text) => {
                fs::write(path, text).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
            }
            Self::Link(target) => symlink(target, path).unwrap(),
        }
    }
}

/// The files of a machine.
#[derive(Clone, Default)]
pub struct Files(pub BTreeMap<String, Entry>);

impl Files {
    pub fn file(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.0.insert(path.into(), Entry::File(text.into() + "\n"));
    }

    /// A file that is read-only even for root.
    pub fn read_only(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.0.insert(path.into(), Entry::ReadOnly(text.into() + "\n"));
    }

    pub fn link(&mut self, path: impl Into<String>, target: impl Into<String>) {
        self.0.insert(path.into(), Entry::Link(target.into()));
    }

    pub fn remove(&mut self, path: &str) {
        let is_below = |other: &str| other == path || other.starts_with(&format!("{path}/"));
        let before = self.0.len();
        self.0.retain(|other, _| !is_below(other));
        assert!(self.0.len() < before, "{path} was there");
    }

    /// The findings on a machine with these files.
    pub fn examine(&self, setup: &Setup) -> Vec<Finding> {
        let root = tempfile::tempdir().unwrap();
        self.write(root.path());
        examine(root.path(), setup)
    }

    pub fn write(&self, root: &Path) {
        for (path, entry) in &self.0 {
            entry.write(&root.join(path));
        }
    }
}

/// Two sockets of two cores with two threads each. Node 0 has CPUs 0, 1, 4 and 5; node 1 has 2, 3,
/// 6 and 7, a NIC and an interface. Workers run on 2 and 3.
pub fn machine() -> Files {
    let mut files = Files::default();
    files.file(format!("{CPU}/online"), "0-7");
    files.file(format!("{CPU}/isolated"), "2-3,6-7");
    files.file(format!("{CPU}/nohz_full"), "2-3");
    files.file(format!("{CPU}/intel_pstate/max_perf_pct"), "100");
    files.file(format!("{CPU}/intel_pstate/no_turbo"), "0");
    files.file(format!("{NODE}/online"), "0-1");
    for (node, cpus) in [(0, "0-1,4-5"), (1, "2-3,6-7")] {
        files.file(format!("{NODE}/node{node}/cpulist"), cpus);
        for pool in [format!("{NODE}/node{node}/{PAGES}"), format!("sys/kernel/mm/{PAGES}")] {
            files.file(format!("{pool}/nr_hugepages"), "1024");
            files.file(format!("{pool}/free_hugepages"), "1000");
        }
    }
    for cpu in 0..8 {
        let core = cpu % 4;
        let folder = format!("{CPU}/cpu{cpu}");
        files.file(
            format!("{folder}/topology/thread_siblings_list"),
            format!("{core},{}", core + 4),
        );
        files.file(format!("{folder}/cpufreq/scaling_governor"), "performance");
        files.file(format!("{folder}/cpufreq/cpuinfo_max_freq"), "3500000");
        files.file(format!("{folder}/cpufreq/scaling_max_freq"), "3500000");
    }
    kernel(&mut files);
    process(&mut files);
    devices(&mut files);
    files
}

/// Replaces the cpufreq driver by acpi-cpufreq, which lists frequencies without boost.
pub fn acpi_cpufreq(files: &mut Files) {
    files.remove(&format!("{CPU}/intel_pstate"));
    files.file(format!("{CPU}/cpufreq/boost"), "1");
    for cpu in 0..8 {
        let folder = format!("{CPU}/cpu{cpu}/cpufreq");
        files.file(format!("{folder}/cpuinfo_max_freq"), "4100000");
        files.file(format!("{folder}/scaling_available_frequencies"), "3500000 1200000 ");
        files.file(format!("{folder}/bios_limit"), "3500000");
    }
}

fn kernel(files: &mut Files) {
    files.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz isolcpus=2-3,6-7 nohz_full=2-3 rcu_nocbs=2-3");
    files.file(
        "proc/interrupts",
        "           CPU0       CPU1       CPU2       CPU3       CPU4       CPU5       CPU6       CPU7
  9:          0          4          0          0          0          0          0          0  IO-APIC  9-fasteoi  acpi
 36:     300000          0         12          0          0          0          0          0  PCI-MSIX-0000:00:02.0  1-edge  nvme0q1
 37:          0          0          0          0          0          0          0          0  PCI-MSIX-0000:00:02.0  2-edge  nvme0q2
LOC:   17094611   15686815      90000      90000          0          0          0          0  Local timer interrupts",
    );
    // 36 came to CPU 2 once, before it was moved; 37 may go there and never did.
    for (irq, cpus) in [(9, "1"), (36, "0"), (37, "2")] {
        files.file(format!("proc/irq/{irq}/effective_affinity_list"), cpus);
        files.file(format!("proc/irq/{irq}/smp_affinity_list"), cpus);
    }
    let clock = "sys/devices/system/clocksource/clocksource0";
    files.file(format!("{clock}/current_clocksource"), "tsc");
    files.file(format!("{clock}/available_clocksource"), "tsc hpet acpi_pm ");
    files.file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
    files.file("proc/sys/kernel/sched_rt_runtime_us", "950000");
    files.file("proc/sys/kernel/numa_balancing", "0");
    files.file("proc/sys/net/netfilter/nf_conntrack_count", "0");
    files.file("proc/sys/net/netfilter/nf_conntrack_max", "65536");
    files.file("proc/net/fib_trie", fib_trie("198.51.100.2\n              /32 host LOCAL"));
    files.file("proc/net/ipv6_route", ipv6_route("20010db8000000000000000000000002", "80200001"));
    files.file("proc/meminfo", "MemTotal: 65536 kB\nSwapTotal:  1000000 kB\nSwapFree:  1000000 kB");
    let zone = "sys/class/powercap/intel-rapl:0";
    files.file(format!("{zone}/enabled"), "1");
    files.file(format!("{zone}/constraint_0_power_limit_uw"), "150000000");
    files.file(format!("{zone}/constraint_0_max_power_uw"), "150000000");
    // A core's own limit is another figure.
    files.file(format!("{zone}:0/constraint_0_power_limit_uw"), "0");
}

/// Routes of IPv4 in the kernel's format, with `route` for the address and the rest of its lines.
pub fn fib_trie(route: &str) -> String {
    format!(
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     +-- 127.0.0.0/8 2 0 2\n           |-- 127.0.0.0\n              \
         /8 host LOCAL\n     +-- 198.51.100.0/24 2 0 2\n           |-- 198.51.100.0\n              /24 \
         link UNICAST\n           |-- {route}\n        |-- 198.51.100.255\n           /32 link \
         BROADCAST"
    )
}

/// Routes of IPv6 in the kernel's format, with one to an address.
pub fn ipv6_route(address: &str, flags: &str) -> String {
    let none = "0".repeat(32);
    let line = |to: &str, length, flags| {
        format!("{to} {length} {none} 00 {none} 00000100 00000001 00000000 {flags} eth1")
    };
    let link = line("20010db8000000000000000000000000", "40", "00000001");
    format!("{link}\n{}", line(address, "80", flags))
}

fn process(files: &mut Files) {
    files.file("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-7");
    files.file(
        "proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n\
         Max locked memory         unlimited            unlimited            bytes",
    );
    files.file("proc/self/cgroup", "0::/system.slice/nf.service");
    let cgroup = "sys/fs/cgroup";
    files.file(format!("{cgroup}/cpuset.cpus.effective"), "0-7");
    files.file(format!("{cgroup}/system.slice/cpu.max"), "max 100000");
    files.file(format!("{cgroup}/system.slice/nf.service/cpu.max"), "max 100000");
    files.file(format!("{cgroup}/system.slice/nf.service/cpuset.cpus.effective"), "0-7");
    files.file(format!("{cgroup}/system.slice/nf.service/hugetlb.2MB.max"), "max");
    let libraries = "usr/lib/x86_64-linux-gnu";
    files.file(format!("{libraries}/librte_eal.so.23.0"), "");
    files.link(format!("{libraries}/librte_eal.so.23"), "librte_eal.so.23.0");
    files.file(format!("{libraries}/dpdk/pmds-23.0/librte_net_ice.so.23.0"), "");
}

fn devices(files: &mut Files) {
    for (address, driver) in
        [(NIC, "vfio-pci"), ("0000:40:01.0", "pcieport"), ("0000:42:00.0", "vfio-pci")]
    {
        let folder = format!("{PCI}/{address}");
        files.link(format!("{folder}/driver"), format!("../../../../bus/pci/drivers/{driver}"));
        files.link(format!("{folder}/iommu_group"), "../../../../kernel/iommu_groups/17");
        files.file(format!("{folder}/numa_node"), "1");
        files.file(format!("{folder}/current_link_width"), "16");
        files.file(format!("{folder}/max_link_width"), "16");
        files.file(format!("sys/kernel/iommu_groups/17/devices/{address}"), "");
    }
    files.file("sys/class/net/eth1/device/numa_node", "1");
    files.file("sys/class/net/veth0/operstate", "up");
}

pub fn setup() -> Setup {
    let devices =
        ["41:00.0", "net_af_packet0,iface=eth1", "net_af_xdp0,iface=veth0", "net_null0,size=64"];
    let vips = ["198.51.100.7", "2001:db8::7"];
    Setup {
        cpus: Some("2-3".parse().unwrap()),
        devices: devices.map(str::to_owned).into(),
        vips: vips.map(|vip| vip.parse().unwrap()).into(),
    }
}
