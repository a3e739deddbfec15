//! What a factory knows of the core that will own what it makes.

use std::cell::Cell;

/// One of the engine's cores, as the factories of a graph see it. A factory runs on the core that
/// will own the result.
#[derive(Debug)]
pub struct Core {
    index: usize,
    role: Role,
    cpu: Option<usize>,
    node: Option<u32>,
    lcore: Cell<Option<u32>>,
}

/// What a core does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Role {
    /// Polls its own queues and does all the work.
    RunToCompletion,
    /// Polls queues and hands packets to workers.
    Dispatcher,
    /// Takes packets from dispatchers and works on them.
    Worker,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::RunToCompletion => "run-to-completion",
            Self::Dispatcher => "dispatcher",
            Self::Worker => "worker",
        })
    }
}

impl Core {
    /// The core `index` of those in `role`, on the CPU and NUMA node given, if they are known.
    #[must_use]
    pub const fn new(index: usize, role: Role, cpu: Option<usize>, node: Option<u32>) -> Self {
        Self { index, role, cpu, node, lcore: Cell::new(None) }
    }

    /// Its number among the cores of its role, from 0.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// What it does.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The CPU it is pinned to, by the kernel's number.
    #[must_use]
    pub const fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// The NUMA node of that CPU, where the kernel tells.
    #[must_use]
    pub const fn node(&self) -> Option<u32> {
        self.node
    }

    /// The lcore that a driver registered this core's thread as.
    #[must_use]
    pub fn lcore(&self) -> Option<u32> {
        self.lcore.get()
    }

    /// Says as which lcore a driver registered this core's thread.
    pub fn set_lcore(&self, lcore: u32) {
        self.lcore.set(Some(lcore));
    }
}

/// What the engine knows once every core has claimed its queues, for a device to size its pools by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Facts {
    /// How many packets may at most be inside the engine: in rings, in bursts, held by stages.
    pub in_flight_max: usize,
    /// How many threads take packets from a pool or give them back.
    pub thread_count: usize,
}
