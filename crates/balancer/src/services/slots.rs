//! The slots of the backends, which stay the same from one service table to the next. Only control
//! uses them. A slot isn't reused until all workers have left the last table with its previous
//! backend.

use super::TargetId;
use std::collections::HashMap;
use std::net::IpAddr;

/// Number of slots beyond those of the first configuration, for future backends.
pub const SLOTS_SPARE: usize = 65_536;

/// More backends at once than a running balancer has room for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{wanted} backends of services at once, counting those that have just left; this run has room \
     for {capacity}: restart it with the new configuration"
)]
pub struct TooManyTargets {
    /// Number of slots that would have been taken.
    pub wanted: usize,
    /// Number of slots.
    pub capacity: usize,
}

/// A backend of a service.
pub(super) type Owner = (u32, IpAddr);

/// Control's view of the slots.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    capacity: usize,
    taken: HashMap<Owner, u32>,
    /// The state of each slot.
    states: Vec<SlotState>,
    /// Slots without an owner that a worker may still use.
    vacated: Vec<u32>,
    /// Slots that may be taken.
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SlotState {
    /// Starts at 1; changes with every owner and every removal.
    pub generation: u32,
    /// For each of the 32 previous generations, the last in the lowest bit, whether its connections
    /// were ended.
    pub flushed: u32,
}

impl Slots {
    pub fn new(capacity: usize) -> Self {
        let (taken, states) = (HashMap::new(), Vec::new());
        Self { capacity, taken, states, vacated: Vec::new(), free: Vec::new() }
    }

    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn states(&self) -> &[SlotState] {
        &self.states
    }

    /// Checks that this many owners without a slot could all get one.
    pub fn check_room(&self, newcomer_count: usize) -> Result<(), TooManyTargets> {
        let fresh_count = newcomer_count.saturating_sub(self.free.len());
        let wanted = self.states.len() + fresh_count;
        let capacity = self.capacity;
        if wanted > capacity { Err(TooManyTargets { wanted, capacity }) } else { Ok(()) }
    }

    pub fn has(&self, owner: &Owner) -> bool {
        self.taken.contains_key(owner)
    }

    /// The owner's slot: its present one, or a free one.
    pub fn take(&mut self, owner: Owner) -> TargetId {
        let slot = *self.taken.entry(owner).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.states.push(SlotState { generation: 1, flushed: 0 });
                (self.states.len() - 1) as u32
            })
        });
        TargetId { slot, generation: self.states[slot as usize].generation }
    }

    /// Takes the slots from all owners that don't stay. `on_vacate` gets each of these owners with
    /// its slot, and returns whether its connections end.
    pub fn retain(
        &mut self,
        stays: impl Fn(&Owner) -> bool,
        mut on_vacate: impl FnMut(&Owner, u32) -> bool,
    ) {
        let (states, vacated) = (&mut self.states, &mut self.vacated);
        self.taken.retain(|owner, slot| {
            let stays = stays(owner);
            if !stays {
                let state = &mut states[*slot as usize];
                state.flushed = state.flushed << 1 | u32::from(on_vacate(owner, *slot));
                // Generations start over after four billion removals from one slot.
                state.generation = state.generation.checked_add(1).unwrap_or(1);
                vacated.push(*slot);
            }
            stays
        });
    }

    /// Frees the vacated slots, since no worker uses an earlier service table any more. Returns the
    /// slots.
    pub fn settle(&mut self) -> Vec<u32> {
        let vacated = std::mem::take(&mut self.vacated);
        self.free.extend(&vacated);
        vacated
    }
}
