//! One core's share of a group: the source of its packets, and the nodes that they run through.

use super::node::Node;
use crate::node_info::NodeInfo;
use crate::panic_origin::record;
use crate::settle::abandon_emitted;
use crate::turn::TurnContext;
use crate::worker::Worker;
use hotloop_ring::Consumers;
use hotloop_stage::tap::{TapEvent, TapPoint, show};
use hotloop_stage::{
    BURST_CAPACITY, Burst, Carries, Counters, Device, Error, Instant, Limits, Source,
};
use hotloop_watch::{Place, PlaceKind, Watch};
use std::sync::Arc;

/// The rings into a group, as a source.
pub struct Rings<T>(pub Consumers<T>);

impl<T: Carries> Source for Rings<T> {
    type Item = T;

    #[inline(always)]
    fn poll(&mut self, burst: &mut Burst<T>) -> usize {
        let count = self.0.pop_into(burst.room(), burst);
        // Otherwise a stage would wait for each packet in turn.
        burst.set_cold();
        count
    }

    fn finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// A source and the nodes that its packets run through, on one core.
pub struct Group<S: Source, D> {
    pub input: Input<S>,
    down: D,
    /// The time of this group. If the clock is the packets' own, each group has a time of its own.
    now: Instant,
    is_closed: bool,
}

impl<S: Source<Item: Carries>, D: Node<S::Item>> Group<S, D> {
    pub const fn new(input: Input<S>, down: D) -> Self {
        Self { input, down, now: Instant::from_ns(0), is_closed: false }
    }

    /// Takes one turn: polls once, runs the packets as far as they go, and gives every later node
    /// and group its turn. Returns the number of packets that came here and in later groups.
    ///
    /// Not inlined: that leaves one caller for the code that runs for each packet, which is then
    /// inlined into this function.
    #[inline(never)]
    fn step(&mut self, watch: &Watch) -> usize {
        let polled = self.take(watch);
        watch.begin_ticks();
        polled + self.down.turn(TurnContext { now: self.now, watch })
    }

    /// Polls once, and runs the packets.
    #[inline(always)]
    fn take(&mut self, watch: &Watch) -> usize {
        watch.enter(self.input.number);
        if self.input.is_limited {
            self.input.burst.set_limit(self.down.room().min(BURST_CAPACITY));
        }
        let polled = self.input.poll(self.now);
        self.run(watch);
        polled
    }

    /// Runs the packets in the burst.
    #[inline(always)]
    pub fn run(&mut self, watch: &Watch) {
        let Self { input, down, now, .. } = self;
        while !input.burst.is_empty() {
            let burst = if input.is_paced { input.next_due(now) } else { &mut input.burst };
            down.accept(TurnContext { now: *now, watch }, burst);
            if !input.is_paced {
                break;
            }
        }
    }

    /// Runs the packets in the burst, for a previous group on the same core.
    #[inline(never)]
    pub fn run_own(&mut self, watch: &Watch) {
        self.run(watch);
    }

    /// Takes a turn, for a previous group on the same core.
    pub fn turn_own(&mut self, context: TurnContext<'_>) -> usize {
        self.follow(context.now);
        self.step(context.watch)
    }

    /// Advances the time to the previous group's time, on the same core. If the clock is the
    /// packets' own, the previous group is ahead of the packets that wait here.
    #[inline(always)]
    pub fn follow(&mut self, now: Instant) {
        if !self.input.is_paced {
            self.now = self.now.max(now);
        }
    }

    /// Passes on the packets of `burst`, which came from this same core, without storing them.
    #[inline(always)]
    pub fn pass(&mut self, context: TurnContext<'_>, burst: &mut Burst<S::Item>) {
        self.now = self.now.max(context.now);
        self.input.count(burst.len(), burst.len());
        self.down.accept(TurnContext { now: self.now, ..context }, burst);
    }

