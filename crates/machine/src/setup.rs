//! What a machine is looked at for.

use super::cpu_list::CpuList;
use std::net::IpAddr;

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
