//! The packet counts of removed backends. Control uses them, no worker does. No packet is lost from
//! the sums when a backend goes.

use super::WorkerCounts;
use crate::services::{RemovedTarget, TargetName};
use std::collections::HashMap;

/// Number of removed backends with a count of their own. The packets to all others are one sum.
pub const REMOVED_MAX: usize = 65_536;

/// The packets sent to backends before they were removed. A backend that is added again gets its
/// count back.
#[derive(Debug, Default)]
pub struct RemovedCounts {
    packets: HashMap<TargetName, u64>,
    /// Packets to backends beyond [`REMOVED_MAX`].
    others: u64,
    /// Targets that workers may still count for.
    pending: Vec<RemovedTarget>,
}

impl RemovedCounts {
    /// Adds targets that were removed. Workers still count for them, until all use the next service
    /// table.
    pub fn add(&mut self, removed: Vec<RemovedTarget>) {
        self.pending.extend(removed);
    }

    /// Whether no worker counts for a removed target any more.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes over the counts of pending targets, and clears their slots for new targets. No worker
    /// may count there any more.
    pub fn settle(&mut self, workers: &[WorkerCounts]) {
        for RemovedTarget { slot, name } in std::mem::take(&mut self.pending) {
            let packets = packets(workers, slot);
            workers.iter().for_each(|counts| counts.clear(slot));
            if packets == 0 {
                continue;
            }
            if self.packets.len() < REMOVED_MAX || self.packets.contains_key(&name) {
                *self.packets.entry(name).or_default() += packets;
            } else {
                self.others += packets;
            }
        }
    }

    /// The packets of each removed backend, and the sum of those beyond [`REMOVED_MAX`].
    #[must_use]
    pub fn packets(&self, workers: &[WorkerCounts]) -> (HashMap<&TargetName, u64>, u64) {
        let mut all: HashMap<_, _> = self.packets.iter().map(|(name, sum)| (name, *sum)).collect();
        for RemovedTarget { slot, name } in &self.pending {
            *all.entry(name).or_default() += packets(workers, *slot);
        }
        (all, self.others)
    }
}

fn packets(workers: &[WorkerCounts], slot: usize) -> u64 {
    workers.iter().map(|counts| counts.packets(slot)).sum()
}
