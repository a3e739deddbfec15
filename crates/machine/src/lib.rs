//! Finds settings of a machine that cost packets speed or safety, and the command that changes
//! each: the checks of `hotloop-doctor`, and the warning of every program at its start.
//!
//! [`examine`] reads files of sysfs and procfs, and changes nothing. An entry that can't be read is
//! [`Severity::Unknown`]: its absence in a virtual machine or a container is neither right nor
//! wrong.
//!
//! ```
//! use hotloop_machine::{Severity, Setup, examine};
//! use std::path::Path;
//!
//! let devices = vec!["0000:01:00.0".to_owned()];
//! let setup = Setup { cpus: Some("2-3".parse()?), devices, ..Setup::default() };
//! // Nothing can be read in an empty folder.
//! let empty = Path::new("/nowhere");
//! assert!(examine(empty, &setup).iter().all(|found| found.severity == Severity::Unknown));
//! # Ok::<(), hotloop_machine::CpuListError>(())
//! ```
//!
//! # Limits
//!
//! Limits of locked memory, cgroups and affinity are those of the calling process. A service
//! manager may set other limits for a service. The checks keep their own lists of facts about
//! kernels, drivers and architectures. Of the engine, this crate uses only placements: [`warn()`]
//! checks their CPUs.
#![forbid(unsafe_code)]

mod cgroup;
mod checks;
mod cores;
mod cpu_list;
mod device;
mod device_checks;
mod finding;
mod interrupts;
mod kernel;
mod libraries;
mod machine;
mod memory;
mod power;
mod root;
mod setup;
mod start;
mod vip;

pub use checks::{examine, ids};
pub use cpu_list::{CpuList, CpuListError};
pub use finding::{Finding, Severity};
pub use setup::Setup;
pub use start::warn;
