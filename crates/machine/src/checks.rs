//! The list of all checks, in the order of the report.

use super::device::Device;
use super::finding::{Finding, Verdict};
use super::machine::Machine;
use super::root::{Root, Unread};
use super::setup::Setup;
use super::{cgroup, cores, device_checks, interrupts, kernel, libraries, memory, power, vip};
use std::net::IpAddr;
use std::path::Path;

/// A check of the machine. Fails if a file that it needs can't be read.
pub(super) type Check = fn(&Machine) -> Result<Verdict, Unread>;

/// A check of a device. `None` if it does not apply to the device.
type DeviceCheck = fn(&Machine, &Device) -> Result<Option<Verdict>, Unread>;

/// Checks of the machine, in the order of the report.
const CHECKS: [(&str, Check); 23] = [
    ("dpdk", libraries::version),
    ("dpdk-drivers", libraries::drivers),
    ("hugepages", memory::huge_pages),
    ("hugepage-limit", cgroup::huge_pages),
    ("transparent-hugepages", memory::transparent),
    ("memlock", memory::lockable),
    ("swap", memory::swap),
    ("numa-balancing", memory::balancing),
    ("cpus", cores::usable),
    ("cpu-quota", cgroup::quota),
    ("smt", cores::smt),
    ("isolation", cores::isolated),
    ("tick", cores::tick),
    ("rcu", cores::rcu),
    ("interrupts", interrupts::affinity),
    ("governor", power::governor),
    ("frequency-cap", power::cap),
    ("boost", power::boost),
    ("power-limit", power::limit),
    ("clock-source", kernel::clock),
    ("real-time", kernel::real_time),
    ("connection-table", kernel::connection_table),
    ("device", without_devices),
];

/// Checks of each device, in the order of the report.
const DEVICE_CHECKS: [(&str, DeviceCheck); 7] = [
    ("device", device_checks::exists),
    ("driver", device_checks::driver),
    ("iommu", device_checks::iommu),
    ("iommu-group", device_checks::group),
    ("node", device_checks::node),
    ("pcie-lanes", device_checks::lanes),
    ("tracking", device_checks::tracking),
];

/// The check of each VIP, [`vip::local`].
const VIP_CHECK: &str = "vip";

/// Runs all checks on the machine with its files below `root`, which is `/` except in tests and
/// copies. Returns a finding for each check, for each check that applies to a device, and for each
/// VIP.
#[must_use]
pub fn examine(root: &Path, setup: &Setup) -> Vec<Finding> {
    let machine = Machine::new(Root::new(root), setup);
    let unknown = |unread: Unread| Verdict::unknown(unread.why);
    let is_wanted = |id: &str| id != "device" || machine.devices.is_empty();
    let checks = CHECKS.iter().filter(|(id, _)| is_wanted(id));
    let mut findings: Vec<_> =
        checks.map(|(id, check)| check(&machine).unwrap_or_else(unknown).of(id)).collect();
    for device in &machine.devices {
        for (id, check) in DEVICE_CHECKS {
            let found = check(&machine, device).unwrap_or_else(|unread| Some(unknown(unread)));
            findings.extend(found.map(|verdict| verdict.of(id)));
        }
    }
    let vip = |vip: &IpAddr| vip::local(&machine, *vip).unwrap_or_else(unknown).of(VIP_CHECK);
    findings.extend(setup.vips.iter().map(vip));
    findings
}

/// The ids of all checks, in the order of the report. They are a stable interface: an id never gets
/// another meaning.
#[must_use]
pub fn ids() -> Vec<&'static str> {
    let of_devices = DEVICE_CHECKS.iter().map(|(id, _)| *id);
    let mut ids: Vec<_> =
        CHECKS.iter().map(|(id, _)| *id).chain(of_devices).chain([VIP_CHECK]).collect();
    // The findings for no device and for a missing device have the same id, side by side.
    ids.dedup();
    ids
}

/// The finding that replaces these checks if the user names no device.
fn without_devices(_: &Machine) -> Result<Verdict, Unread> {
    Ok(Verdict::unknown(
        "no --device: the devices in use, their drivers, IOMMU, nodes and PCIe lanes",
    ))
}
