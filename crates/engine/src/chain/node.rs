//! What runs: nodes that pass bursts on, each owning those after it.

use crate::load::At;
use hotloop_stage::{Burst, Counter, Counters, Device, Error, Limits};
use std::sync::Arc;

/// A node of a chain, together with all nodes after it.
pub trait Node<In> {
    /// Takes all items of `burst` and passes on what becomes of them. Where something panics, the
    /// items that no node has taken stay in `burst`.
    fn accept(&mut self, at: At<'_>, burst: &mut Burst<In>);

    /// One turn, with or without packets: calls `tick` of the stages and runs what came through the
    /// rings of later groups. Returns the number of packets that came.
    fn turn(&mut self, at: At<'_>) -> usize;

    /// One turn of the drain, once nothing comes from the nodes before. Returns whether nothing is
    /// left here or in later nodes of this core.
    fn close(&mut self, at: At<'_>) -> bool;

    /// The number of items that find room in the rings of every boundary of this core.
    fn room(&mut self) -> usize;

    /// Calls `see` with every part of the chain from here on, in the order of a packet.
    fn visit(&mut self, see: &mut dyn FnMut(&mut dyn Part));
}

/// Calls [`Node::accept`] where that is rare. All later nodes are inlined into a call: one in each place
/// would double the code with every node.
#[inline(never)]
pub fn pass_on<T>(node: &mut impl Node<T>, at: At<'_>, burst: &mut Burst<T>) {
    let place = at.watch.place();
    node.accept(at, burst);
    // What runs here goes on.
    at.watch.enter(place);
}

/// A part of a chain that counts packets and may hold some, as it is seen outside the packet path.
pub trait Part {
    /// Its place in the report.
    fn place(&self) -> Place;

    /// Sets its number among the parts of its core, in the order of a packet, by which it says that it
    /// runs.
    fn set_number(&mut self, number: u32);

    /// Packets that wait for it, and how many find room, where that is known; nothing where none wait
    /// or nobody knows.
    fn fill(&mut self) -> Option<(usize, Option<usize>)> {
        None
    }

    /// Packets in it, found by walking bursts and rings and asking stages what they hold.
    fn in_flight(&self) -> usize;

    /// The most packets that can be in it.
    fn in_flight_max(&self) -> usize;

    /// After a panic: drops what is in it and counts that as lost to the panic.
    fn abandon(&mut self);

    /// After [`abandon`](Self::abandon): drops what other cores still send here. Returns whether
    /// nothing more can come.
    fn discard(&mut self) -> bool {
        true
    }

    /// Starts its devices. Where `is_lossless`, a source of the graph can wait, and rings must not
    /// overflow.
    ///
    /// # Errors
    /// The first device's that does not start.
    fn start(&mut self, limits: &Limits, is_lossless: bool) -> Result<(), Error> {
        let _ = (limits, is_lossless);
        Ok(())
    }

    /// Whether it is a source that can wait.
    fn is_lossless(&self) -> bool {
        false
    }

    /// Whether it has work left that no packet brings: [`BurstStage::has_work`](hotloop_stage::BurstStage::has_work).
    fn has_work(&self) -> bool {
        false
    }

    /// The devices of its source or sink; none where it has neither.
    fn devices(&self) -> Option<Vec<Arc<dyn Device>>> {
        None
    }

    /// Calls [`Sink::maintain`](hotloop_stage::Sink::maintain) of its sink.
    fn maintain(&mut self) {}
}

/// One row of the account: a part of the graph on one core.
#[derive(Clone, Debug)]
pub struct Place {
    /// What kind of place it is.
    pub kind: PlaceKind,
    /// The group of cores it belongs to.
    pub group: usize,
    /// The name of the stage, or what the engine calls the place.
    pub name: String,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// The stage's own counters and gauges, by name.
    pub gauges: Vec<(&'static str, Arc<Counter>)>,
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

/// What passed a place since it last settled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passage {
    /// Packets it took.
    pub received: u64,
    /// Packets it emitted.
    pub emitted: u64,
    /// Packets among those that it created.
    pub created: u64,
    /// Packets it dropped by reason.
    pub dropped: u64,
    /// Packets it held before.
    pub held_before: u64,
    /// Packets it holds now.
    pub held_after: u64,
}

/// Adds a passage to the counters of a place, with what does not add up: received + created + held
/// before must equal emitted + dropped + held after. Where the place is `unwinding`, its panic is the
/// reason for what is missing.
#[inline(always)]
pub fn settle(counters: &Counters, passage: Passage, unwinding: bool) {
    counters.received.add(passage.received);
    counters.emitted.add(passage.emitted);
    let entered = passage.received + passage.created + passage.held_before;
    let left = passage.emitted + passage.dropped + passage.held_after;
    if entered != left || unwinding {
        settle_imbalance(counters, entered, left, unwinding);
    }
}

#[cold]
fn settle_imbalance(counters: &Counters, entered: u64, left: u64, unwinding: bool) {
    let missing = if unwinding { &counters.panicked } else { &counters.unattributed };
    missing.add(entered.saturating_sub(left));
    counters.uncreated.add(left.saturating_sub(entered));
}

/// Drops what a panic has left in a burst that the place at `counters` emitted, and counts it as lost
/// there.
pub fn abandon_emitted<T>(counters: &Counters, burst: &mut Burst<T>) {
    let left = burst.len() as u64;
    counters.emitted.set(counters.emitted.count().saturating_sub(left));
    counters.panicked.add(left);
    drop(std::mem::take(burst));
}

/// Drops what a panic has left in a burst that waits for the place at `counters`, and counts it as
/// received and lost there.
pub fn abandon_received<T>(counters: &Counters, burst: &mut Burst<T>) {
    let left = burst.len() as u64;
    counters.received.add(left);
    counters.panicked.add(left);
    drop(std::mem::take(burst));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_add_up_is_counted() {
        let counters = Counters::new(&[]);
        let whole = Passage {
            received: 10,
            emitted: 8,
            created: 1,
            dropped: 2,
            held_before: 0,
            held_after: 1,
        };
        settle(&counters, whole, false);
        assert_eq!((counters.unattributed.count(), counters.uncreated.count()), (0, 0));
        settle(&counters, Passage { received: 3, emitted: 1, ..Passage::default() }, false);
        assert_eq!((counters.unattributed.count(), counters.uncreated.count()), (2, 0));
        settle(&counters, Passage { received: 1, emitted: 4, ..Passage::default() }, false);
        assert_eq!((counters.unattributed.count(), counters.uncreated.count()), (2, 3));
        settle(&counters, Passage { received: 5, dropped: 4, ..Passage::default() }, true);
        assert_eq!((counters.unattributed.count(), counters.panicked.count()), (2, 1));
        assert_eq!((counters.received.count(), counters.emitted.count()), (19, 13));
    }
}
