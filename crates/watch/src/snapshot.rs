//! The counts of a run's cores, place by place.

use crate::load::{LoadCounts, Watch};
use crate::place::{Place, PlaceKind};
use hotloop_stage::GaugeName;
use serde::{Serialize, Serializer};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The places of one core, for other threads to read.
#[derive(Clone, Debug)]
pub struct CorePlaces {
    /// The name of the core.
    pub name: String,
    /// The group of cores that it belongs to.
    pub group: usize,
    /// The core's number in the group.
    pub index: usize,
    /// The CPU that the core is pinned to.
    pub cpu: Option<usize>,
    /// Maximum number of packets inside the core.
    pub in_flight_max: usize,
    /// The core's places, in the order of a packet.
    pub places: Vec<Place>,
    /// The core's account of its turns.
    pub watch: Arc<Watch>,
    /// For each place, the names of its devices.
    pub devices: Vec<Vec<String>>,
}

impl CorePlaces {
    /// The counts and times of the core's turns.
    #[must_use]
    pub fn load(&self) -> LoadCounts {
        self.watch.counts(&self.name, self.cpu, &self.places)
    }
}

/// The counts of a run's cores up to now, in packets.
///
/// If read while the cores run, the figures belong to slightly different moments: departures are
/// read before arrivals.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Snapshot {
    /// The deployment, in words.
    pub deployment: String,
    /// Received from sources.
    pub received: u64,
    /// Accepted by sinks.
    pub sent: u64,
    /// Created by stages and by sources.
    pub created: u64,
    /// Held by stages for later.
    pub held: u64,
    /// Dropped, by reason; only reasons that have occurred.
    pub dropped: BTreeMap<String, u64>,
    /// Maximum number of packets inside the engine.
    pub in_flight_max: u64,
    /// Each place of each core: the first group's cores first, the places of a core in the order of a
    /// packet.
    pub places: Vec<PlaceSnapshot>,
    /// Packets sent or dropped after `received` and `created` were read; `sent` and `dropped` were
    /// read before.
    #[serde(skip)]
    left_after: u64,
}

/// One place of one core. As JSON, the counts are next to the other fields.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PlaceSnapshot {
    /// The name of the core.
    pub core: String,
    /// The group of cores that the place belongs to.
    pub group: usize,
    /// The number of the core in the group.
    pub index: usize,
    /// The CPU that the core is pinned to.
    pub cpu: Option<usize>,
    /// The kind of place: `source`, `rings` at the beginning of a later group, `stage`, `boundary`
    /// between groups, or `sink`.
    pub place: String,
    /// The name and the counts of the place.
    #[serde(flatten)]
    pub counts: PlaceCounts,
}

/// The counts of a place, in packets.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PlaceCounts {
    /// The name of the stage, or the engine's name for the place.
    pub name: String,
    /// Packets that the place took.
    pub received: u64,
    /// Packets that the place emitted.
    pub emitted: u64,
    /// Packets that the place created.
    pub created: u64,
    /// The part of `emitted` that went to another core.
    pub crossed: u64,
    /// Packets that the place dropped, by reason; only reasons that have occurred.
    pub dropped: BTreeMap<String, u64>,
    /// All drop reasons of the place, including those that have not occurred.
    #[serde(skip)]
    pub reasons: Vec<&'static str>,
    /// Packets that the place held when it last counted.
    pub held: u64,
    /// Packets that the place lost.
    pub unattributed: u64,
    /// Packets that the place emitted without having had them.
    pub uncreated: u64,
    /// The stage's own counters and gauges, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "by_text")]
    pub gauges: BTreeMap<GaugeName, u64>,
}

impl PlaceCounts {
    /// Adds the counts of a place up to now.
    pub fn add(&mut self, place: &Place) {
        let counters = &place.counters;
        for gauge in &place.gauges {
            *self.gauges.entry(gauge.name.clone()).or_default() += gauge.counter.count();
        }
        self.received += counters.received.count();
        self.emitted += counters.emitted.count();
        self.created += counters.created.count();
        self.crossed += counters.crossed.count();
        self.held += counters.held.count();
        self.unattributed += counters.unattributed.count();
        self.uncreated += counters.uncreated.count();
        let panicked = [("panicked", counters.panicked.count())];
        for (reason, count) in counters.dropped().chain(panicked) {
            if !self.reasons.contains(&reason) {
                self.reasons.push(reason);
            }
            if count > 0 {
                *self.dropped.entry(reason.to_owned()).or_default() += count;
            }
        }
    }
}

impl Snapshot {
    /// Reads the counters of a `deployment` of these cores, last place first.
    pub fn of<'a>(
        deployment: String,
        cores: impl DoubleEndedIterator<Item = &'a CorePlaces> + Clone,
    ) -> Self {
        let mut snapshot = Self {
            deployment,
            received: 0,
            sent: 0,
            created: 0,
            held: 0,
            dropped: BTreeMap::new(),
            in_flight_max: cores.clone().map(|core| core.in_flight_max as u64).sum(),
            places: Vec::new(),
            left_after: 0,
        };
        for core in cores.clone().rev() {
            core.places.iter().rev().for_each(|place| snapshot.add(core, place));
        }
        snapshot.places.reverse();
        let places = cores.flat_map(|core| &core.places);
        snapshot.left_after = places.map(left).sum();
        snapshot
    }

    fn add(&mut self, core: &CorePlaces, place: &Place) {
        let mut counts = PlaceCounts { name: place.name.clone(), ..PlaceCounts::default() };
        counts.add(place);
        fence(Ordering::SeqCst);
        match place.kind {
            PlaceKind::Sink => self.sent += counts.emitted,
            PlaceKind::Source => self.received += counts.received,
            PlaceKind::Rings | PlaceKind::Stage | PlaceKind::Boundary => {}
        }
        self.created += counts.created;
        self.held += counts.held;
        for (reason, count) in &counts.dropped {
            *self.dropped.entry(reason.clone()).or_default() += count;
        }
        self.places.push(PlaceSnapshot {
            core: core.name.clone(),
            group: place.group,
            index: core.index,
            cpu: core.cpu,
            place: place.kind.to_string(),
            counts,
        });
    }

    /// All packets dropped, for any reason.
    #[must_use]
    pub fn dropped_sum(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Packets inside the engine, by the counts: between these two numbers, which are the same once
    /// no core runs.
    #[must_use]
    pub fn in_flight(&self) -> RangeInclusive<i64> {
        let entered = self.received + self.created;
        let least = entered.wrapping_sub(self.left_after).cast_signed();
        least..=entered.wrapping_sub(self.sent + self.dropped_sum()).cast_signed()
    }

    /// Whether the account holds while running: the number of packets in flight is neither negative
    /// nor above the maximum.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let in_flight = self.in_flight();
        *in_flight.start() <= self.in_flight_max.cast_signed() && *in_flight.end() >= 0
    }

    /// The snapshot as one line of JSON.
    ///
    /// # Panics
    /// Never: every field can be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names and numbers can be written as JSON")
    }
}

/// Packets that left the engine at a place.
fn left(place: &Place) -> u64 {
    let counters = &place.counters;
    let sent = if place.kind == PlaceKind::Sink { counters.emitted.count() } else { 0 };
    sent + counters.dropped_sum() + counters.panicked.count()
}

fn by_text<S: Serializer>(gauges: &BTreeMap<GaugeName, u64>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(gauges.iter().map(|(name, value)| (Borrow::<str>::borrow(name), value)))
}
