//! What the cores of a run have counted up to now, place by place.

use crate::chain::Place;
use crate::control::Built;
use crate::deployment::Deployment;
use crate::report::{StageReport, to_json};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{Ordering, fence};

/// What the cores of a run have counted up to now, in packets.
/// [`Control::snapshot`](crate::Control::snapshot) takes it.
///
/// Read while the cores run, the figures are of slightly different moments: what left is read before
/// what came.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Snapshot {
    /// How it is deployed.
    pub deployment: String,
    /// Received from sources.
    pub received: u64,
    /// Taken over by sinks.
    pub sent: u64,
    /// Made by stages.
    pub created: u64,
    /// Kept by stages for later.
    pub held: u64,
    /// Dropped, by reason; those that there were.
    pub dropped: BTreeMap<String, u64>,
    /// Each place of each core: cores with dispatchers first, a core's places in a packet's order.
    pub places: Vec<PlaceSnapshot>,
}

/// One place of one core. As JSON, the counts stand beside the other fields.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PlaceSnapshot {
    /// What the core does: `run-to-completion`, `dispatcher` or `worker`.
    pub role: String,
    /// The core's number among those of its role.
    pub index: usize,
    /// The CPU that the core is pinned to.
    pub cpu: Option<usize>,
    /// What kind of place it is: `inlet`, where a chain starts, `stage`, `boundary`, where packets
    /// change cores, or `sink`.
    pub place: String,
    /// The place's name and counts.
    #[serde(flatten)]
    pub counts: StageReport,
}

impl Snapshot {
    /// Reads the counters of cores that run, last place first.
    pub(crate) fn of(deployment: Deployment, all: &[Built]) -> Self {
        let mut snapshot = Self {
            deployment: deployment.to_string(),
            received: 0,
            sent: 0,
            created: 0,
            held: 0,
            dropped: BTreeMap::new(),
            places: Vec::new(),
        };
        for built in all.iter().rev() {
            for (position, line) in built.lines.iter().enumerate().rev() {
                let counts = StageReport::of(&line.name, &line.counters);
                fence(Ordering::SeqCst);
                if line.place == Place::Sink {
                    snapshot.sent += counts.emitted;
                }
                if position == 0 && built.devices.sources.is_some() {
                    snapshot.received += counts.received;
                }
                snapshot.created += counts.created;
                snapshot.held += counts.held;
                counts.add_drops_to(&mut snapshot.dropped);
                snapshot.places.push(PlaceSnapshot {
                    role: built.role.to_string(),
                    index: built.index,
                    cpu: built.cpu,
                    place: line.place.to_string(),
                    counts,
                });
            }
        }
        snapshot.places.reverse();
        snapshot
    }

    /// All packets dropped, whatever the reason.
    #[must_use]
    pub fn dropped_sum(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// The snapshot as one line of JSON.
    ///
    /// # Panics
    /// Never: every field can be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}
