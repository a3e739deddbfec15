//! The end of a chain: the only place that meets what a sink leaves over.

use super::{Down, Line, Passage, Place, Spill, settle};
use crate::culprit::blame;
use hotloop_stage::{
    BURST_CAPACITY, Burst, Carries, Counters, Device, DropReason, Error, Facts, Sink, drop_reasons,
};
use std::fmt::Debug;
use std::sync::Arc;

/// How often a sink that is full is offered the same packets again before they are dropped.
const TX_RETRY_COUNT: usize = 4;

drop_reasons! {
    enum EndDrop { TxFull = "tx_full", TxRefused = "tx_refused" }
}

/// What a chain ends in: one sink, or several.
pub trait Ending: Down<Self::Item> {
    /// What it takes.
    type Item;

    /// Starts the devices behind it.
    ///
    /// # Errors
    /// The first device's that does not start.
    fn start(&mut self, facts: &Facts) -> Result<(), Error>;

    /// The devices behind it.
    fn devices(&self) -> Vec<Arc<dyn Device>>;

    /// Packets that were accepted and neither sent nor dropped yet.
    fn in_flight(&self) -> usize;

    /// How many there may be of them.
    fn in_flight_max(&self) -> usize;

    /// Has each sink do what [`Sink::maintain`] says.
    fn maintain(&mut self);

    /// After a panic: drops what is inside and counts it as lost to the panic.
    fn abandon(&mut self);

    /// Appends each sink's name and counters.
    fn lines(&self, lines: &mut Vec<Line>);

    /// How many packets the sinks have taken.
    fn sent_count(&self) -> u64;
}

/// What the factory given to `.sink(..)` may return: a [`Sink`], or [`outlets`](super::outlets()).
pub trait Outlet {
    /// What it takes.
    type Item;

    /// What it becomes.
    type End: Ending<Item = Self::Item>;

    /// Puts the engine's accounting around it.
    fn into_end(self) -> Self::End;
}

impl<S: Sink<Item: Carries>> Outlet for S {
    type Item = S::Item;
    type End = End<S>;

    fn into_end(self) -> End<S> {
        End::new(self, "sink".to_owned())
    }
}

/// One sink with its burst: retries, then drops as `tx_full`. What the sink itself can't send is
/// `tx_refused`.
pub struct End<S: Sink> {
    sink: S,
    burst: Burst<S::Item>,
    counters: Arc<Counters>,
    name: String,
}

impl<S: Sink> End<S> {
    pub(super) fn new(sink: S, name: String) -> Self {
        Self { sink, burst: Burst::new(), counters: Arc::new(Counters::new(EndDrop::NAMES)), name }
    }

    #[inline(always)]
    fn send(&mut self) {
        let Self { sink, burst, counters, name } = self;
        Sending { sink, burst, counters, name, offered: 0, said: 0 }.run();
    }
}

/// A burst being sent. Its drop settles what a sink that panics has taken.
struct Sending<'a, S: Sink> {
    sink: &'a mut S,
    burst: &'a mut Burst<S::Item>,
    counters: &'a Counters,
    name: &'a str,
    offered: usize,
    said: usize,
}

impl<S: Sink> Sending<'_, S> {
    #[inline(always)]
    fn run(mut self) {
        self.offered = self.burst.len();
        self.offer();
        let mut dropped = if self.burst.is_empty() { 0 } else { self.offer_again() };
        if self.said as u64 + dropped != self.offered as u64 {
            dropped += self.count_refused();
        }
        self.settle(dropped, false);
        std::mem::forget(self);
    }

    #[inline(always)]
    fn offer(&mut self) {
        let Self { sink, burst, name, .. } = self;
        self.said += blame(|| (*name).to_owned(), || sink.send(burst));
    }

    /// Offers what was left over again, drops what is left then, and returns how many those are.
    #[cold]
    fn offer_again(&mut self) -> u64 {
        for _ in 0..TX_RETRY_COUNT {
            if self.burst.is_empty() {
                break;
            }
            self.offer();
        }
        let mut dropped = 0;
        while self.burst.pop().is_some() {
            self.counters.count_drop(EndDrop::TxFull.index());
            dropped += 1;
        }
        dropped
    }

    /// What the sink took and could not send.
    #[cold]
    fn count_refused(&self) -> u64 {
        self.counters.catch_up_drops(EndDrop::TxRefused.index(), self.sink.refused_count())
    }

    #[inline(always)]
    fn settle(&self, dropped: u64, unwinding: bool) {
        let left = if unwinding { self.burst.len() } else { 0 };
        let passage = Passage {
            received: self.offered.saturating_sub(left) as u64,
            emitted: self.said as u64,
            dropped,
            ..Passage::default()
        };
        settle(self.counters, passage, unwinding);
    }
}

