//! The distribution of a network function over cores.

use hotloop_stage::Core;
use std::fmt;

/// Maximum capacity of a ring between two cores, in packets.
pub const RING_CAPACITY_MAX: usize = 1 << 20;

/// The distribution of a network function over cores.
///
/// The boundaries of a graph divide it into groups. In *run-to-completion* every core polls its own
/// queues and runs all groups: if the graph has a `shard_by`, a packet owned by another core
/// crosses one ring, and a core's own packets never touch one. In a *pipeline* each group has its
/// own cores, connected by rings.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Deployment {
    /// The number of groups with their own cores; 0 in run-to-completion.
    group_count: usize,
    /// The number of cores of each group; in run-to-completion only the first entry is used.
    core_counts: [u32; Self::GROUP_COUNT_MAX],
}

impl Deployment {
    /// Maximum number of cores: the lcores that one EAL process can register, less its main lcore.
    pub const CORE_COUNT_MAX: usize = 127;

    /// Maximum number of groups of a pipeline.
    pub const GROUP_COUNT_MAX: usize = 16;

    /// Run-to-completion on `core_count` cores.
    #[must_use]
    pub const fn run_to_completion(core_count: usize) -> Self {
        let mut core_counts = [0; Self::GROUP_COUNT_MAX];
        core_counts[0] = saturated(core_count);
        Self { group_count: 0, core_counts }
    }

    /// A pipeline with these numbers of cores per group, from the group that polls to the one that
    /// sends: `pipeline([2, 6])` has two cores that receive and six that work.
    #[must_use]
    pub const fn pipeline<const N: usize>(groups: [usize; N]) -> Self {
        const { assert!(N > 0 && N <= Self::GROUP_COUNT_MAX, "a pipeline has 1 to 16 groups") };
        let mut core_counts = [0; Self::GROUP_COUNT_MAX];
        let mut group = 0;
        while group < N {
            core_counts[group] = saturated(groups[group]);
            group += 1;
        }
        Self { group_count: N, core_counts }
    }

    /// Whether every core runs all groups.
    #[must_use]
    pub const fn is_run_to_completion(&self) -> bool {
        self.group_count == 0
    }

    /// The number of groups with their own cores; 1 in run-to-completion.
    #[must_use]
    pub const fn group_count(&self) -> usize {
        if self.is_run_to_completion() { 1 } else { self.group_count }
    }

    /// The number of cores that run `group`: all cores in run-to-completion, and 0 if a pipeline has
    /// no such group.
    #[must_use]
    pub const fn cores_in(&self, group: usize) -> usize {
        if self.is_run_to_completion() {
            self.core_counts[0] as usize
        } else if group < self.group_count {
            self.core_counts[group] as usize
        } else {
            0
        }
    }

    /// The number of cores.
    #[must_use]
    pub fn core_count(&self) -> usize {
        self.core_counts.iter().map(|&count| count as usize).sum()
    }

    /// Each core, the first group's first.
    pub(crate) fn cores(self) -> Vec<Core> {
        let groups = 0..self.group_count();
        let of = |group| {
            let count = self.cores_in(group);
            (0..count).map(move |index| Core::new(index, count).in_group(group))
        };
        groups.flat_map(of).collect()
    }

    /// The name of a core, for people.
    pub(crate) fn core_name(&self, group: usize, index: usize) -> String {
        if self.is_run_to_completion() {
            format!("core {index}")
        } else {
            format!("group {group} core {index}")
        }
    }

    /// Checks that each of a graph's `group_count` groups has a core.
    pub(crate) fn check(self, group_count: usize) -> Result<(), PlanError> {
        if self.core_counts[..self.group_count()].contains(&0) {
            return Err(PlanError::NoCores(self));
        }
        if self.core_count() > Self::CORE_COUNT_MAX {
            return Err(PlanError::TooManyCores { asked: self.core_count() });
        }
        if !self.is_run_to_completion() && self.group_count != group_count {
            let given = self.group_count;
            return Err(PlanError::Groups { given, graph: group_count });
        }
        Ok(())
    }
}

