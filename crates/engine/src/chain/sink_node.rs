//! The end of a chain: the only place that handles packets which a sink leaves over.

use super::bounds::Is;
use super::node::Node;
use crate::node_info::NodeInfo;
use crate::panic_origin::{attribute, record};
use crate::settle::{BurstCounts, abandon_received, settle};
use crate::turn::TurnContext;
use hotloop_stage::tap::{TapEvent, TapPoint, show};
use hotloop_stage::{
    BURST_CAPACITY, Burst, Carries, Counters, Device, DropReason, Error, Instant, Limits, Sink,
    drop_reasons,
};
use hotloop_watch::{Place, PlaceKind};
use std::sync::Arc;

/// Number of times that a full sink is offered the same packets again before they are dropped.
const TX_RETRY_COUNT: usize = 4;

drop_reasons! {
    enum SinkDrop { TxFull = "tx_full", TxRefused = "tx_refused" }
}

/// A possible result of the factory for `.sink(..)` or `.exit(..)`: a [`Sink`], or
/// [`outlets`](crate::outlets()), for items of type `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no sink of what leaves the chain, `{T}`",
    note = "for packets with a route (`Routed`) there is a sink for each route: \
            `outlets([(route, sink), ..])`"
)]
pub trait Outlet<T> {
    /// The node that the outlet becomes.
    type Node: Node<T>;

    /// Wraps it in the engine's accounting, under this name in `group`.
    fn into_node(self, name: String, group: usize) -> Self::Node;
}

#[diagnostic::do_not_recommend]
impl<S: Sink<Item: Carries>, T: Is<S::Item>> Outlet<T> for S {
    type Node = SinkNode<S>;

    fn into_node(self, name: String, group: usize) -> SinkNode<S> {
        SinkNode::new(self, name, group)
    }
}

/// One sink: retries, then drops as `tx_full`. Packets that the sink accepts but can't send are
/// `tx_refused`.
pub struct SinkNode<S> {
    sink: S,
    name: String,
    number: u32,
    group: usize,
    counters: Arc<Counters>,
}

impl<S: Sink<Item: Carries>> SinkNode<S> {
    pub fn new(sink: S, name: String, group: usize) -> Self {
        Self { sink, name, number: 0, group, counters: Arc::new(Counters::new(SinkDrop::NAMES)) }
    }

    /// Sends all packets of `burst`, or drops them.
    #[inline(always)]
    pub fn send(&mut self, context: TurnContext<'_>, burst: &mut Burst<S::Item>) {
        context.watch.enter(self.number);
        let offered = burst.len();
        if self.counters.is_tapped() {
            show(self.event(TapPoint::Send, context.now), burst, 0);
        }
        let mut sending = Sending { node: self, burst, offered, sent: 0 };
        sending.offer();
        if sending.burst.is_empty() && sending.sent == offered {
            sending.node.settle(offered, offered, 0, false);
            std::mem::forget(sending);
        } else {
            sending.finish(context.now);
        }
    }

    #[inline(always)]
    fn settle(&self, received: usize, emitted: usize, dropped: u64, unwinding: bool) {
        let (received, emitted) = (received as u64, emitted as u64);
        let counts = BurstCounts { received, emitted, dropped, ..BurstCounts::default() };
        settle(&self.counters, counts, unwinding);
    }

    /// Settles the packets that a panicking sink has taken.
    #[cold]
    #[inline(never)]
    fn settle_unwound(&self, received: usize, emitted: usize) {
        record(&self.name);
        self.settle(received, emitted, 0, true);
    }

    /// The view of captures here.
    fn event(&self, point: TapPoint, now: Instant) -> TapEvent<'_> {
        TapEvent { counters: &self.counters, point, now }
    }
}

/// A burst being sent. Its drop settles the packets that a panicking sink has taken.
// The value stays in registers: only cold code takes its address.
struct Sending<'a, S: Sink<Item: Carries>> {
    node: &'a mut SinkNode<S>,
    burst: &'a mut Burst<S::Item>,
    offered: usize,
    /// The number of packets sent, by the sink's count.
    sent: usize,
}

