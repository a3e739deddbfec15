//! Several sinks at the end of a graph, one for each route.

use super::bounds::Is;
use super::node::Node;
use super::sink_node::{Collected, Outlet};
use crate::node_info::NodeInfo;
use crate::turn::TurnContext;
use hotloop_stage::tap::{TapEvent, TapPoint, show_one};
use hotloop_stage::{
    Burst, Carries, Counters, Drain, DropReason, Instant, Outgoing, Sink, drop_reasons,
};
use hotloop_watch::{Place, PlaceKind};
use std::fmt::Debug;
use std::sync::Arc;

/// A packet and its route.
#[derive(Clone, Copy, Debug)]
pub struct Routed<P, R> {
    /// The packet.
    pub packet: P,
    /// The outlet that the packet takes.
    pub route: R,
}

impl<P: Carries, R: Send> Carries for Routed<P, R> {
    fn bytes(&self) -> &[u8] {
        self.packet.bytes()
    }

    fn total_bytes(&self) -> usize {
        self.packet.total_bytes()
    }

    fn each_segment(&self, take: &mut dyn FnMut(&[u8])) {
        self.packet.each_segment(take);
    }

    fn arrival(&self) -> Option<Instant> {
        self.packet.arrival()
    }

    #[inline(always)]
    fn prefetch(&self, is_ahead: bool) {
        self.packet.prefetch(is_ahead);
    }

    #[inline]
    fn drop_all(packets: Drain<'_, Self>) {
        let mut all = Burst::new();
        all.extend(packets.map(|routed| routed.packet));
        all.clear();
    }
}

impl<T: Outgoing, R: Copy + Send> Outgoing for Routed<T, R> {
    type Packet = T::Packet;

    fn packet_mut(&mut self) -> &mut T::Packet {
        self.packet.packet_mut()
    }

    fn beside(&self) -> Option<Self> {
        Some(Self { packet: self.packet.beside()?, route: self.route })
    }
}

/// Several sinks, one for each route. [`outlets`] makes it.
#[derive(Debug)]
pub struct Outlets<R, S>(Vec<(R, S)>);

/// Ends a graph in several sinks: a [`Routed`] packet goes to its route's sink. Each sink has its
/// own burst, sent at the end of every incoming burst, and its own `tx_full`.
///
/// A packet with a route that is not among them is dropped as `no_outlet`.
pub fn outlets<R, S>(sinks: impl IntoIterator<Item = (R, S)>) -> Outlets<R, S>
where
    R: Copy + Debug + Eq,
    S: Sink<Item: Carries>,
{
    Outlets(sinks.into_iter().collect())
}

#[diagnostic::do_not_recommend]
impl<R, S, T> Outlet<T> for Outlets<R, S>
where
    R: Copy + Debug + Eq,
    S: Sink<Item: Carries>,
    T: Is<Routed<S::Item, R>>,
{
    type Node = OutletsNode<R, S>;

    fn into_node(self, name: String, group: usize) -> OutletsNode<R, S> {
        let sink =
            |(route, sink)| (route, Collected::new(sink, format!("{name} {route:?}"), group));
        let sinks = self.0.into_iter().map(sink).collect();
        let counters = Arc::new(Counters::new(UnroutedDrop::NAMES));
        OutletsNode { sinks, unrouted: Unrouted { counters, group } }
    }
}

drop_reasons! {
    enum UnroutedDrop { NoOutlet = "no_outlet" }
}

/// Several sinks with their bursts.
pub struct OutletsNode<R, S: Sink> {
    sinks: Vec<(R, Collected<S>)>,
    unrouted: Unrouted,
}

/// Drops packets with a route that has no sink.
struct Unrouted {
    counters: Arc<Counters>,
    group: usize,
}

impl Unrouted {
    #[cold]
    fn drop_one<P: Carries>(&self, now: Instant, packet: P) {
        let reason = UnroutedDrop::NoOutlet.index();
        self.counters.received.add(1);
        self.counters.count_drop(reason);
        if self.counters.is_tapped() {
            let point = TapPoint::Drop(UnroutedDrop::NAMES[reason]);
            show_one(TapEvent { counters: &self.counters, point, now }, packet);
        }
    }
}

impl<R: Eq, S: Sink<Item: Carries>, T: Is<Routed<S::Item, R>>> Node<T> for OutletsNode<R, S> {
    /// Most packets take the same outlet as the previous one: a burst is moved in runs of one
    /// route.
    #[inline(always)]
    fn accept(&mut self, context: TurnContext<'_>, burst: &mut Burst<T>) {
        let burst = T::same(burst);
        burst.fetch();
        let mut first = burst.pop();
        while let Some(Routed { packet, route }) = first {
            let sink = self.sinks.iter_mut().find(|(its, _)| *its == route);
            first = if let Some((_, sink)) = sink {
                sink.burst.push(packet);
                let in_run = |routed: Routed<_, _>| {
                    if routed.route == route { Ok(routed.packet) } else { Err(routed) }
                };
                burst.map_until(&mut sink.burst, in_run)
            } else {
                self.unrouted.drop_one(context.now, packet);
                burst.pop()
            };
        }
        self.sinks.iter_mut().for_each(|(_, sink)| sink.flush(context));
    }

    #[inline(always)]
    fn turn(&mut self, _: TurnContext<'_>) -> usize {
        0
    }

    fn close(&mut self, _: TurnContext<'_>) -> bool {
        true
    }

    fn room(&mut self) -> usize {
        usize::MAX
    }

    fn visit(&mut self, see: &mut dyn FnMut(&mut dyn NodeInfo)) {
        self.sinks.iter_mut().for_each(|(_, sink)| see(sink));
        see(&mut self.unrouted);
    }
}

impl NodeInfo for Unrouted {
    fn place(&self) -> Place {
        Place::new(PlaceKind::Sink, self.group, "no outlet", &self.counters)
    }

    /// This part never runs.
    fn set_number(&mut self, _: u32) {}

    fn in_flight(&self) -> usize {
        0
    }

    fn in_flight_max(&self) -> usize {
        0
    }

    fn abandon(&mut self) {}
}
