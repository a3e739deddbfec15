//! How a network function is spread over cores.

use hotloop_stage::Role;
use std::fmt;

/// How a network function is spread over cores.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deployment {
    /// Every core polls queues of its own and does all the work. Where the graph has a `shard_by`, a
    /// packet owned by another core crosses one ring; its own never touch a ring.
    RunToCompletion {
        /// How many cores, from 1.
        workers: usize,
    },
    /// Dispatch cores poll and route, workers own the shards.
    Pipeline {
        /// How many cores poll, from 1.
        dispatchers: usize,
        /// How many cores work, from 1.
        workers: usize,
    },
}

impl Deployment {
    /// How many cores a deployment may have at most: what one EAL process can register as lcores,
    /// less its main lcore.
    pub const CORE_COUNT_MAX: usize = 127;

    /// `workers` cores that each do everything.
    #[must_use]
    pub const fn run_to_completion(workers: usize) -> Self {
        Self::RunToCompletion { workers }
    }

    /// `dispatchers` cores that poll, `workers` that work.
    #[must_use]
    pub const fn pipeline(dispatchers: usize, workers: usize) -> Self {
        Self::Pipeline { dispatchers, workers }
    }

    /// How many cores own shards.
    #[must_use]
    pub const fn worker_count(self) -> usize {
        match self {
            Self::RunToCompletion { workers } | Self::Pipeline { workers, .. } => workers,
        }
    }

    /// How many cores poll.
    #[must_use]
    pub const fn receiver_count(self) -> usize {
        match self {
            Self::RunToCompletion { workers } => workers,
            Self::Pipeline { dispatchers, .. } => dispatchers,
        }
    }

    /// How many cores there are.
    #[must_use]
    pub const fn core_count(self) -> usize {
        match self {
            Self::RunToCompletion { workers } => workers,
            Self::Pipeline { dispatchers, workers } => dispatchers.saturating_add(workers),
        }
    }

    /// Each core's role and number in it, dispatchers first.
    pub(crate) fn roles(self) -> Vec<(Role, usize)> {
        match self {
            Self::RunToCompletion { workers } => {
                (0..workers).map(|index| (Role::RunToCompletion, index)).collect()
            }
            Self::Pipeline { dispatchers, workers } => {
                let dispatchers = (0..dispatchers).map(|index| (Role::Dispatcher, index));
                dispatchers.chain((0..workers).map(|index| (Role::Worker, index))).collect()
            }
        }
    }

    /// How many rings lead to each worker.
    pub(crate) const fn rings_per_worker(self) -> usize {
        match self {
            Self::RunToCompletion { workers } => workers.saturating_sub(1),
            Self::Pipeline { dispatchers, .. } => dispatchers,
        }
    }

    pub(crate) fn check(self) -> Result<(), PlanError> {
        let empty = match self {
            Self::RunToCompletion { workers } => workers == 0,
            Self::Pipeline { dispatchers, workers } => dispatchers == 0 || workers == 0,
        };
        if empty {
            return Err(PlanError::NoCores(self));
        }
        if self.core_count() > Self::CORE_COUNT_MAX {
            return Err(PlanError::TooManyCores { asked: self.core_count() });
        }
        Ok(())
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunToCompletion { .. } => f.write_str("run-to-completion")?,
            Self::Pipeline { dispatchers, .. } => {
                write!(f, "pipeline, {dispatchers} dispatcher{}", plural(*dispatchers))?;
            }
        }
        let workers = self.worker_count();
        write!(f, ", {workers} worker{}", plural(workers))
    }
}

/// What makes a noun that of so many.
const fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// What a core does when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Idle {
    /// Polls again at once: the least latency.
    #[default]
    Spin,
    /// Executes the CPU's pause hint between empty polls, up to 64 of them in a row: a core that
    /// shares its execution units with another leaves them to it.
    Pause,
}

impl Idle {
    /// Every mode, with the name by which it is configured and printed.
    pub const NAMES: [(&'static str, Self); 2] = [("spin", Self::Spin), ("pause", Self::Pause)];
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spin => "spin",
            Self::Pause => "pause",
        })
    }
}

/// Why a network function can't be planned.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A deployment without a core in one of its roles.
    #[error("{0}: each role needs at least one core; ask for 1 or more")]
    NoCores(Deployment),
    /// More cores than can be registered.
    #[error("{asked} cores were asked for, {max} can be had; ask for fewer dispatchers or workers",
            max = Deployment::CORE_COUNT_MAX)]
    TooManyCores {
        /// How many were asked for.
        asked: usize,
    },
    /// A pipeline of a graph that does not say which worker goes on with a packet.
    #[error("a pipeline needs a boundary: add .shard_by(..) to the graph, or run to completion")]
    NoBoundary,
    /// Rings too small to be of use.
    #[error("rings of {asked} packets were asked for; ask for 1 to {max}", max = crate::RING_CAPACITY_MAX)]
    RingCapacity {
        /// How many were asked for.
        asked: usize,
    },
    /// A placement that does not name as many CPUs as there are cores.
    #[error("{cpus} CPUs were named for {cores} cores; name one for each")]
    Placement {
        /// How many CPUs were named.
        cpus: usize,
        /// How many cores the deployment has.
        cores: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_needs_a_core_in_each_role_and_not_too_many() {
        assert_eq!(Deployment::pipeline(1, 2).check(), Ok(()));
        for empty in [
            Deployment::run_to_completion(0),
            Deployment::pipeline(0, 1),
            Deployment::pipeline(1, 0),
        ] {
            assert_eq!(empty.check(), Err(PlanError::NoCores(empty)));
        }
        let many = Deployment::pipeline(64, 64);
        assert_eq!(many.check(), Err(PlanError::TooManyCores { asked: 128 }));
        assert_eq!(Deployment::run_to_completion(127).check(), Ok(()));
        let overflow = Deployment::pipeline(usize::MAX, usize::MAX);
        assert_eq!(overflow.check(), Err(PlanError::TooManyCores { asked: usize::MAX }));
    }

    #[test]
    fn a_deployment_says_what_there_is_of_each_role() {
        for (deployment, text) in [
            (Deployment::run_to_completion(1), "run-to-completion, 1 worker"),
            (Deployment::run_to_completion(2), "run-to-completion, 2 workers"),
            (Deployment::pipeline(1, 2), "pipeline, 1 dispatcher, 2 workers"),
            (Deployment::pipeline(2, 1), "pipeline, 2 dispatchers, 1 worker"),
        ] {
            assert_eq!(deployment.to_string(), text);
        }
    }

    #[test]
    fn a_mode_prints_as_its_name() {
        for (name, idle) in Idle::NAMES {
            assert_eq!(idle.to_string(), name);
        }
    }

    #[test]
    fn roles_are_numbered_from_zero_each() {
        let roles = Deployment::pipeline(2, 1).roles();
        assert_eq!(roles, [(Role::Dispatcher, 0), (Role::Dispatcher, 1), (Role::Worker, 0)]);
    }
}
