//! The figures of a core's load.

use hotloop_engine::CoreLoad;
use serde::Serialize;

/// A core's load in the last second, from the engine and from the kernel. As JSON, all of it is on
/// one level.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CoreFigures {
    /// The engine's figures.
    #[serde(flatten)]
    pub load: CoreLoad,
    /// Number of times that the kernel took the CPU from the core's thread. `None` if unknown.
    pub involuntary_switches: Option<u64>,
    /// The part of the time in which the core's thread was ready and waited for the CPU, in
    /// percent.
    pub waited_percent: Option<f64>,
    /// The part of the CPU's time that the hypervisor gave to others, in percent. `None` if the
    /// core is not pinned.
    pub steal_percent: Option<f64>,
}

/// The ratio of `part` to `whole`, at most 1.
#[allow(clippy::cast_precision_loss, reason = "a share that is measured")]
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}