impl<S: Sink<Item: Carries>> Sending<'_, S> {
    #[inline(always)]
    fn offer(&mut self) {
        self.sent += self.node.sink.send(self.burst);
    }

    /// Settles a burst that the sink has not sent completely, after a few more offers.
    #[cold]
    #[inline(never)]
    fn finish(mut self, now: Instant) {
        let mut dropped = self.offer_again(now);
        if self.sent as u64 + dropped != self.offered as u64 {
            dropped += self.count_refused();
        }
        self.node.settle(self.offered, self.sent, dropped, false);
        std::mem::forget(self);
    }

    /// Offers the remaining packets again, and drops the rest. Returns the number of drops.
    fn offer_again(&mut self, now: Instant) -> u64 {
        for _ in 0..TX_RETRY_COUNT {
            if self.burst.is_empty() {
                break;
            }
            self.offer();
        }
        if !self.burst.is_empty() && self.node.counters.is_tapped() {
            let reason = SinkDrop::NAMES[SinkDrop::TxFull.index()];
            show(self.node.event(TapPoint::Drop(reason), now), self.burst, 0);
        }
        let dropped = self.burst.len() as u64;
        self.node.counters.count_drops(SinkDrop::TxFull.index(), dropped);
        self.burst.clear();
        dropped
    }

    /// Number of packets that the sink took and could not send.
    fn count_refused(&self) -> u64 {
        let SinkNode { sink, counters, .. } = &*self.node;
        counters.catch_up_drops(SinkDrop::TxRefused.index(), sink.refused_count())
    }
}

impl<S: Sink<Item: Carries>> Drop for Sending<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.node.settle_unwound(self.offered.saturating_sub(self.burst.len()), self.sent);
    }
}

impl<S: Sink<Item: Carries>, T: Is<S::Item>> Node<T> for SinkNode<S> {
    #[inline(always)]
    fn accept(&mut self, context: TurnContext<'_>, burst: &mut Burst<T>) {
        let burst = T::same(burst);
        burst.fetch();
        self.send(context, burst);
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
        see(self);
    }
}

impl<S: Sink<Item: Carries>> NodeInfo for SinkNode<S> {
    fn place(&self) -> Place {
        Place::new(PlaceKind::Sink, self.group, &self.name, &self.counters)
    }

    fn set_number(&mut self, number: u32) {
        self.number = number;
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn in_flight_max(&self) -> usize {
        0
    }

    fn abandon(&mut self) {}

    fn start(&mut self, limits: &Limits, _: bool) -> Result<(), Error> {
        self.sink.start(limits)
    }

    fn devices(&self) -> Option<Vec<Arc<dyn Device>>> {
        Some(self.sink.devices())
    }

    fn maintain(&mut self) {
        attribute(&self.name, || self.sink.maintain());
    }
}

/// A sink with its own burst, which collects packets.
pub struct Collected<S: Sink> {
    pub burst: Burst<S::Item>,
    node: SinkNode<S>,
}

impl<S: Sink<Item: Carries>> Collected<S> {
    pub fn new(sink: S, name: String, group: usize) -> Self {
        Self { burst: Burst::new(), node: SinkNode::new(sink, name, group) }
    }

    /// Sends the collected packets.
    #[inline(always)]
    pub fn flush(&mut self, context: TurnContext<'_>) {
        if !self.burst.is_empty() {
            self.node.send(context, &mut self.burst);
        }
    }
}

impl<S: Sink<Item: Carries>> NodeInfo for Collected<S> {
    fn place(&self) -> Place {
        self.node.place()
    }

    fn set_number(&mut self, number: u32) {
        self.node.set_number(number);
    }

    fn in_flight(&self) -> usize {
        self.burst.len()
    }

    fn in_flight_max(&self) -> usize {
        BURST_CAPACITY
    }

    fn abandon(&mut self) {
        abandon_received(&self.node.counters, &mut self.burst);
    }

    fn start(&mut self, limits: &Limits, is_lossless: bool) -> Result<(), Error> {
        self.node.start(limits, is_lossless)
    }

    fn devices(&self) -> Option<Vec<Arc<dyn Device>>> {
        self.node.devices()
    }

    fn maintain(&mut self) {
        self.node.maintain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_watch::Watch;

    struct Number(u8);

    impl Carries for Number {
        fn bytes(&self) -> &[u8] {
            &[]
        }
    }

    /// Takes at most two packets a call, and can't send odd ones.
    #[derive(Default)]
    struct EvenPairs {
        sent: Vec<u8>,
        refused_count: u64,
    }

    impl Sink for EvenPairs {
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
        let mut node = SinkNode::new(EvenPairs::default(), "sink".to_owned(), 0);
        let watch = Watch::new(1, None);
        let context = TurnContext { now: Instant::from_ns(0), watch: &watch };
        for numbers in [0..14, 20..23] {
            let mut burst = Burst::new();
            burst.extend(numbers.map(Number));
            node.accept(context, &mut burst);
            assert!(burst.is_empty());
        }
        assert_eq!(node.sink.sent, [0, 2, 4, 6, 8, 20, 22]);
        let counters = &node.counters;
        assert_eq!((counters.received.count(), counters.emitted.count()), (17, 7));
        let dropped: Vec<_> = counters.dropped().collect();
        assert_eq!(dropped, [("tx_full", 4), ("tx_refused", 6)]);
        assert_eq!((counters.unattributed.count(), counters.uncreated.count()), (0, 0));
    }
}
