//! Where a chain starts: a burst that the engine fills from a source or from rings.

use super::{Down, Head, Line, Place};
use hotloop_stage::{BURST_CAPACITY, Burst, Carries, Counters, Tick};
use std::sync::Arc;

/// The start of a chain.
pub struct Inlet<T> {
    burst: Burst<T>,
    /// Whether only what has arrived by `now` may run: the clock is then the packets' own.
    paced: bool,
    counters: Arc<Counters>,
    name: &'static str,
}

impl<T: Carries> Inlet<T> {
    pub(crate) fn new(name: &'static str, paced: bool) -> Self {
        Self { burst: Burst::new(), paced, counters: Arc::new(Counters::new(&[])), name }
    }

    /// The items that have not run yet.
    #[inline(always)]
    pub(crate) const fn burst(&mut self) -> &mut Burst<T> {
        &mut self.burst
    }

    /// Counts what came in, and so will go on. What was said to have come and what the burst grew
    /// by are two counts.
    #[inline(always)]
    pub(crate) fn count_received(&self, said: usize, found: usize) {
        self.counters.received.add(said as u64);
        self.counters.emitted.add(found as u64);
        if said != found {
            self.counters.unattributed.add(said.saturating_sub(found) as u64);
            self.counters.uncreated.add(found.saturating_sub(said) as u64);
        }
    }

    /// The time at which the next items are to run: `now`, or where the clock is the packets' own,
    /// the first item's arrival if that is later.
    #[inline(always)]
    pub(crate) fn due(&self, now: Tick) -> Tick {
        if !self.paced {
            return now;
        }
        self.burst.as_slice().first().and_then(Carries::arrival).map_or(now, |at| at.max(now))
    }

    /// The next item, if it has arrived by `now`.
    fn next_due(&mut self, now: Tick) -> Option<T> {
        let first = self.burst.as_slice().first();
        if first.and_then(Carries::arrival).is_some_and(|at| at > now) {
            return None;
        }
        self.burst.pop()
    }
}

impl<T: Carries> Head for Inlet<T> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn inlet(&mut self) -> &mut Self {
        self
    }

    #[inline(always)]
    fn run<K: Down<T>>(&mut self, now: Tick, down: &mut K) {
        if self.paced {
            while let Some(item) = self.next_due(now) {
                down.accept(item);
            }
        } else {
            down.accept_burst(&mut self.burst);
        }
        down.flush();
    }

    #[inline(always)]
    fn tick<K: Down<T>>(&mut self, _: Tick, _: &mut K) {}

    fn finish<K: Down<T>>(&mut self, _: Tick, down: &mut K) {
        down.flush();
    }

    fn in_flight(&self) -> usize {
        self.burst.len()
    }

    fn in_flight_max(&self) -> usize {
        BURST_CAPACITY
    }

    fn abandon(&mut self) {
        let left = self.burst.len() as u64;
        self.counters.panicked.add(left);
        self.counters.emitted.set(self.counters.emitted.count().saturating_sub(left));
        self.burst.clear();
    }

    fn lines(&self, lines: &mut Vec<Line>) {
        lines.push(Line::new(Place::Inlet, self.name, &self.counters));
    }
}
