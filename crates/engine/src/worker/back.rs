//! The part of a worker that owns a shard: the chain behind the boundary, and the sinks.

use crate::chain::{Ending, Head};
use crate::router::Own;
use hotloop_ring::Column;
use hotloop_stage::{Burst, Carries, Tick};

/// The chain of a shard, fed from this core's own packets and from the rings of others.
pub struct Back<T: Head, Z> {
    pub(crate) chain: T,
    pub(crate) end: Z,
    column: Option<Column<T::In>>,
    /// Packets from this core's own front that the inlet has not counted yet.
    kept: u64,
    /// This chain's time. Where the clock is the packets' own, the front has run further than what
    /// waits here.
    now: Tick,
}

impl<T, Z> Back<T, Z>
where
    T: Head<In: Carries>,
    Z: Ending<Item = T::Out>,
{
    pub(crate) const fn new(chain: T, end: Z, column: Option<Column<T::In>>) -> Self {
        Self { chain, end, column, kept: 0, now: Tick::from_ns(0) }
    }

    /// Moves the time on, for packets of this core's own that run before the next step.
    #[inline(always)]
    pub(crate) fn set_now(&mut self, now: Tick) {
        self.now = self.now.max(now);
    }

    /// Gathers from the rings as much as fits, runs everything, and says how much was gathered.
    #[inline(always)]
    pub(crate) fn step(&mut self, now: Tick) -> usize {
        self.set_now(now);
        self.count_kept();
        let gathered = self.gather();
        self.run();
        self.chain.tick(self.now, &mut self.end);
        gathered
    }

    #[inline(always)]
    fn count_kept(&mut self) {
        if self.kept != 0 {
            let kept = std::mem::take(&mut self.kept) as usize;
            self.chain.inlet().count_received(kept, kept);
        }
    }

    #[inline(always)]
    fn gather(&mut self) -> usize {
        let Some(column) = &mut self.column else { return 0 };
        let inlet = self.chain.inlet();
        let before = inlet.burst().len();
        let said = column.pop_burst(inlet.burst().room(), |item| inlet.burst().push(item));
        let found = inlet.burst().len() - before;
        if (said | found) != 0 {
            inlet.count_received(said, found);
        }
        found
    }

    #[inline(always)]
    fn run(&mut self) {
        while !self.chain.inlet().burst().is_empty() {
            self.now = self.chain.inlet().due(self.now);
            self.chain.run(self.now, &mut self.end);
        }
    }

    /// Whether nothing is left in the inlet nor can come through the rings.
    pub(crate) fn is_dry(&mut self) -> bool {
        self.column.as_ref().is_none_or(Column::is_finished)
            && self.chain.inlet().burst().is_empty()
    }

    /// Ends the stages, once nothing comes any more.
    pub(crate) fn finish(&mut self) {
        self.chain.finish(self.now, &mut self.end);
        self.end.flush();
    }

    pub(crate) fn abandon(&mut self) {
        self.count_kept();
        self.chain.abandon();
        self.end.abandon();
    }

    /// Drops what the rings hold, as lost to this core's panic.
    pub(crate) fn discard(&mut self) -> bool {
        self.gather();
        self.chain.inlet().abandon();
        self.is_dry()
    }

    pub(crate) fn in_flight(&self) -> usize {
        let rings = self.column.as_ref().map_or(0, Column::len);
        rings + self.chain.in_flight() + self.end.in_flight()
    }

    pub(crate) fn in_flight_max(&self) -> usize {
        let rings = self.column.as_ref().map_or(0, Column::slot_count);
        rings + self.chain.in_flight_max() + self.end.in_flight_max()
    }
}

/// A core's own shard, as its router sees it.
pub struct OwnShard<'a, T: Head, Z> {
    pub(crate) worker: usize,
    pub(crate) back: &'a mut Back<T, Z>,
}

impl<T, Z> Own<T::In> for OwnShard<'_, T, Z>
where
    T: Head<In: Carries>,
    Z: Ending<Item = T::Out>,
{
    #[inline(always)]
    fn worker(&self) -> Option<usize> {
        Some(self.worker)
    }

    #[inline(always)]
    fn keep(&mut self, item: T::In) {
        self.back.kept += 1;
        self.back.chain.inlet().burst().push(item);
        if self.back.chain.inlet().burst().is_full() {
            self.run();
        }
    }

    #[inline(always)]
    fn landing(&mut self) -> Option<&mut Burst<T::In>> {
        Some(self.back.chain.inlet().burst())
    }

    #[inline(always)]
    fn landed(&mut self, count: usize) {
        self.back.kept += count as u64;
    }

    #[inline(always)]
    fn run_full(&mut self) {
        if self.back.chain.inlet().burst().is_full() {
            self.run();
        }
    }
}

impl<T, Z> OwnShard<'_, T, Z>
where
    T: Head<In: Carries>,
    Z: Ending<Item = T::Out>,
{
    #[inline(never)]
    fn run(&mut self) {
        self.back.run();
    }
}
