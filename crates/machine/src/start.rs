//! Warns a program at its start about settings that slow its own CPUs.

use super::checks::Check;
use super::cpu_list::CpuList;
use super::finding::{Finding, Severity};
use super::machine::Machine;
use super::root::Root;
use super::setup::Setup;
use super::{cgroup, cores, interrupts, kernel, power};
use hotloop_engine::Placement;
use std::path::Path;

/// Checks that read a few files and are certain, no matter what else the machine does.
const CERTAIN: [(&str, Check); 4] = [
    ("cpu-quota", cgroup::quota),
    ("smt", cores::smt),
    ("governor", power::governor),
    ("clock-source", kernel::clock),
];

/// Checks that make sense only on CPUs that somebody has set apart. On any other machine they
/// always find something.
const SET_APART: [(&str, Check); 2] =
    [("isolation", cores::isolated), ("interrupts", interrupts::affinity)];

/// Warns, in one message, about settings that slow the cores of a placement. Does nothing if cores
/// are not pinned, and never fails.
pub fn warn(placement: &Placement) {
    let found = found(Path::new("/"), placement);
    let found: Vec<_> = found.into_iter().map(|found| found.what).collect();
    if !found.is_empty() {
        let cpus = pinned(placement);
        tracing::warn!(
            "this machine costs speed: {}; hotloop-doctor --cpus {cpus} explains why, and how to fix it",
            found.join("; ")
        );
    }
}

/// The findings for a placement's CPUs.
fn found(root: &Path, placement: &Placement) -> Vec<Finding> {
    let cpus = pinned(placement);
    if cpus.is_empty() {
        return Vec::new();
    }
    let setup = Setup { cpus: Some(cpus.clone()), ..Setup::default() };
    let machine = Machine::new(Root::new(root), &setup);
    let isolated = machine.isolated().unwrap_or_default();
    let set_apart = SET_APART.iter().filter(|_| !isolated.and(&cpus).is_empty());
    let checks = CERTAIN.iter().chain(set_apart);
    let found = checks.filter_map(|(id, check)| Some(check(&machine).ok()?.of(id)));
    found.filter(|found| found.severity > Severity::Unknown).collect()
}

/// The CPUs that cores are pinned to.
fn pinned(placement: &Placement) -> CpuList {
    placement.seats().iter().filter_map(|seat| seat.cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_engine::Topology;
    use std::fs;

    /// The ids of the findings for cores on CPUs 1 and 2, on a machine with these files.
    fn found_ids(files: &[(&str, &str)]) -> Vec<&'static str> {
        let root = tempfile::tempdir().unwrap();
        let cpus = [("sys/devices/system/cpu/online", "0-3")];
        for (path, text) in cpus.iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let placement = Placement::explicit(&Topology::read(root.path()), &[1, 2]).unwrap();
        found(root.path(), &placement).into_iter().map(|found| found.id).collect()
    }

    #[test]
    fn a_program_warns_of_what_is_certain() {
        let governor = ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave");
        let other = ("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance");
        let siblings = [1, 2]
            .map(|cpu| format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        let siblings = siblings.each_ref().map(|path| (path.as_str(), "1-2"));
        let clock = ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet");
        assert_eq!(found_ids(&[]), [""; 0]);
        assert_eq!(found_ids(&[governor, other]), ["governor"]);
        assert_eq!(found_ids(&siblings), ["smt"]);
        assert_eq!(found_ids(&[clock]), ["clock-source"]);
        assert_eq!(found_ids(&[siblings[0], siblings[1], governor, other, clock]).len(), 3);
    }

    #[test]
    fn interrupts_matter_where_cpus_were_set_apart() {
        let interrupts = ("proc/interrupts", "     CPU0 CPU1 CPU2 CPU3\n 9: 0 7 0 0 IO-APIC acpi");
        let affinity = ("proc/irq/9/smp_affinity_list", "1");
        let isolated = |cpus| ("sys/devices/system/cpu/isolated", cpus);
        assert_eq!(found_ids(&[interrupts, affinity, isolated("")]), [""; 0]);
        assert_eq!(found_ids(&[interrupts, affinity, isolated("1-3")]), ["interrupts"]);
        assert_eq!(found_ids(&[isolated("2")]), ["isolation"]);
    }

    #[test]
    fn nothing_is_said_of_cores_that_are_not_pinned() {
        assert!(found(Path::new("/"), &Placement::anywhere(2)).is_empty());
    }
}
