//! What was counted of backends that have left, so that the sums stay whole.

use crate::counts::WorkerCounts;
use crate::directory::{Departure, TargetName};
use std::collections::HashMap;

/// How many backends that have left are remembered by name. What was sent to more is one sum.
pub const DEPARTED_MAX: usize = 65_536;

/// The packets sent to backends before they left. A backend that comes back has them again.
#[derive(Debug, Default)]
pub struct Departed {
    packets: HashMap<TargetName, u64>,
    /// Sent to those beyond [`DEPARTED_MAX`].
    others: u64,
    /// Those that workers may still count of.
    leaving: Vec<Departure>,
}

impl Departed {
    /// These leave: workers still count of them, until all have taken up the next directory.
    pub fn leave(&mut self, departures: Vec<Departure>) {
        self.leaving.extend(departures);
    }

    /// Whether no worker counts of any that have left.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Takes over what was counted of those that were leaving, and clears their slots for those to
    /// come. No worker may count there any more.
    pub fn settle(&mut self, workers: &[WorkerCounts]) {
        for Departure { slot, name } in std::mem::take(&mut self.leaving) {
            let packets = packets(workers, slot);
            workers.iter().for_each(|counts| counts.clear(slot));
            if packets == 0 {
                continue;
            }
            if self.packets.len() < DEPARTED_MAX || self.packets.contains_key(&name) {
                *self.packets.entry(name).or_default() += packets;
            } else {
                self.others += packets;
            }
        }
    }

    /// The packets of each that has left, and of those that are not remembered by name.
    #[must_use]
    pub fn packets(&self, workers: &[WorkerCounts]) -> (HashMap<&TargetName, u64>, u64) {
        let mut all: HashMap<_, _> = self.packets.iter().map(|(name, sum)| (name, *sum)).collect();
        for Departure { slot, name } in &self.leaving {
            *all.entry(name).or_default() += packets(workers, *slot);
        }
        (all, self.others)
    }
}

fn packets(workers: &[WorkerCounts], slot: usize) -> u64 {
    workers.iter().map(|counts| counts.packets(slot)).sum()
}
