//! Places: the counting parts of a graph on one core, each a row of the account.

use hotloop_stage::{Counters, Gauge};
use std::sync::Arc;

/// One row of the account: a part of the graph on one core.
#[derive(Clone, Debug)]
pub struct Place {
    /// The kind of place.
    pub kind: PlaceKind,
    /// The group of cores that it belongs to.
    pub group: usize,
    /// The name of the stage, or the engine's name for the place.
    pub name: String,
    /// The place's counters.
    pub counters: Arc<Counters>,
    /// The stage's own counters and gauges.
    pub gauges: Vec<Gauge>,
}

impl Place {
    /// A place without gauges.
    pub fn new(kind: PlaceKind, group: usize, name: &str, counters: &Arc<Counters>) -> Self {
        let (name, counters) = (name.to_owned(), Arc::clone(counters));
        Self { kind, group, name, counters, gauges: Vec::new() }
    }
}

/// A kind of place that counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlaceKind {
    /// A source.
    Source,
    /// The end of the rings into a group.
    Rings,
    /// A stage.
    Stage,
    /// A boundary between two groups.
    Boundary,
    /// A sink.
    Sink,
}

impl std::fmt::Display for PlaceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Rings => "rings",
            Self::Stage => "stage",
            Self::Boundary => "boundary",
            Self::Sink => "sink",
        })
    }
}