    /// Takes one turn of the drain, once no packets come from this same core. Returns whether
    /// nothing is left here and in later groups.
    pub fn close(&mut self, watch: &Watch) -> bool {
        if !self.is_closed {
            let before = self.input.counters.emitted.count();
            self.step(watch);
            let is_dry =
                self.input.counters.emitted.count() == before && self.input.source.finished();
            if self.input.is_polling && !is_dry {
                return false;
            }
            self.is_closed = true;
        }
        self.down.close(TurnContext { now: self.now, watch })
    }

    /// Number of packets that this group has room for.
    pub fn room(&mut self) -> usize {
        self.down.room().saturating_sub(self.input.burst.len())
    }

    pub fn visit(&mut self, see: &mut dyn FnMut(&mut dyn NodeInfo)) {
        see(&mut self.input);
        self.down.visit(see);
    }
}

impl<S: Source<Item: Carries>, D: Node<S::Item>> Worker for Group<S, D> {
    #[inline]
    fn turn(&mut self, context: TurnContext<'_>) -> usize {
        self.now = self.now.max(context.now);
        self.step(context.watch)
    }

    fn stop(&mut self) {
        if self.input.kind == PlaceKind::Source {
            self.input.is_polling = self.input.source.stop();
        }
    }

    fn drain(&mut self, context: TurnContext<'_>) -> bool {
        self.now = self.now.max(context.now);
        self.close(context.watch)
    }

    fn is_exhausted(&self) -> Option<bool> {
        (self.input.kind == PlaceKind::Source).then(|| self.input.source.finished())
    }

    fn room(&mut self) -> usize {
        self.down.room()
    }

    fn visit(&mut self, see: &mut dyn FnMut(&mut dyn NodeInfo)) {
        Self::visit(self, see);
    }
}

/// A source with its burst.
pub struct Input<S: Source> {
    source: S,
    kind: PlaceKind,
    /// The number of packets in the rings now, and at most.
    in_rings: fn(&S) -> (usize, usize),
    burst: Burst<S::Item>,
    /// Packets that must run now, if the clock is the packets' own.
    due: Burst<S::Item>,
    is_paced: bool,
    is_polling: bool,
    /// Whether the size of a poll is limited to the free room in later boundaries' rings.
    is_limited: bool,
    creates: bool,
    counters: Arc<Counters>,
    group: usize,
    name: String,
    number: u32,
}

impl<T: Carries> Input<Rings<T>> {
    /// The input of `group`.
    pub fn rings(rings: Rings<T>, group: usize, is_paced: bool) -> Self {
        let in_rings = |rings: &Rings<T>| (rings.0.len(), rings.0.slot_count());
        let input = Self::source(rings, format!("group {group}"), is_paced);
        Self { kind: PlaceKind::Rings, in_rings, group, ..input }
    }
}

impl<S: Source<Item: Carries>> Input<S> {
    /// The input of a graph.
    pub fn source(source: S, name: String, is_paced: bool) -> Self {
        Self {
            creates: source.creates(),
            source,
            kind: PlaceKind::Source,
            in_rings: |_| (0, 0),
            burst: Burst::new(),
            due: Burst::new(),
            is_paced,
            is_polling: true,
            is_limited: false,
            counters: Arc::new(Counters::new(&[])),
            group: 0,
            name,
            number: 0,
        }
    }

    /// The burst, for packets from this same core. Call [`count`](Self::count) afterwards.
    #[inline(always)]
    pub const fn burst(&mut self) -> &mut Burst<S::Item> {
        &mut self.burst
    }

    /// Polls for no more packets than there is room for, and returns the number that came.
    #[inline(always)]
    fn poll(&mut self, now: Instant) -> usize {
        let before = self.burst.len();
        if !self.is_polling || self.burst.room() == 0 {
            return 0;
        }
        let poll = Poll { input: self, before };
        let claimed = poll.input.source.poll(&mut poll.input.burst);
        let found = poll.input.burst.len() - before;
        if (claimed | found) == 0 {
            std::mem::forget(poll);
            return 0;
        }
        poll.input.count(claimed, found);
        std::mem::forget(poll);
        if self.counters.is_tapped() {
            let event = TapEvent { counters: &self.counters, point: TapPoint::Receive, now };
            show(event, &self.burst, before);
        }
        found
    }