/// Limits the number of cores to the type's range: no machine has more.
const fn saturated(core_count: usize) -> u32 {
    if core_count > u32::MAX as usize { u32::MAX } else { core_count as u32 }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.is_run_to_completion() { "run-to-completion" } else { "pipeline" };
        let groups = &self.core_counts[..self.group_count()];
        let counts: Vec<_> = groups.iter().map(u32::to_string).collect();
        let noun = if self.core_count() == 1 { "core" } else { "cores" };
        write!(f, "{name}, {} {noun}", counts.join(" + "))
    }
}

impl fmt::Debug for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason that a network function can't be planned.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A group without a core.
    #[error("{0}: each group needs at least one core")]
    NoCores(Deployment),
    /// More cores than can be registered.
    #[error("the deployment has {asked} cores, and {max} is the most", max = Deployment::CORE_COUNT_MAX)]
    TooManyCores {
        /// The number of cores of the deployment.
        asked: usize,
    },
    /// A pipeline that does not fit the boundaries of its graph.
    #[error(
        "the pipeline has cores for {given} groups, and the boundaries of the graph make {graph}: \
         add or remove .shard_by(..) or .handoff(), or run to completion"
    )]
    Groups {
        /// The number of groups of the deployment.
        given: usize,
        /// The number of groups of the graph.
        graph: usize,
    },
    /// A handoff from fewer cores than it leads to.
    #[error(
        "a handoff from {senders} to {receivers} cores would leave some without packets: use \
         .shard_by(..), or no more receiving cores than sending ones"
    )]
    Handoff {
        /// The number of cores before the handoff.
        senders: usize,
        /// The number of cores after it.
        receivers: usize,
    },
    /// Rings that are too small or too large.
    #[error("rings of {asked} packets are not possible: give 1 to {max}", max = RING_CAPACITY_MAX)]
    RingCapacity {
        /// The capacity that was set.
        asked: usize,
    },
    /// A placement with another number of CPUs than there are cores.
    #[error("the placement names {cpus} CPUs for {cores} cores: name one for each")]
    Placement {
        /// The number of CPUs named.
        cpus: usize,
        /// The number of cores of the deployment.
        cores: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_needs_a_core_in_each_group_and_not_too_many() {
        assert_eq!(Deployment::pipeline([1, 2]).check(2), Ok(()));
        for empty in [
            Deployment::run_to_completion(0),
            Deployment::pipeline([0, 1]),
            Deployment::pipeline([1, 0]),
        ] {
            assert_eq!(empty.check(2), Err(PlanError::NoCores(empty)));
        }
        let many = Deployment::pipeline([64, 64]);
        assert_eq!(many.check(2), Err(PlanError::TooManyCores { asked: 128 }));
        assert_eq!(Deployment::run_to_completion(127).check(5), Ok(()));
        let overflow = Deployment::pipeline([usize::MAX, usize::MAX]);
        let asked = 2 * u32::MAX as usize;
        assert_eq!(overflow.check(2), Err(PlanError::TooManyCores { asked }));
        let groups = PlanError::Groups { given: 3, graph: 2 };
        assert_eq!(Deployment::pipeline([1, 2, 1]).check(2), Err(groups));
    }

    #[test]
    fn a_deployment_prints_the_cores_of_each_group() {
        for (deployment, text) in [
            (Deployment::run_to_completion(1), "run-to-completion, 1 core"),
            (Deployment::run_to_completion(2), "run-to-completion, 2 cores"),
            (Deployment::pipeline([1, 2]), "pipeline, 1 + 2 cores"),
            (Deployment::pipeline([1, 2, 1]), "pipeline, 1 + 2 + 1 cores"),
        ] {
            assert_eq!(deployment.to_string(), text);
        }
    }

    #[test]
    fn cores_are_numbered_from_zero_in_each_group() {
        let cores = Deployment::pipeline([2, 1]).cores();
        let numbers: Vec<_> =
            cores.iter().map(|core| (core.group(), core.index(), core.count())).collect();
        assert_eq!(numbers, [(0, 0, 2), (0, 1, 2), (1, 0, 1)]);
    }
}
