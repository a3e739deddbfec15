//! What of a machine costs packets speed or safety, and the command that changes it: `hotloop-doctor`,
//! and what every program says at its start.
//!
//! [`examine`] reads files of sysfs and procfs, and changes nothing. What can't be read is
//! [`Severity::Unknown`]: a virtual machine or a container without an entry is neither right nor
//! wrong.
//!
//! ```
//! use hotloop_ops::doctor::{Severity, Setup, examine};
//! use std::path::Path;
//!
//! let devices = vec!["0000:01:00.0".to_owned()];
//! let setup = Setup { cpus: Some("2-3".parse()?), devices, ..Setup::default() };
//! // Nothing can be read in an empty folder.
//! let empty = Path::new("/nowhere");
//! assert!(examine(empty, &setup).iter().all(|found| found.severity == Severity::Unknown));
//! # Ok::<(), hotloop_ops::doctor::CpuListError>(())
//! ```
//!
//! # Limits
//!
//! Limits of locked memory, cgroups and affinity are those of the process that looks: what a service
//! manager gives another one may differ. The list of what holds for one kernel, driver or
//! architecture is the checks' own, and names what it compares.

mod cgroup;
mod cores;
mod cpu_list;
mod device;
mod finding;
mod interrupts;
mod kernel;
mod libraries;
mod machine;
mod memory;
mod power;
mod program;
mod root;
mod start;
mod vip;

use device::Device;
use finding::Verdict;
use machine::Machine;
use root::{Root, Unread};
use std::net::IpAddr;
use std::path::Path;

pub use cpu_list::{CpuList, CpuListError};
pub use finding::{Finding, Severity};
pub use program::{command, main};
pub(crate) use start::warn;

/// What of a machine programs are to use.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Setup {
    /// The CPUs that workers are to run on. Without them, the checks take those that are isolated, or
    /// else those that placement takes by itself: all but the first, of each physical core one.
    pub cpus: Option<CpuList>,
    /// Devices: PCI addresses, kernel interfaces, or device strings of DPDK's.
    pub devices: Vec<String>,
    /// The addresses of services, which must be none of the machine's own.
    pub vips: Vec<IpAddr>,
}

/// A check of the machine: what it found, or why it could not look.
type Check = fn(&Machine) -> Result<Verdict, Unread>;

/// A check of a device; nothing where it does not apply.
type DeviceCheck = fn(&Machine, &Device) -> Result<Option<Verdict>, Unread>;

/// The checks of the machine, in the order in which they are reported.
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

/// The checks of each device, in the order in which they are reported.
const DEVICE_CHECKS: [(&str, DeviceCheck); 7] = [
    ("device", device::exists),
    ("driver", device::driver),
    ("iommu", device::iommu),
    ("iommu-group", device::group),
    ("node", device::node),
    ("pcie-lanes", device::lanes),
    ("tracking", device::tracking),
];

/// The check of each VIP, [`vip::local`].
const VIP_CHECK: &str = "vip";

/// What the checks find on the machine whose files are below `root`, which is `/` but in tests and
/// copies: one finding for each check, for each device one of each check that applies to it, and one for
/// each VIP.
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

/// The names of all checks, in the order in which they are reported. They are an interface: a name is
/// never used for something else.
#[must_use]
pub fn ids() -> Vec<&'static str> {
    let of_devices = DEVICE_CHECKS.iter().map(|(id, _)| *id);
    let mut ids: Vec<_> =
        CHECKS.iter().map(|(id, _)| *id).chain(of_devices).chain([VIP_CHECK]).collect();
    // That no device is named, and that one does not exist, stand next to each other.
    ids.dedup();
    ids
}

/// What is not looked at where no device is named.
fn without_devices(_: &Machine) -> Result<Verdict, Unread> {
    Ok(Verdict::unknown(
        "no --device: which devices are to be used, their drivers, IOMMU, nodes and PCIe lanes",
    ))
}
