//! The CPU of each core of a deployment.

use crate::topology::{Cpu, Topology};

/// The place where one core runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seat {
    /// The CPU that the core is pinned to; `None` leaves it to the kernel.
    pub cpu: Option<usize>,
    /// The CPU's NUMA node.
    pub node: Option<u32>,
    /// Whether another core, of this deployment or of another program, runs on the same CPU.
    pub is_shared: bool,
}

/// The place of each core of a deployment, the first group's first, with notes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Placement {
    seats: Vec<Seat>,
    notes: Vec<String>,
}

impl Placement {
    /// Places `core_count` cores: on the port's NUMA node before others, on physical cores before
    /// their siblings, and leaves the first CPU to control, logging and the kernel if a CPU is
    /// left. If there are too few CPUs, cores share them, and a note reports it.
    #[must_use]
    pub fn automatic(topology: &Topology, core_count: usize, port_node: Option<u32>) -> Self {
        let mut cpus = topology.cpus.clone();
        let mut notes = Vec::new();
        if core_count < cpus.len() {
            cpus.remove(0);
        } else {
            notes.push(format!(
                "no CPU is left to control (cores: {core_count}, CPUs: {})",
                cpus.len()
            ));
        }
        let is_remote = |cpu: &Cpu| port_node.is_some() && cpu.node != port_node;
        cpus.sort_by_key(|cpu| (is_remote(cpu), cpu.sibling_index, cpu.id));
        if cpus.is_empty() {
            let seat = Seat { cpu: None, node: None, is_shared: core_count > 1 };
            return Self { seats: vec![seat; core_count], notes };
        }
        if core_count > cpus.len() {
            notes.push(format!(
                "{core_count} cores share {} CPUs and yield to each other when idle: expect a \
                 fraction of the speed",
                cpus.len()
            ));
        }
        let remote_count = cpus.iter().take(core_count).filter(|cpu| is_remote(cpu)).count();
        if remote_count > 0 {
            notes.push(format!("cores on another NUMA node than the port: {remote_count}"));
        }
        let seats = (0..core_count).map(|index| {
            let cpu = cpus[index % cpus.len()];
            // The number of cores on this CPU, counting round.
            let place = index % cpus.len();
            let is_shared = core_count.saturating_sub(place).div_ceil(cpus.len()) > 1;
            Seat { cpu: Some(cpu.id), node: cpu.node, is_shared }
        });
        Self { seats: seats.collect(), notes }
    }

    /// Places cores on these CPUs, in order: the first group's first. A CPU may occur more than
    /// once; its cores then yield to each other.
    ///
    /// # Errors
    /// If this process may not use one of the CPUs.
    pub fn explicit(topology: &Topology, cpus: &[usize]) -> Result<Self, PlacementError> {
        let seat = |&id: &usize| {
            let cpu = topology.cpus.iter().find(|cpu| cpu.id == id);
            let cpu = cpu.ok_or_else(|| PlacementError {
                asked: id,
                usable: topology.cpus.iter().map(|cpu| cpu.id).collect(),
            })?;
            let is_shared = cpus.iter().filter(|&&other| other == id).count() > 1;
            Ok(Seat { cpu: Some(id), node: cpu.node, is_shared })
        };
        let seats = cpus.iter().map(seat).collect::<Result<_, _>>()?;
        Ok(Self { seats, notes: Vec::new() })
    }

    /// Pins no core: the kernel's scheduler moves them as it moves other threads.
    #[must_use]
    pub fn anywhere(core_count: usize) -> Self {
        let seat = Seat { cpu: None, node: None, is_shared: false };
        Self { seats: vec![seat; core_count], notes: Vec::new() }
    }

    /// The same places, with one more note.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// The same places, on CPUs that other programs' cores use as well: an idle core yields, like
    /// cores of one deployment that share a CPU.
    #[must_use]
    pub fn beside_others(mut self) -> Self {
        self.seats.iter_mut().for_each(|seat| seat.is_shared = seat.cpu.is_some());
        self
    }

    /// No placement, for cores that are stepped on one thread.
    pub(crate) const fn nowhere() -> Self {
        Self { seats: Vec::new(), notes: Vec::new() }
    }

    /// Each core's place, the first group's first.
    #[must_use]
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// Notes for people.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl std::fmt::Display for Placement {
    /// Writes the CPUs in the order of the cores, then the notes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cpu = |seat: &Seat| seat.cpu.map_or("any".to_owned(), |cpu| cpu.to_string());
        let cpus: Vec<_> = self.seats.iter().map(cpu).collect();
        write!(f, "CPUs {}", cpus.join(", "))?;
        self.notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

/// A CPU that can't be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("CPU {asked} is offline or outside this process's mask; it may use {usable:?}")]
pub struct PlacementError {
    /// The CPU that was asked for.
    pub asked: usize,
    /// The CPUs that this process may use.
    pub usable: Vec<usize>,
}
