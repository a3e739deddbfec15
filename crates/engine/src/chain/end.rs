//! The end of a chain: the only place that meets what a sink leaves over.

use super::{Down, Line, Passage, Place, settle};
use crate::culprit::blame;
use hotloop_stage::{
    BURST_CAPACITY, Burst, Carries, Counters, Device, DropReason, Error, Facts, Sink, Tick,
    drop_reasons,
};
use std::fmt::Debug;
use std::sync::Arc;

/// How often a sink that is full is offered the same packets again before they are dropped.
const TX_RETRY_COUNT: usize = 4;

drop_reasons! {
    enum EndDrop { TxFull = "tx_full" }
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

    /// After a panic: drops what is inside and counts it as lost to the panic.
    fn abandon(&mut self);

    /// Appends each sink's name and counters.
    fn lines(&self, lines: &mut Vec<Line>);

    /// How many packets the sinks have taken.
    fn sent_count(&self) -> u64;
}

/// What the factory given to `.sink(..)` may return: a [`Sink`], or [`outlets`].
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

/// One sink with its burst: retries, then drops as `tx_full`.
pub struct End<S: Sink> {
    sink: S,
    burst: Burst<S::Item>,
    counters: Arc<Counters>,
    name: String,
}

impl<S: Sink> End<S> {
    fn new(sink: S, name: String) -> Self {
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
        let dropped = if self.burst.is_empty() { 0 } else { self.offer_again() };
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

/// A packet and the outlet it leaves by.
#[derive(Clone, Copy, Debug)]
pub struct Routed<P, R> {
    /// The packet.
    pub packet: P,
    /// Which of the outlets it takes.
    pub route: R,
}

impl<P: Carries, R> Carries for Routed<P, R> {
    fn carried(&self) -> &[u8] {
        self.packet.carried()
    }

    fn arrival(&self) -> Option<Tick> {
        self.packet.arrival()
    }
}

/// Several sinks, each behind a route. [`outlets`] makes it.
#[derive(Debug)]
pub struct Outlets<R, S>(Vec<(R, S)>);

/// Ends a graph in several sinks: a [`Routed`] packet goes to that of its route. Each has a burst of
/// its own, flushed at the end of each run, and its own `tx_full`.
///
/// A packet whose route is not among them is dropped as `no_outlet`.
pub fn outlets<R, S>(sinks: impl IntoIterator<Item = (R, S)>) -> Outlets<R, S>
where
    R: Copy + Debug + Eq,
    S: Sink<Item: Carries>,
{
    Outlets(sinks.into_iter().collect())
}

impl<R: Copy + Debug + Eq, S: Sink<Item: Carries>> Outlet for Outlets<R, S> {
    type Item = Routed<S::Item, R>;
    type End = Ends<R, S>;

    fn into_end(self) -> Ends<R, S> {
        let end = |(route, sink)| (route, End::new(sink, format!("sink {route:?}")));
        let ends = self.0.into_iter().map(end).collect();
        Ends { ends, strays: Arc::new(Counters::new(StrayDrop::NAMES)) }
    }
}

drop_reasons! {
    enum StrayDrop { NoOutlet = "no_outlet" }
}

/// Several sinks with their bursts.
pub struct Ends<R, S: Sink> {
    ends: Vec<(R, End<S>)>,
    /// Packets whose route has no sink.
    strays: Arc<Counters>,
}

impl<R: Eq, S: Sink> Down<Routed<S::Item, R>> for Ends<R, S> {
    #[inline(always)]
    fn accept(&mut self, item: Routed<S::Item, R>) {
        for (route, end) in &mut self.ends {
            if *route == item.route {
                return end.accept(item.packet);
            }
        }
        self.strays.received.add(1);
        self.strays.count_drop(StrayDrop::NoOutlet.index());
    }

    #[inline(always)]
    fn flush(&mut self) {
        for (_, end) in &mut self.ends {
            end.flush();
        }
    }
}

impl<R: Eq, S: Sink> Ending for Ends<R, S> {
    type Item = Routed<S::Item, R>;

    fn start(&mut self, facts: &Facts) -> Result<(), Error> {
        self.ends.iter_mut().try_for_each(|(_, end)| end.start(facts))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.ends.iter().flat_map(|(_, end)| end.devices()).collect()
    }

    fn in_flight(&self) -> usize {
        self.ends.iter().map(|(_, end)| end.in_flight()).sum()
    }

    fn in_flight_max(&self) -> usize {
        self.ends.iter().map(|(_, end)| end.in_flight_max()).sum()
    }

    fn abandon(&mut self) {
        self.ends.iter_mut().for_each(|(_, end)| end.abandon());
    }

    fn lines(&self, lines: &mut Vec<Line>) {
        self.ends.iter().for_each(|(_, end)| end.lines(lines));
        lines.push(Line::new(Place::Sink, "strays", &self.strays));
    }

    fn sent_count(&self) -> u64 {
        self.ends.iter().map(|(_, end)| end.sent_count()).sum()
    }
}
