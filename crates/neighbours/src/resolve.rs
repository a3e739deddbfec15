//! The stage that writes the Ethernet address of the next hop.

use crate::key::LinkId;
use crate::link::NextHop;
use crate::table::Neighbours;
use hotloop_packet::{PacketBuf, ethernet};
use hotloop_stage::{
    Burst, BurstStage, Counter, Cx, Gauge, Instant, Outgoing, Output, drop_reasons,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum time that a packet waits: three requests (RFC 4861, section 10: MAX_MULTICAST_SOLICIT).
const WAIT_NS: u64 = 3_000_000_000;

/// Interval of checks of waiting packets if no neighbour has become known.
const LOOK_NS: u64 = 100_000_000;

drop_reasons! {
    /// Reasons for [`Resolve`] to drop.
    pub enum NeighbourDrop {
        /// The next hop did not answer within three seconds, or before the end.
        Unresolved = "unresolved",
        /// The maximum number of packets wait: half of them for the same next hop, or all.
        QueueFull = "neighbour_queue_full",
        /// The packet has no route: [`Next::NoRoute`].
        NoRoute = "no_route",
    }
}

/// A packet's next hop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// The packet leaves unchanged.
    AsIs,
    /// The packet goes to this neighbour.
    To(NextHop),
    /// The packet is dropped, because it has no next hop.
    NoRoute,
}

/// Selects packets' next hops. For a closure, see [`Resolve::new`].
pub trait NextHops<T> {
    /// The next hop of a packet. May also set the packet's outlet. Called again for a packet that
    /// waits, because its next hop may have changed.
    fn next(&mut self, item: &mut T) -> Next;

    /// Applies changes, between two bursts.
    fn take_up(&mut self) {}
}

impl<T, F: FnMut(&T) -> Option<NextHop>> NextHops<T> for F {
    #[inline]
    fn next(&mut self, item: &mut T) -> Next {
        self(item).map_or(Next::AsIs, Next::To)
    }
}

/// Writes the Ethernet addresses of each packet: the next neighbour's, and the station's own. A
/// packet for an unknown neighbour waits for it, in order of arrival.
///
/// Requests are packets that this stage creates, for a packet that waits or with a neighbour that
/// should be asked again: they leave the same way as the packet. With a capture's time, the waits
/// are as long in that time.
///
/// The gauges are `waiting` and `requests`.
#[derive(Debug)]
pub struct Resolve<T, F> {
    neighbours: Arc<Neighbours>,
    next_hops: F,
    waiting: VecDeque<Waiting<T>>,
    waiting_max: usize,
    /// The neighbours' count of changes at the last check of the waiting packets, and the time of
    /// the next check.
    change_count: u64,
    look_at: Instant,
    waiting_gauge: Arc<Counter>,
    requests: Arc<Counter>,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    next_hop: NextHop,
    since: Instant,
}

impl<T: Outgoing, F: FnMut(&T) -> Option<NextHop>> Resolve<T, F> {
    /// Sends each packet to the neighbour that `next_hop` returns; a packet without one leaves
    /// unchanged. At most `waiting_max` packets wait, half of them for one neighbour.
    pub fn new(neighbours: Arc<Neighbours>, waiting_max: usize, next_hop: F) -> Self {
        Self::by(neighbours, waiting_max, next_hop)
    }
}

impl<T: Outgoing, F: NextHops<T>> Resolve<T, F> {
    /// Like [`new`](Self::new), for next hops that change while packets wait, and packets that may
    /// have no next hop.
    pub fn by(neighbours: Arc<Neighbours>, waiting_max: usize, next_hops: F) -> Self {
        Self {
            neighbours,
            next_hops,
            waiting: VecDeque::with_capacity(waiting_max),
            waiting_max,
            change_count: 0,
            look_at: Instant::from_ns(0),
            waiting_gauge: Arc::default(),
            requests: Arc::default(),
        }
    }

    /// Holds a packet for an unknown neighbour.
    fn hold(&mut self, cx: &mut Cx<'_, NeighbourDrop>, item: T, next_hop: NextHop) {
        let is_full = self.waiting.len() >= self.waiting_max;
        let same = self.waiting.iter().filter(|waiting| waiting.next_hop == next_hop);
        if is_full || same.count() >= self.waiting_max.div_ceil(2) {
            cx.discard(item, NeighbourDrop::QueueFull);
            return;
        }
        self.waiting.push_back(Waiting { item, next_hop, since: cx.now() });
    }

