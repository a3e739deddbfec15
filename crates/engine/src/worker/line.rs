//! A graph without a boundary: each core polls, works and sends.

use super::{Devices, Front, Tally, Worker, polled_count};
use crate::chain::{self, Ending, Head};
use hotloop_stage::{Carries, Error, Facts, Source, Tick};

/// One core of a graph without a boundary: source, chain, sink.
pub struct Line<S, H, Z> {
    front: Front<S, H>,
    end: Z,
    now: Tick,
    done: bool,
}

impl<S, H, Z> Line<S, H, Z> {
    pub(crate) const fn new(front: Front<S, H>, end: Z) -> Self {
        Self { front, end, now: Tick::from_ns(0), done: false }
    }
}

impl<S, H, Z> Worker for Line<S, H, Z>
where
    S: Source<Item: Carries>,
    H: Head<In = S::Item>,
    Z: Ending<Item = H::Out>,
{
    fn start(&mut self, facts: &Facts) -> Result<(), Error> {
        self.front.source.start(facts)?;
        self.end.start(facts)
    }

    #[inline]
    fn step(&mut self, now: Tick) -> usize {
        self.now = self.now.max(now);
        let polled = self.front.poll(usize::MAX);
        self.front.run(&mut self.now, &mut self.end);
        self.front.chain.tick(self.now, &mut self.end);
        polled
    }

    fn maintain(&mut self) {
        self.end.maintain();
    }

    fn stop(&mut self) {
        self.front.stop();
    }

    fn drain(&mut self, now: Tick) -> bool {
        if !self.done {
            self.step(now);
            self.front.chain.finish(self.now, &mut self.end);
            self.end.flush();
            self.done = true;
        }
        true
    }

    fn abandon(&mut self) {
        self.front.abandon();
        self.end.abandon();
    }

    fn discard(&mut self) -> bool {
        true
    }

    fn is_exhausted(&self) -> bool {
        self.front.is_exhausted()
    }

    fn has_source(&self) -> bool {
        true
    }

    fn in_flight(&self) -> usize {
        self.front.chain.in_flight() + self.end.in_flight()
    }

    fn in_flight_max(&self) -> usize {
        self.front.chain.in_flight_max() + self.end.in_flight_max()
    }

    fn devices(&self) -> Devices {
        Devices { sources: Some(self.front.source.devices()), sinks: Some(self.end.devices()) }
    }

    fn lines(&self) -> Vec<chain::Line> {
        let mut lines = Vec::new();
        self.front.chain.lines(&mut lines);
        self.end.lines(&mut lines);
        lines
    }

    fn tally(&self) -> Tally {
        let polled = polled_count(&self.lines());
        let sent = self.end.sent_count();
        Tally { polled, received: polled, sent, transmitted: sent, crossed: 0 }
    }
}
