//! The part of a worker that polls: a source and the chain behind it.

use crate::chain::{Down, Head};
use crate::culprit::blame;
use hotloop_stage::{BURST_CAPACITY, Carries, Source, Tick};

/// A source and the chain that its packets run.
pub struct Front<S, H> {
    pub(crate) source: S,
    pub(crate) chain: H,
    polling: bool,
    lossless: bool,
    /// Whether a poll has begun and not been counted yet; stays set where the source panics.
    is_in_poll: bool,
}

impl<S, H> Front<S, H>
where
    S: Source<Item: Carries>,
    H: Head<In = S::Item>,
{
    pub(crate) fn new(source: S, chain: H) -> Self {
        let lossless = source.lossless();
        Self { source, chain, polling: true, lossless, is_in_poll: false }
    }

    pub(crate) const fn is_lossless(&self) -> bool {
        self.lossless
    }

    /// Polls once, for as many packets as `room` where the source can wait, and says how many came.
    #[inline(always)]
    pub(crate) fn poll(&mut self, room: usize) -> usize {
        let inlet = self.chain.inlet();
        if !self.polling || !inlet.burst().is_empty() {
            return 0;
        }
        if self.lossless {
            if room == 0 {
                return 0;
            }
            inlet.burst().set_limit(room.min(BURST_CAPACITY));
        }
        self.is_in_poll = true;
        let said = blame(|| "source".to_owned(), || self.source.poll(inlet.burst()));
        self.is_in_poll = false;
        let found = inlet.burst().len();
        if (said | found) != 0 {
            inlet.count_received(said, found);
        }
        found
    }

    /// Runs everything in the inlet, moving `now` on where the clock is the packets' own.
    #[inline(always)]
    pub(crate) fn run<K: Down<H::Out>>(&mut self, now: &mut Tick, down: &mut K) {
        while !self.chain.inlet().burst().is_empty() {
            *now = self.chain.inlet().due(*now);
            self.chain.run(*now, down);
        }
    }

    pub(crate) const fn stop(&mut self) {
        self.polling = false;
    }

    /// Whether nothing will come any more. A stage may still hold packets, until it is ended.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.source.finished()
    }

    /// After a panic: drops what is inside. What a source that panicked had handed over is counted.
    pub(crate) fn abandon(&mut self) {
        if std::mem::take(&mut self.is_in_poll) {
            let inlet = self.chain.inlet();
            let found = inlet.burst().len();
            inlet.count_received(found, found);
        }
        self.chain.abandon();
    }
}