impl<S: Sink> Drop for Sending<'_, S> {
    #[cold]
    fn drop(&mut self) {
        self.settle(0, true);
    }
}

impl<S: Sink> Down<S::Item> for End<S> {
    #[inline(always)]
    fn accept(&mut self, item: S::Item) {
        self.burst.push(item);
        if self.burst.is_full() {
            self.send();
        }
    }

    #[inline(always)]
    fn landing(&mut self, count: usize) -> Option<&mut Burst<S::Item>> {
        if self.burst.len() + count > BURST_CAPACITY {
            self.send();
        }
        Some(&mut self.burst)
    }

    #[inline(always)]
    fn landed(&mut self) {
        if self.burst.is_full() {
            self.send();
        }
    }

    #[inline(always)]
    fn fill(
        &mut self,
        _: &mut Burst<S::Item>,
        fill: impl FnOnce(&mut Burst<S::Item>, Spill<'_, S::Item>),
    ) {
        let Self { sink, burst, counters, name } = self;
        fill(burst, &mut |burst| {
            Sending { sink, burst, counters, name, offered: 0, said: 0 }.run();
        });
        self.landed();
    }

    /// Where nothing waits, a burst is sent from where it lies.
    #[inline(always)]
    fn accept_burst(&mut self, burst: &mut Burst<S::Item>) {
        if !self.burst.is_empty() {
            while let Some(item) = burst.pop() {
                self.accept(item);
            }
        } else if !burst.is_empty() {
            let Self { sink, counters, name, .. } = self;
            Sending { sink, burst, counters, name, offered: 0, said: 0 }.run();
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        if !self.burst.is_empty() {
            self.send();
        }
    }
}

impl<S: Sink> Ending for End<S> {
    type Item = S::Item;

    fn start(&mut self, facts: &Facts) -> Result<(), Error> {
        self.sink.start(facts)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.sink.devices()
    }

    fn in_flight(&self) -> usize {
        self.burst.len()
    }

    fn in_flight_max(&self) -> usize {
        BURST_CAPACITY
    }

    fn maintain(&mut self) {
        let Self { sink, name, .. } = self;
        blame(|| name.clone(), || sink.maintain());
    }

    fn abandon(&mut self) {
        self.counters.panicked.add(self.burst.len() as u64);
        self.counters.received.add(self.burst.len() as u64);
        self.burst.clear();
    }

    fn lines(&self, lines: &mut Vec<Line>) {
        lines.push(Line::new(Place::Sink, self.name.as_str(), &self.counters));
    }

    fn sent_count(&self) -> u64 {
        self.counters.emitted.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Number(u8);

    impl Carries for Number {
        fn carried(&self) -> &[u8] {
            &[]
        }
    }

    /// Takes at most two a call, and can't send odd ones.
    #[derive(Default)]
    struct Picky {
        sent: Vec<u8>,
        refused_count: u64,
    }

    impl Sink for Picky {
        type Item = Number;

        fn send(&mut self, burst: &mut Burst<Number>) -> usize {
            let before = self.sent.len();
            for Number(number) in (0..2).map_while(|_| burst.pop()) {
                if number % 2 == 0 {
                    self.sent.push(number);
                } else {
                    self.refused_count += 1;
                }
            }
            self.sent.len() - before
        }

        fn refused_count(&self) -> u64 {
            self.refused_count
        }
    }

    #[test]
    fn what_a_sink_leaves_and_what_it_cannot_send_are_drops_of_their_own() {
        let mut end = Picky::default().into_end();
        (0..14).for_each(|number| end.accept(Number(number)));
        end.flush();
        (20..23).for_each(|number| end.accept(Number(number)));
        end.flush();
        assert_eq!(end.sink.sent, [0, 2, 4, 6, 8, 20, 22]);
        let counters = &end.counters;
        assert_eq!((counters.received.count(), end.sent_count()), (17, 7));
        let dropped: Vec<_> = counters.dropped().collect();
        assert_eq!(dropped, [("tx_full", 4), ("tx_refused", 6)]);
        assert_eq!((counters.unattributed.count(), counters.uncreated.count()), (0, 0));
    }
}
