//! A factory's view of the core that will own its result.

use std::cell::Cell;
use std::rc::Rc;

/// One of the engine's cores, as the factories of a graph see it. A factory runs on the core that
/// will own the result.
///
/// A graph without a boundary is one group; each boundary begins another. In a pipeline a core
/// belongs to one group. In run-to-completion it belongs to all of them, with the same index in each.
#[derive(Clone, Debug)]
pub struct Core {
    group: usize,
    index: usize,
    count: usize,
    cpu: Option<usize>,
    node: Option<u32>,
    lcore: Rc<Cell<Option<u32>>>,
}

impl Core {
    /// The core `index` of `count` in group 0, on any CPU.
    #[must_use]
    pub fn new(index: usize, count: usize) -> Self {
        Self { group: 0, index, count, cpu: None, node: None, lcore: Rc::default() }
    }

    /// The same core on this CPU of this NUMA node, if known.
    #[must_use]
    pub fn on(self, cpu: Option<usize>, node: Option<u32>) -> Self {
        Self { cpu, node, ..self }
    }

    /// The same core in another group.
    #[must_use]
    pub fn in_group(&self, group: usize) -> Self {
        Self { group, ..self.clone() }
    }

    /// The group of the current factory, from 0.
    #[must_use]
    pub const fn group(&self) -> usize {
        self.group
    }

    /// The number of this core in its group, from 0.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The number of cores in the group.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The CPU that the core is pinned to, by the kernel's number.
    #[must_use]
    pub const fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// The NUMA node of that CPU, if the kernel reports it.
    #[must_use]
    pub const fn node(&self) -> Option<u32> {
        self.node
    }

    /// The lcore that a driver registered the core's thread as.
    #[must_use]
    pub fn lcore(&self) -> Option<u32> {
        self.lcore.get()
    }

    /// Records the lcore that a driver registered the core's thread as.
    pub fn set_lcore(&self, lcore: u32) {
        self.lcore.set(Some(lcore));
    }
}

/// Totals that the engine knows once every core has claimed its queues, for a device to size its
/// pools.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Maximum number of packets inside the engine: in rings, in bursts, held by stages.
    pub in_flight_max: usize,
    /// Number of threads that take packets from a pool or return them.
    pub thread_count: usize,
    /// Whether the threads are a pipeline, in which some mostly take packets from a pool and others
    /// mostly return them.
    pub is_pipeline: bool,
}
