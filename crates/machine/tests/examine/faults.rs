//! Faults to plant, one by one.

use super::machine::{CPU, Files, NIC, NODE, PAGES, PCI, acpi_cpufreq, fib_trie, ipv6_route};
use hotloop_machine::Severity;
use hotloop_machine::Severity::{Safety, Speed};

/// A fault: the check that finds it, its severity, the command's text, and the function that plants
/// it.
pub type Planted = (&'static str, Severity, &'static str, fn(&mut Files));

pub const ALL: [&[Planted]; 3] = [OF_CORES, OF_THE_MACHINE, OF_DEVICES];

#[rustfmt::skip]
const OF_CORES: &[Planted] = &[
    ("cpus", Safety, "cpu3/online", |m| {
        m.file(format!("{CPU}/online"), "0-2,4-7");
    }),
    ("cpus", Safety, "AllowedCPUs=0-7", |m| {
        m.file("sys/fs/cgroup/system.slice/nf.service/cpuset.cpus.effective", "0-2,4-7");
    }),
    ("cpus", Speed, "taskset -c 0-7", |m| {
        m.file("proc/self/status", "CapEff:\t0\nCpus_allowed_list:\t0-1,4-5");
    }),
    ("cpu-quota", Speed, "CPUQuota=", |m| {
        m.file("sys/fs/cgroup/system.slice/cpu.max", "150000 100000");
    }),
    ("cpu-quota", Speed, "CPUQuota=", |m| {
        m.file("proc/self/cgroup", "4:cpu,cpuacct:/docker/ab\n3:cpuset:/");
        m.file("sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us", "200000");
        m.file("sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us", "100000");
    }),
    ("smt", Speed, "lscpu", |m| {
        m.file(format!("{CPU}/cpu2/topology/thread_siblings_list"), "2-3");
        m.file(format!("{CPU}/cpu3/topology/thread_siblings_list"), "2-3");
    }),
    ("smt", Speed, "echo 0 > /sys/devices/system/cpu/cpu6/online", |m| {
        m.file(format!("{CPU}/isolated"), "2-3,7");
    }),
    ("isolation", Speed, "isolcpus=2-3", |m| m.file(format!("{CPU}/isolated"), "")),
    ("tick", Speed, "nohz_full=2-3", |m| m.file(format!("{CPU}/nohz_full"), "(null)")),
    ("interrupts", Speed, "for irq in 36; do echo 0-1,4-7 > /proc/irq/$irq/smp_affinity_list", |m| {
        m.file("proc/irq/36/effective_affinity_list", "2");
    }),
    ("interrupts", Speed, "boot with isolcpus=managed_irq,domain,2-3  # only the kernel can move 36", |m| {
        m.file("proc/irq/36/effective_affinity_list", "2");
        m.read_only("proc/irq/36/smp_affinity_list", "0-7");
    }),
    ("governor", Speed, "for cpu in 2 3; do echo performance", |m| {
        m.file(format!("{CPU}/cpu3/cpufreq/scaling_governor"), "powersave");
    }),
    ("frequency-cap", Speed, "max_perf_pct", |m| {
        m.file(format!("{CPU}/intel_pstate/max_perf_pct"), "60");
    }),
    ("frequency-cap", Speed, "processor.ignore_ppc=1", |m| {
        acpi_cpufreq(m);
        m.file(format!("{CPU}/cpu2/cpufreq/bios_limit"), "2400000");
    }),
    ("frequency-cap", Speed, "for cpu in 2 3; do echo 3500000 > ", |m| {
        acpi_cpufreq(m);
        m.file(format!("{CPU}/cpu2/cpufreq/scaling_max_freq"), "1200000");
    }),
    ("frequency-cap", Speed, "for cpu in 2 3; do echo 3500000 > ", |m| {
        m.file(format!("{CPU}/cpu3/cpufreq/scaling_max_freq"), "1200000");
    }),
    ("boost", Speed, "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo", |m| {
        m.file(format!("{CPU}/intel_pstate/no_turbo"), "1");
    }),
    ("boost", Speed, "echo 1 > /sys/devices/system/cpu/cpufreq/boost", |m| {
        acpi_cpufreq(m);
        m.file(format!("{CPU}/cpufreq/boost"), "0");
    }),
    ("power-limit", Speed, "echo 150000000 > /sys/class/powercap/intel-rapl:0/", |m| {
        m.file("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "95000000");
    }),
];

#[rustfmt::skip]
const OF_THE_MACHINE: &[Planted] = &[
    ("dpdk", Safety, "install dpdk", |m| {
        m.remove("usr/lib/x86_64-linux-gnu");
        m.file("usr/lib64/librte_eal.so.21.0", "");
        m.file("usr/lib64/dpdk/pmds-21.0/librte_net_ice.so", "");
    }),
    ("dpdk-drivers", Safety, "install dpdk", |m| m.remove("usr/lib/x86_64-linux-gnu/dpdk")),
    ("hugepages", Speed, "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", |m| {
        for node in 0..2 {
            m.file(format!("{NODE}/node{node}/{PAGES}/nr_hugepages"), "0");
        }
    }),
    ("hugepages", Speed, "node1/hugepages/hugepages-2048kB/nr_hugepages", |m| {
        m.file(format!("{NODE}/node1/{PAGES}/nr_hugepages"), "0");
    }),
    ("hugepage-limit", Safety, "hugetlb.2MB.max", |m| {
        m.file("sys/fs/cgroup/system.slice/nf.service/hugetlb.2MB.max", "1073741824");
    }),
    ("transparent-hugepages", Speed, "echo madvise", |m| {
        m.file("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
    }),
    ("memlock", Safety, "ulimit -l unlimited", |m| {
        m.file("proc/self/limits", "Max locked memory         8388608      8388608   bytes");
    }),
    ("swap", Speed, "swapoff -a", |m| {
        m.file("proc/meminfo", "SwapTotal:  1000000 kB\nSwapFree:  800000 kB");
    }),
    ("numa-balancing", Speed, "numa_balancing=0", |m| m.file("proc/sys/kernel/numa_balancing", "1")),
    ("clock-source", Speed, "echo tsc", |m| {
        m.file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet");
    }),
    ("clock-source", Speed, "tsc=reliable", |m| {
        m.file("sys/devices/system/clocksource/clocksource0/current_clocksource", "acpi_pm");
        m.file("sys/devices/system/clocksource/clocksource0/available_clocksource", "hpet acpi_pm");
    }),
    ("real-time", Safety, "sched_rt_runtime_us=950000", |m| {
        m.file("proc/sys/kernel/sched_rt_runtime_us", "-1");
    }),
    ("connection-table", Safety, "nf_conntrack_max=262144", |m| {
        m.file("proc/sys/net/netfilter/nf_conntrack_count", "65000");
    }),
    ("tracking", Speed, "iifname eth1 notrack", |m| {
        m.file("proc/sys/net/netfilter/nf_conntrack_count", "100");
    }),
];

#[rustfmt::skip]
const OF_DEVICES: &[Planted] = &[
    ("device", Safety, "ls /sys/bus/pci/devices", |m| m.remove(&format!("{PCI}/{NIC}"))),
    ("device", Safety, "ls /sys/class/net", |m| {
        m.remove("sys/class/net/eth1");
    }),
    ("driver", Safety, "dpdk-devbind.py --bind=vfio-pci 0000:41:00.0", |m| {
        m.link(format!("{PCI}/{NIC}/driver"), "../../../../bus/pci/drivers/ice");
    }),
    ("driver", Safety, "dpdk-devbind.py --bind=vfio-pci 0000:41:00.0", |m| {
        m.link(format!("{PCI}/{NIC}/driver"), "../../../../bus/pci/drivers/uio_pci_generic");
    }),
    ("driver", Safety, "modprobe vfio-pci", |m| m.remove(&format!("{PCI}/{NIC}/driver"))),
    ("iommu", Safety, "intel_iommu=on", |m| m.remove(&format!("{PCI}/{NIC}/iommu_group"))),
    ("iommu", Safety, "intel_iommu=on", |m| {
        m.file("sys/kernel/iommu_groups/17/name", "vfio-noiommu");
    }),
    ("iommu-group", Safety, "--bind=vfio-pci 0000:42:00.0", |m| {
        m.link(format!("{PCI}/0000:42:00.0/driver"), "../../../../bus/pci/drivers/ice");
    }),
    ("node", Speed, "--cpus 0-1,4-5", |m| m.file(format!("{PCI}/{NIC}/numa_node"), "0")),
    ("pcie-lanes", Speed, "16 lanes", |m| m.file(format!("{PCI}/{NIC}/current_link_width"), "4")),
    ("vip", Safety, "ip address del 198.51.100.7/", |m| {
        m.file("proc/net/fib_trie", fib_trie("198.51.100.7\n              /32 host LOCAL"));
    }),
    // A whole prefix may be local.
    ("vip", Safety, "ip address del 198.51.100.7/", |m| {
        m.file("proc/net/fib_trie", fib_trie("198.51.100.0\n              /29 host LOCAL"));
    }),
    ("vip", Safety, "ip address del 2001:db8::7/", |m| {
        m.file("proc/net/ipv6_route", ipv6_route("20010db8000000000000000000000007", "80200001"));
    }),
];
