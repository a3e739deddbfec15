//! What a program says of its own CPUs when it starts.

use super::checks::Check;
use super::cpu_list::CpuList;
use super::finding::{Finding, Severity};
use super::machine::Machine;
use super::root::Root;
use super::setup::Setup;
use super::{cgroup, cores, interrupts, kernel, power};
use hotloop_engine::Placement;
use std::path::Path;

/// The checks that read a few files and are certain, whatever else the machine is for.
const CERTAIN: [(&str, Check); 4] = [
    ("cpu-quota", cgroup::quota),
    ("smt", cores::smt),
    ("governor", power::governor),
    ("clock-source", kernel::clock),
];

/// Those that are for CPUs which somebody has set apart: on any other machine there is always
/// something.
const SET_APART: [(&str, Check); 2] =
    [("isolation", cores::isolated), ("interrupts", interrupts::affinity)];

/// Warns, in one message, of what costs the cores of a placement speed. Says nothing where cores are
/// not pinned, and never fails.
pub fn warn(placement: &Placement) {
    let found = found(Path::new("/"), placement);
    let found: Vec<_> = found.into_iter().map(|found| found.what).collect();
    if !found.is_empty() {
        let cpus = pinned(placement);
        tracing::warn!(
            "this machine costs speed: {}; hotloop-doctor --cpus {cpus} says why, and what to do",
            found.join("; ")
        );
    }
}

/// What is found of a placement's CPUs.
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

    /// What is said of cores on CPUs 1 and 2, on a machine of these files.
    fn said(files: &[(&str, &str)]) -> Vec<&'static str> {
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
        assert_eq!(said(&[]), [""; 0]);
        assert_eq!(said(&[governor, other]), ["governor"]);
        assert_eq!(said(&siblings), ["smt"]);
        assert_eq!(said(&[clock]), ["clock-source"]);
        assert_eq!(said(&[siblings[0], siblings[1], governor, other, clock]).len(), 3);
    }

    #[test]
    fn interrupts_matter_where_cpus_were_set_apart() {
        let interrupts = ("proc/interrupts", "     CPU0 CPU1 CPU2 CPU3\n 9: 0 7 0 0 IO-APIC acpi");
        let affinity = ("proc/irq/9/smp_affinity_list", "1");
        let isolated = |cpus| ("sys/devices/system/cpu/isolated", cpus);
        assert_eq!(said(&[interrupts, affinity, isolated("")]), [""; 0]);
        assert_eq!(said(&[interrupts, affinity, isolated("1-3")]), ["interrupts"]);
        assert_eq!(said(&[isolated("2")]), ["isolation"]);
    }

    #[test]
    fn nothing_is_said_of_cores_that_are_not_pinned() {
        assert!(found(Path::new("/"), &Placement::anywhere(2)).is_empty());
    }
}
