//! Several sinks at the end of a graph, each behind a route.

use super::end::End;
use super::{Down, Ending, Line, Outlet, Place};
use hotloop_stage::{
    Burst, Carries, Counters, Device, DropReason, Error, Facts, Sink, Tick, drop_reasons,
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

impl<R, S: Sink> Ends<R, S> {
    /// Drops a packet whose route has no sink.
    #[cold]
    fn lose(&self, item: Option<Routed<S::Item, R>>) {
        self.strays.received.add(u64::from(item.is_some()));
        self.strays.count_drop(StrayDrop::NoOutlet.index());
    }
}

impl<R: Eq, S: Sink> Down<Routed<S::Item, R>> for Ends<R, S> {
    #[inline(always)]
    fn accept(&mut self, item: Routed<S::Item, R>) {
        for (route, end) in &mut self.ends {
            if *route == item.route {
                return end.accept(item.packet);
            }
        }
        self.lose(Some(item));
    }

    /// Most packets go the way of the one before: a burst is handed over in runs of one route.
    #[inline(always)]
    fn accept_burst(&mut self, burst: &mut Burst<Routed<S::Item, R>>) {
        while let Some(first) = burst.as_slice().first() {
            let Some((route, end)) = self.ends.iter_mut().find(|(route, _)| *route == first.route)
            else {
                self.lose(burst.pop());
                continue;
            };
            let is_other = |item: &Routed<S::Item, R>| item.route != *route;
            let other = burst.as_slice().iter().position(is_other);
            let run = other.unwrap_or(burst.len());
            if other.is_none()
                && let Some(landing) = end.landing(run)
            {
                burst.map_into(landing, |item| Some(item.packet));
                end.landed();
            } else {
                for item in (0..run).map_while(|_| burst.pop()) {
                    end.accept(item.packet);
                }
            }
        }
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

    fn maintain(&mut self) {
        self.ends.iter_mut().for_each(|(_, end)| end.maintain());
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
