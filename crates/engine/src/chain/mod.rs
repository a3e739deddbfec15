//! How stages become one loop: a chain takes items from its inlet and pushes each as far as it goes.
//!
//! Composition is push and static. A [`Head`] is everything up to some stage, and runs into a
//! [`Down`], everything behind it; a graph of stages is one monomorphised type, and stages that see
//! packets singly are fused by the compiler. A stage may emit more than it took anywhere in the
//! chain, because nobody above it has to find room for the overflow.

mod burst_link;
mod end;
mod inlet;
mod link;
mod outlets;
mod settle;

pub use burst_link::ThenBurst;
pub use end::{Ending, Outlet};
pub use inlet::Inlet;
pub use link::Then;
pub use outlets::{Outlets, Routed, outlets};
pub(crate) use settle::{Passage, settle};

use hotloop_stage::{Burst, Counters, Tick};
use std::sync::Arc;

/// Empties a burst that is full.
pub type Spill<'a, T> = &'a mut dyn FnMut(&mut Burst<T>);

/// What a chain hands items to.
pub trait Down<T> {
    /// Takes one item.
    fn accept(&mut self, item: T);

    /// Takes all items of a burst. What it has not taken when it panics is left in the burst.
    #[inline(always)]
    fn accept_burst(&mut self, burst: &mut Burst<T>) {
        while let Some(item) = burst.pop() {
            self.accept(item);
        }
    }

    /// The burst in which `count` items may be put instead of being handed over one by one, where
    /// there is one with so much room. [`landed`](Self::landed) follows.
    #[inline(always)]
    fn landing(&mut self, count: usize) -> Option<&mut Burst<T>> {
        let _ = count;
        None
    }

    /// Items were put into the [`landing`](Self::landing).
    #[inline(always)]
    fn landed(&mut self) {}

    /// Lets `fill` put any number of items into a burst, which it empties by the function beside it
    /// when it is full. That burst is one of this place's own, where it has one; else `spare`, which
    /// is empty and stays so.
    #[inline(always)]
    fn fill(&mut self, spare: &mut Burst<T>, fill: impl FnOnce(&mut Burst<T>, Spill<'_, T>)) {
        fill(spare, &mut |burst| self.accept_burst(burst));
        self.accept_burst(spare);
    }

    /// Comes at the end of a burst: sends on whatever was collected.
    fn flush(&mut self);
}

/// The part of a chain from its inlet to some stage.
pub trait Head {
    /// What the inlet takes.
    type In;

    /// What comes out at the end of this part.
    type Out;

    /// The inlet, which the engine fills.
    fn inlet(&mut self) -> &mut Inlet<Self::In>;

    /// Runs what is in the inlet into `down`, at `now`.
    fn run<K: Down<Self::Out>>(&mut self, now: Tick, down: &mut K);

    /// Calls every stage's `tick`.
    fn tick<K: Down<Self::Out>>(&mut self, now: Tick, down: &mut K);

    /// Calls every stage's `finish`, first stage first, and flushes.
    fn finish<K: Down<Self::Out>>(&mut self, now: Tick, down: &mut K);

    /// Packets inside, found by walking bursts and asking stages what they hold.
    fn in_flight(&self) -> usize;

    /// How many packets there may be inside.
    fn in_flight_max(&self) -> usize;

    /// After a panic: drops what is inside and counts it as lost to the panic.
    fn abandon(&mut self);

    /// Appends each stage's name and counters, in order.
    fn lines(&self, lines: &mut Vec<Line>);
}

/// One line of the ledger: a place that counts, on one core.
#[derive(Clone, Debug)]
pub struct Line {
    /// What kind of place it is.
    pub place: Place,
    /// The stage's name, or what the engine calls its own place.
    pub name: String,
    /// Its counters.
    pub counters: Arc<Counters>,
}

impl Line {
    pub(crate) fn new(place: Place, name: impl Into<String>, counters: &Arc<Counters>) -> Self {
        Self { place, name: name.into(), counters: Arc::clone(counters) }
    }
}

/// A kind of place that counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// Where a chain starts.
    Inlet,
    /// A stage.
    Stage,
    /// Where packets change cores.
    Boundary,
    /// A sink.
    Sink,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Inlet => "inlet",
            Self::Stage => "stage",
            Self::Boundary => "boundary",
            Self::Sink => "sink",
        })
    }
}

/// A stage's name for people: its type's, without modules and generic parameters.
pub(crate) fn stage_name<S>() -> String {
    let full = std::any::type_name::<S>();
    let bare = full.split('<').next().unwrap_or(full);
    bare.rsplit("::").next().unwrap_or(bare).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Route<T>(T);

    #[test]
    fn a_stage_is_named_by_its_bare_type() {
        assert_eq!(stage_name::<Route<std::sync::Arc<u8>>>(), "Route");
        assert_eq!(stage_name::<hotloop_stage::Each<fn()>>(), "Each");
        assert_eq!(Route(1).0, 1);
    }
}