    /// Advances the clock, which is the packets' own, to the arrival of the first packet, and takes
    /// the packets that are due then out of the burst.
    #[cold]
    fn next_due(&mut self, now: &mut Instant) -> &mut Burst<S::Item> {
        let next_arrival = |burst: &Burst<S::Item>| burst.as_slice().first().map(Carries::arrival);
        let first = next_arrival(&self.burst).flatten();
        *now = first.map_or(*now, |at| at.max(*now));
        while next_arrival(&self.burst).is_some_and(|at| at.is_none_or(|at| at <= *now)) {
            self.due.extend(self.burst.pop());
        }
        &mut self.due
    }

    /// Counts packets that came in: `claimed` is the number that the source claims to have
    /// delivered, and `found` the number in the burst.
    #[inline(always)]
    pub fn count(&self, claimed: usize, found: usize) {
        let counters = &*self.counters;
        let entered = if self.creates { &counters.created } else { &counters.received };
        entered.add(claimed as u64);
        counters.emitted.add(found as u64);
        if claimed != found {
            counters.unattributed.add(claimed.saturating_sub(found) as u64);
            counters.uncreated.add(found.saturating_sub(claimed) as u64);
        }
    }
}

/// A poll. If the source panics, the drop counts the packets that it has delivered.
struct Poll<'a, S: Source<Item: Carries>> {
    input: &'a mut Input<S>,
    before: usize,
}

impl<S: Source<Item: Carries>> Drop for Poll<'_, S> {
    #[cold]
    fn drop(&mut self) {
        record(&self.input.name);
        let found = self.input.burst.len().saturating_sub(self.before);
        self.input.count(found, found);
    }
}

impl<S: Source<Item: Carries>> NodeInfo for Input<S> {
    fn place(&self) -> Place {
        Place::new(self.kind, self.group, &self.name, &self.counters)
    }

    fn set_number(&mut self, number: u32) {
        self.number = number;
    }

    fn fill(&mut self) -> Option<(usize, Option<usize>)> {
        if self.kind == PlaceKind::Source {
            return Some((self.source.waiting_count()?, None));
        }
        let (waiting, capacity) = (self.in_rings)(&self.source);
        Some((waiting, Some(capacity)))
    }

    fn in_flight(&self) -> usize {
        (self.in_rings)(&self.source).0 + self.burst.len() + self.due.len()
    }

    fn in_flight_max(&self) -> usize {
        (self.in_rings)(&self.source).1 + BURST_CAPACITY
    }

    fn abandon(&mut self) {
        abandon_emitted(&self.counters, &mut self.burst);
        abandon_emitted(&self.counters, &mut self.due);
    }

    fn discard(&mut self) -> bool {
        if self.kind == PlaceKind::Source && !self.source.stop() {
            return true;
        }
        self.burst.set_limit(BURST_CAPACITY);
        self.poll(Instant::from_ns(0));
        self.abandon();
        self.source.finished()
    }

    fn start(&mut self, limits: &Limits, is_lossless: bool) -> Result<(), Error> {
        self.is_limited = is_lossless && (self.kind == PlaceKind::Rings || self.source.lossless());
        self.source.start(limits)
    }

    fn is_lossless(&self) -> bool {
        self.source.lossless()
    }

    fn devices(&self) -> Option<Vec<Arc<dyn Device>>> {
        let devices = (self.kind == PlaceKind::Source).then(|| self.source.devices())?;
        // A source that creates its packets needs no device to compare with.
        (!self.creates || !devices.is_empty()).then_some(devices)
    }
}
