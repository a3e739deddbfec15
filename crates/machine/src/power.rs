//! Checks how fast workers' CPUs may run: "CPU Performance Scaling" in the kernel's documentation.

use super::cpu_list::CpuList;
use super::finding::Verdict;
use super::machine::Machine;
use super::root::Unread;
use std::collections::BTreeMap;

const INTEL: &str = "sys/devices/system/cpu/intel_pstate";

fn file(cpu: usize, name: &str) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}")
}

/// Explains why a CPU has no cpufreq folder.
fn without_driver(unread: Unread) -> Unread {
    if !unread.is_missing {
        return unread;
    }
    Unread::new(format!("{}: the firmware or the hypervisor sets frequencies", unread.why))
}

/// Whether the governor keeps workers' CPUs fast.
pub(super) fn governor(machine: &Machine) -> Result<Verdict, Unread> {
    let mut others: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let workers = machine.workers()?;
    for cpu in workers.iter() {
        let path = file(cpu, "scaling_governor");
        let governor = machine.root.name(&path).map_err(without_driver)?;
        // `userspace` keeps to the frequency set, which is another check.
        if governor != "performance" && governor != "userspace" {
            others.entry(governor).or_default().push(cpu);
        }
    }
    if others.is_empty() {
        return Ok(Verdict::ok(format!("{} kept at full frequency", workers.in_words())));
    }
    let each = others.iter().map(|(governor, cpus)| {
        format!("{governor} on {}", cpus.iter().copied().collect::<CpuList>().in_words())
    });
    Ok(Verdict::speed(
        format!("the frequency governor is {}", each.collect::<Vec<_>>().join(", ")),
        "the frequency follows the load, late: the first packets after a pause meet a slow core",
        format!(
            "for cpu in {}; do echo performance > /sys/devices/system/cpu/cpu$cpu/cpufreq/scaling_governor; done",
            words(workers)
        ),
    ))
}

/// Whether a setting caps frequencies below the hardware's highest.
pub(super) fn cap(machine: &Machine) -> Result<Verdict, Unread> {
    let root = &machine.root;
    let workers = machine.workers()?;
    if let Ok(percent) = root.number(&format!("{INTEL}/max_perf_pct"))
        && percent < 100
    {
        return Ok(Verdict::speed(
            format!("intel_pstate allows {percent} % of the highest frequency"),
            "every packet takes longer by as much",
            format!("echo 100 > /{INTEL}/max_perf_pct"),
        ));
    }
    for cpu in workers.iter() {
        let number = |name: &str| root.number(&file(cpu, name));
        let listed = highest_listed(machine, cpu);
        // The firmware's own limit (_PPC of ACPI), reported by acpi-cpufreq.
        if let (Ok(limit), Some(highest)) = (number("bios_limit"), listed)
            && limit < highest
        {
            return Ok(Verdict::speed(
                format!(
                    "the firmware caps CPU {cpu} at {} of {} MHz",
                    limit / 1000,
                    highest / 1000
                ),
                "every packet takes longer by as much; firmware does so to save power, or for a weak \
                 power supply",
                "boot with processor.ignore_ppc=1",
            ));
        }
        let highest = listed.map_or_else(|| number("cpuinfo_max_freq"), Ok);
        let highest = highest.map_err(without_driver)?;
        let set = number("scaling_max_freq").map_err(without_driver)?;
        if set < highest {
            return Ok(Verdict::speed(
                format!("CPU {cpu} is capped at {} of {} MHz", set / 1000, highest / 1000),
                "every packet takes longer by as much",
                format!(
                    "for cpu in {}; do echo {highest} > \
                     /sys/devices/system/cpu/cpu$cpu/cpufreq/scaling_max_freq; done",
                    words(workers)
                ),
            ));
        }
    }
    Ok(Verdict::ok(format!("{} may reach the highest frequency", workers.in_words())))
}

/// The highest frequency in a CPU's list, in kHz, if its driver has a list. With such drivers
/// (acpi-cpufreq), cpuinfo_max_freq is the higher frequency that boost reaches.
fn highest_listed(machine: &Machine, cpu: usize) -> Option<i64> {
    let listed = machine.root.text(&file(cpu, "scaling_available_frequencies")).ok()?;
    listed.split_whitespace().filter_map(|khz| khz.parse().ok()).max()
}

/// Whether CPUs may exceed their nominal frequency.
pub(super) fn boost(machine: &Machine) -> Result<Verdict, Unread> {
    let files =
        [(format!("{INTEL}/no_turbo"), 1), ("sys/devices/system/cpu/cpufreq/boost".into(), 0)];
    for (path, off) in files {
        match machine.root.number(&path) {
            Ok(state) if state == off => {
                return Ok(Verdict::speed(
                    "boost is off",
                    "CPUs stay at their nominal frequency, often a third below what few busy cores \
                     can have; where even latency matters more, that may be wanted",
                    format!("echo {} > /{path}", 1 - off),
                ));
            }
            Ok(_) => return Ok(Verdict::ok("boost is on")),
            Err(unread) if unread.is_missing => {}
            Err(unread) => return Err(unread),
        }
    }
    Err(Unread::new("no driver reports whether CPUs may exceed their nominal frequency"))
}

/// Whether a package's power limit is below its design power: powercap in the kernel's
/// documentation. Constraint 0 is the long-term one.
pub(super) fn limit(machine: &Machine) -> Result<Verdict, Unread> {
    let zones = machine.root.names("sys/class/powercap")?;
    let mut zone_count = 0;
    for zone in zones.iter().filter(|zone| zone.starts_with("intel-rapl:")) {
        let folder = format!("sys/class/powercap/{zone}");
        let number = |name: &str| machine.root.number(&format!("{folder}/{name}"));
        // A second colon begins the number of a subzone, such as the cores or the memory.
        if zone.matches(':').count() > 1 || number("enabled").is_ok_and(|is| is == 0) {
            continue;
        }
        let set = number("constraint_0_power_limit_uw")?;
        let (Ok(most), false) = (number("constraint_0_max_power_uw"), set == 0) else { continue };
        zone_count += 1;
        if set < most {
            return Ok(Verdict::speed(
                format!("{zone} is limited to {} of {} W", set / 1_000_000, most / 1_000_000),
                "under load the package lowers the frequency of all its cores",
                format!("echo {most} > /{folder}/constraint_0_power_limit_uw"),
            ));
        }
    }
    match zone_count {
        0 => Err(Unread::new("no package reports how much power it may take")),
        _ => Ok(Verdict::ok("packages may take the power they are made for")),
    }
}

/// CPUs as a shell's `for` takes them.
fn words(cpus: &CpuList) -> String {
    cpus.iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(" ")
}
