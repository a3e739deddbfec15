//! The setup that a machine is checked for.

use super::cpu_list::CpuList;
use std::net::IpAddr;

/// The parts of a machine that programs will use.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Setup {
    /// The CPUs of workers. If `None`, the checks take the isolated CPUs. If no CPU is isolated,
    /// they take all but the first, one of each physical core, as placement does.
    pub cpus: Option<CpuList>,
    /// Devices: PCI addresses, kernel interfaces, or DPDK's device strings.
    pub devices: Vec<String>,
    /// The addresses of services, which must not be the machine's own.
    pub vips: Vec<IpAddr>,
}
