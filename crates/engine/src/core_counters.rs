//! Counters of values that control publishes, one for each core.

use crate::Deployment;
use hotloop_stage::Counter;
use std::sync::Arc;

/// Counters for the packets of a rule, a backend or the like, one for each core that counts: a part
/// of the value that control [publishes](crate::publish()), which may change while cores run. The
/// set of a stage's own [`gauges`](hotloop_stage::Stage::gauges) is fixed when the stage is made.
///
/// Clones share the counters. A new value that takes over a clone from the one before, such as a
/// reloaded rule from that of the same name, goes on counting. The default has no counters, as for
/// a rule that a file has just been read into.
///
/// ```
/// use hotloop_engine::{CoreCounters, Deployment};
///
/// let ssh = CoreCounters::new(Deployment::pipeline([1, 2]));
/// // In the stage, on the core with `Core::index` 1:
/// ssh.add(1, 1);
/// // In control:
/// assert_eq!(ssh.count(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct CoreCounters(Arc<[Line]>);

/// A counter on its own cache lines, as another core writes the next one (two: x86-64 fetches lines
/// in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(Counter);

impl CoreCounters {
    /// Counters at 0 for the cores of any one group of `deployment`, 128 bytes each. A pipeline's
    /// groups number their cores separately, so the cores of one group alone may count.
    #[must_use]
    pub fn new(deployment: Deployment) -> Self {
        let of_group = |group| deployment.cores_in(group);
        let count = (0..deployment.group_count()).map(of_group).max().unwrap_or(0);
        Self((0..count).map(|_| Line::default()).collect())
    }

    /// Adds `count` on the core with the number `core` in its group, as
    /// [`Core::index`](hotloop_stage::Core::index) returns it. Only that core may call this. Does
    /// nothing if the deployment has no such core.
    #[inline]
    pub fn add(&self, core: usize, count: u64) {
        if let Some(Line(counter)) = self.0.get(core) {
            counter.add(count);
        }
    }

    /// The sum of all cores now.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|Line(counter)| counter.count()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_of_a_group_counts_and_clones_go_on() {
        for (deployment, core_count) in [
            (Deployment::run_to_completion(3), 3),
            (Deployment::pipeline([1, 3]), 3),
            (Deployment::pipeline([4, 1, 2]), 4),
        ] {
            let counters = CoreCounters::new(deployment);
            (0..core_count).for_each(|core| counters.add(core, 1 << core));
            counters.add(core_count, 1_000);
            assert_eq!(counters.count(), (1 << core_count) - 1, "{deployment}");
            counters.clone().add(0, 1);
            assert_eq!(counters.count(), 1 << core_count);
        }
    }
}
