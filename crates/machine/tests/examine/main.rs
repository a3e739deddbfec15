//! Runs the checks on machines made of files: one without faults, and the same with one fault each.

mod faults;
mod machine;

use faults::ALL;
use hotloop_machine::{Finding, Setup, Severity, examine, ids};
use machine::{Files, acpi_cpufreq, machine, setup};
use std::fs;

/// The findings that are faults.
fn faults(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|found| found.severity != Severity::Ok).collect()
}

#[test]
fn nothing_is_found_on_a_machine_in_order() {
    let findings = machine().examine(&setup());
    assert!(faults(&findings).is_empty(), "{findings:#?}");
    assert!(findings.iter().all(|found| found.why.is_none() && found.fix.is_none()));
    // Each check has run.
    for id in ids() {
        assert!(findings.iter().any(|found| found.id == id), "{id}");
    }
    assert!(findings.iter().all(|found| ids().contains(&found.id)));
    let mut other = machine();
    acpi_cpufreq(&mut other);
    assert!(faults(&other.examine(&setup())).is_empty());
    // By default, workers run on the isolated CPUs, one of each core.
    let findings = machine().examine(&Setup { cpus: None, ..setup() });
    let [cpus] = faults(&findings)[..] else { panic!("{findings:#?}") };
    assert_eq!((cpus.id, cpus.severity), ("cpus", Severity::Unknown));
    assert!(cpus.what.ends_with("CPUs 2-3"), "{}", cpus.what);
}

/// Findings without these files are facts: the device, its driver or its group is missing.
const FACTS_IF_MISSING: [&str; 4] = ["device", "driver", "iommu", "dpdk-drivers"];

/// Lists of CPUs that are empty if the file is empty.
const EMPTY_LISTS: [&str; 3] = ["/isolated", "/nohz_full", "/cpulist"];

#[test]
fn what_cannot_be_read_is_unknown_and_no_fault() {
    for setup in [setup(), Setup::default()] {
        for found in Files::default().examine(&setup) {
            // DPDK's own devices need nothing of the machine.
            let expected =
                if found.what.contains("net_null0") { Severity::Ok } else { Severity::Unknown };
            assert_eq!(found.severity, expected, "{found}");
        }
    }
    let (root, files) = (tempfile::tempdir().unwrap(), machine());
    files.write(root.path());
    for (path, entry) in &files.0 {
        let place = root.path().join(path);
        for text in [None, Some(""), Some("\u{0}\u{1b}x: -1-[ 99999999999999999999999")] {
            fs::remove_file(&place).unwrap();
            if let Some(text) = text {
                fs::write(&place, text).unwrap();
            }
            let is_said = text == Some("") && EMPTY_LISTS.iter().any(|name| path.ends_with(name));
            for found in examine(root.path(), &setup()) {
                let is_true = is_said || FACTS_IF_MISSING.contains(&found.id);
                assert!(
                    found.severity <= Severity::Unknown || is_true,
                    "{path}, {text:?}: {found}"
                );
                assert!(!found.to_string().contains('\u{1b}'), "{path}: {found}");
            }
            let _ = fs::remove_file(&place);
            entry.write(&place);
        }
    }
}

#[test]
fn each_fault_alone_is_found_and_nothing_else() {
    for (index, (id, severity, fix, plant)) in ALL.concat().into_iter().enumerate() {
        let mut files = machine();
        plant(&mut files);
        // With a port whose packets the kernel sees, any connection in its table is a fault of its
        // own.
        let mut setup = setup();
        setup.devices.retain(|device| id != "connection-table" || !device.contains("eth1"));
        let findings = files.examine(&setup);
        let [found] = faults(&findings)[..] else {
            panic!("fault {index}, {id}: {:#?}", faults(&findings))
        };
        assert_eq!((found.id, found.severity), (id, severity), "{found}");
        assert!(found.fix.as_ref().is_some_and(|text| text.contains(fix)), "{id}: {found}");
        assert!(found.why.is_some(), "{found}");
    }
}
