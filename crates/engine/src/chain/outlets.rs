//! Several sinks at the end of a graph, each behind a route.

use super::end::End;
use super::{Down, Ending, Line, Outlet, Place};
use hotloop_stage::{
    Carries, Counters, Device, DropReason, Error, Facts, Sink, Tick, drop_reasons,
};
use std::fmt::Debug;
use std::sync::Arc;

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