    /// Asks for a neighbour, if that is due. The question leaves the same way as `item`.
    #[cold]
    fn ask(&self, now: Instant, item: &T, next_hop: &NextHop, out: &mut Output<'_, T>) {
        let Some(question) = self.neighbours.question(next_hop, now) else { return };
        if next_hop.link() == LinkId::SYSTEM {
            return;
        }
        let Some(mut request) = item.beside() else { return };
        request.packet_mut().truncate(0);
        if next_hop.write_question(question, request.packet_mut()).is_ok() {
            self.requests.add(1);
            out.push_created(request);
        }
    }

    /// Whether the neighbour has become known while packets wait for it: they go first.
    fn is_due(&self, next_hop: &NextHop) -> bool {
        !self.waiting.is_empty()
            && self.change_count != self.neighbours.change_count()
            && self.waiting.iter().any(|waiting| waiting.next_hop == *next_hop)
    }

    /// Sends the packets of neighbours that have become known, and drops packets that waited too
    /// long.
    fn look(&mut self, cx: &mut Cx<'_, NeighbourDrop>, out: &mut Output<'_, T>) {
        let now = cx.now();
        self.change_count = self.neighbours.change_count();
        self.look_at = Instant::from_ns(now.as_ns().saturating_add(LOOK_NS));
        for _ in 0..self.waiting.len() {
            let Some(mut waiting) = self.waiting.pop_front() else { return };
            let next_hop = match self.next_hops.next(&mut waiting.item) {
                Next::To(next_hop) => next_hop,
                Next::AsIs => {
                    out.push(waiting.item);
                    continue;
                }
                Next::NoRoute => {
                    cx.discard(waiting.item, NeighbourDrop::NoRoute);
                    continue;
                }
            };
            waiting.next_hop = next_hop;
            if let Some((mac, _)) = self.neighbours.lookup(next_hop.key, now) {
                ethernet::set_addresses(waiting.item.packet_mut(), next_hop.own_mac, mac);
                out.push(waiting.item);
            } else if now.ns_since(waiting.since) >= WAIT_NS {
                cx.discard(waiting.item, NeighbourDrop::Unresolved);
            } else {
                self.ask(now, &waiting.item, &next_hop, out);
                self.waiting.push_back(waiting);
            }
        }
    }
}

impl<T: Outgoing, F: NextHops<T>> BurstStage<T> for Resolve<T, F> {
    type Out = T;
    type Drop = NeighbourDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, NeighbourDrop>,
        input: &mut Burst<T>,
        out: &mut Output<'_, T>,
    ) {
        let now = cx.now();
        input.fetch();
        while let Some(mut item) = input.pop() {
            let next_hop = match self.next_hops.next(&mut item) {
                Next::To(next_hop) => next_hop,
                Next::AsIs => {
                    out.push(item);
                    continue;
                }
                Next::NoRoute => {
                    cx.discard(item, NeighbourDrop::NoRoute);
                    continue;
                }
            };
            match self.neighbours.lookup(next_hop.key, now) {
                Some((mac, should_ask)) if !self.is_due(&next_hop) => {
                    ethernet::set_addresses(item.packet_mut(), next_hop.own_mac, mac);
                    if should_ask {
                        self.ask(now, &item, &next_hop, out);
                    }
                    out.push(item);
                }
                // Packets that waited for the neighbour go first.
                Some(_) => self.hold(cx, item, next_hop),
                None => {
                    self.ask(now, &item, &next_hop, out);
                    self.hold(cx, item, next_hop);
                }
            }
        }
        self.waiting_gauge.set(self.waiting.len() as u64);
    }

    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_, NeighbourDrop>, out: &mut Output<'_, T>) {
        self.next_hops.take_up();
        if self.waiting.is_empty() {
            return;
        }
        if self.change_count != self.neighbours.change_count() || cx.now() >= self.look_at {
            self.look(cx, out);
            self.waiting_gauge.set(self.waiting.len() as u64);
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_, NeighbourDrop>, _: &mut Output<'_, T>) {
        for waiting in self.waiting.drain(..) {
            cx.discard(waiting.item, NeighbourDrop::Unresolved);
        }
        self.waiting_gauge.set(0);
    }

    fn held(&self) -> usize {
        self.waiting.len()
    }

    fn held_max(&self) -> usize {
        self.waiting_max
    }

    fn growth_max(&self) -> usize {
        // A packet and a request; packets that waited leave in `tick`.
        2
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![Gauge::new("waiting", &self.waiting_gauge), Gauge::new("requests", &self.requests)]
    }
}
