//! A burst: packets of known connections are forwarded at once, all others are dispatched.

use super::{Balance, BalanceDrop, WAITING_MAX, Worker};
use crate::arrival::hash;
use crate::counts::WorkerCounts;
use crate::next_hops::BY_KERNEL;
use crate::own_header::{fast_flags, plain_flags};
use crate::services::ServiceTable;
use hotloop::engine::Routed;
use hotloop::flow::{Unhinted, prefetch_line};
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;
use hotloop::packet::ethernet::MacAddress;
use hotloop::stage::{Burst, BurstStage, Carries, Classified, Cx, Instant, Output};
use std::fmt;

/// How many targets stay in a core's cache by themselves. With more, those of a burst are prefetched.
const CACHED_TARGETS_MAX: usize = 512;

/// How many packets ahead targets are prefetched. With 10,000 services, 6 and 12 were alike; 3 took a quarter
/// longer, and no prefetching twice as long.
const TARGETS_AHEAD: usize = 12;

/// A port to send by: the route of the engine.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Route(pub u16);

impl Route {
    /// The way to the kernel, by the interface of the port with this index.
    #[must_use]
    pub const fn to_kernel(index: u16) -> Self {
        Self(u16::MAX - index)
    }

    /// The index of that port; nothing where it is the way to a port itself.
    const fn kernel_index(self) -> Option<u16> {
        if self.0 > u16::MAX / 2 { Some(u16::MAX - self.0) } else { None }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kernel_index() {
            _ if *self == BY_KERNEL => f.write_str("by the kernel's routes"),
            Some(index) => write!(f, "kernel {index}"),
            None => write!(f, "port {}", self.0),
        }
    }
}

/// How packets are sent by a port.
#[derive(Clone, Copy, Debug)]
pub struct Egress {
    /// The port.
    pub route: Route,
    /// The port's own MAC address.
    pub source: MacAddress,
    /// The next hop's.
    pub destination: MacAddress,
}

impl Egress {
    /// Destination and source of its frames.
    pub(super) fn addresses(&self) -> [u8; 12] {
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&self.destination.bytes());
        addresses[6..].copy_from_slice(&self.source.bytes());
        addresses
    }
}

/// How packets are sent, by the side they are for.
#[derive(Clone, Copy, Debug)]
pub struct Egresses {
    /// Towards clients.
    pub clients: Egress,
    /// Towards backends.
    pub backends: Egress,
}

/// What goes with all packets of a burst: the time and the way to drop, the way out, the service table.
pub(super) struct Turn<'t, 'c, 'o, P> {
    pub(super) cx: &'t mut Cx<'c, BalanceDrop>,
    out: &'t mut Output<'o, Routed<P, Route>>,
    pub(super) services: &'t ServiceTable,
    /// Where this worker counts.
    pub(super) counts: &'t WorkerCounts,
    /// Whether packets that are not the balancer's may go elsewhere.
    pub(super) may_punt: bool,
}

impl<P: PacketBuf> Turn<'_, '_, '_, P> {
    #[inline]
    pub(super) fn now(&self) -> Instant {
        self.cx.now()
    }

    pub(super) fn reject(&mut self, packet: P, reason: BalanceDrop) {
        // What it says is for stages that return a verdict for each packet.
        let _ = self.cx.drop::<_, ()>(packet, reason);
    }

    #[inline(always)]
    pub(super) fn send(&mut self, packet: P, route: Route) {
        self.out.push(Routed { packet, route });
    }

    #[inline]
    pub(super) fn send_created(&mut self, packet: P, route: Route) {
        self.out.push_created(Routed { packet, route });
    }
}

impl<P: PacketBuf + Carries> BurstStage<Classified<P>> for Balance<P> {
    type Out = Routed<P, Route>;
    type Drop = BalanceDrop;

    #[inline]
    fn process(
        &mut self,
        cx: &mut Cx<'_, BalanceDrop>,
        input: &mut Burst<Classified<P>>,
        out: &mut Output<'_, Routed<P, Route>>,
    ) {
        self.spare.packets_came();
        let has_blocked = self.services.current().blocked().is_some();
        if self.classifies
            && !has_blocked
            && let Some(unhinted) = self.state.connections.unhinted(cx.now())
        {
            return self.run::<true>(cx, input, out, (Some(unhinted), false));
        }
        if self.classifies {
            self.classify(input);
        }
        if has_blocked {
            self.drop_blocked(cx, input);
        }
        let are_prefetched = self.state.connections.hint_burst(input.as_slice());
        self.run::<false>(cx, input, out, (None, are_prefetched));
    }

    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_, BalanceDrop>, out: &mut Output<'_, Routed<P, Route>>) {
        let now = cx.now();
        self.update_services(now);
        let counts = &self.counts[self.worker];
        self.state.age(counts, now);
        self.queries.answer(&self.state.connections, now);
        if !self.has_waiting_work() || self.spare.is_left() {
            self.state.walk(self.services.current(), now);
            if self.exchanges.are_made() {
                self.exchanges.go_on(&mut self.state, (self.services.current(), counts), now);
            }
        }
        if self.has_waiting_work() {
            self.spare.turn_begins();
        }
        if self.state.probing.is_some() {
            let mut turn =
                Turn { cx, out, services: self.services.current(), counts, may_punt: false };
            self.state.send_probes(&mut turn);
        }
        if self.state.fragments.waiting_count() > 0 {
            let services = self.services.current();
            let mut turn = Turn { cx, out, services, counts, may_punt: false };
            self.state.give_up_fragments(&mut turn, Some(now));
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_, BalanceDrop>, out: &mut Output<'_, Routed<P, Route>>) {
        let counts = &self.counts[self.worker];
        let services = self.services.current();
        let mut turn = Turn { cx, out, services, counts, may_punt: false };
        self.state.give_up_fragments(&mut turn, None);
    }

    fn held(&self) -> usize {
        self.state.fragments.waiting_count()
    }

    fn has_work(&self) -> bool {
        self.has_waiting_work() || self.queries.has_work()
    }

    fn held_max(&self) -> usize {
        WAITING_MAX
    }
}

impl<P: PacketBuf + Carries> Balance<P> {
    /// Balances a burst. Where it is `AT_ONCE`, its packets were not classified, and all connections stay in the cache,
    /// as `unhinted` shows: then each packet is looked at once.
    #[inline(always)]
    fn run<const AT_ONCE: bool>(
        &mut self,
        cx: &mut Cx<'_, BalanceDrop>,
        input: &mut Burst<Classified<P>>,
        out: &mut Output<'_, Routed<P, Route>>,
        (unhinted, are_prefetched): (Option<Unhinted>, bool),
    ) {
        let (now, count) = (cx.now(), input.len());
        let (services, counts) = (self.services.current(), &self.counts[self.worker]);
        // Where the connections stay in the cache by themselves, their targets are not many.
        let prefetches_targets = are_prefetched && services.targets().len() > CACHED_TARGETS_MAX;
        if prefetches_targets {
            self.prefetch_targets(input.as_slice());
        }
        let (route, link) = (self.state.egresses.backends.route, self.state.link);
        let state = &mut self.state;
        let mut turn = Turn { cx, out, services, counts, may_punt: true };
        let mut next_index = 0;
        while let Some((other, found)) = turn.out.map_until(input, |classified| {
            // Without hints, the place in the burst does not matter.
            let index = next_index;
            next_index += usize::from(!AT_ONCE);
            let layout = match AT_ONCE {
                true => state.ports.layout_of(&classified.packet),
                false => classified.tag(),
            };
            let mut packet = classified.packet;
            if prefetches_targets {
                state.prefetch_target((services, counts), index + TARGETS_AHEAD, layout);
            }
            let with = (services, counts, &link);
            if state.forward(with, (&mut packet, layout), (index, now), unhinted) {
                return Ok(Routed { packet, route });
            }
            match state.begin((services, counts), (&mut packet, layout), index, now) {
                Ok(()) => Ok(Routed { packet, route }),
                Err(found) => Err(((packet, layout), found)),
            }
        }) {
            let index = count - 1 - input.len();
            if let Some(order) = &mut self.order {
                order.wait_for(index);
            }
            state.dispatch(&mut turn, other, index, found);
        }
        if let Some(order) = &mut self.order {
            order.burst_done(count);
        }
    }

    /// Leaves in each packet of a burst what it is.
    #[inline(never)]
    fn classify(&self, input: &mut Burst<Classified<P>>) {
        for classified in input.as_mut_slice() {
            let layout = self.state.ports.layout_of(&classified.packet);
            classified.packet.set_metadata(layout.to_metadata());
        }
    }

    /// Goes over to the newest service table.
    fn update_services(&mut self, now: Instant) {
        if self.services.take_up() {
            let settings = &self.services.current().settings;
            self.state.connections.set_idle_ns(settings.idle_ns);
            self.state.schedule.set_persistence_ns(settings.persistence_ns_max);
            self.state.begin_marking(settings.prepare_ns_max, now);
        }
    }

    /// Prefetches the targets of the first connections of a burst: those of the others follow one by one.
    #[inline(never)]
    fn prefetch_targets(&self, burst: &[Classified<P>]) {
        let (services, counts) = (self.services.current(), &self.counts[self.worker]);
        for (index, classified) in burst.iter().enumerate().take(TARGETS_AHEAD) {
            self.state.prefetch_target((services, counts), index, classified.tag());
        }
    }
}

impl<P: PacketBuf + Carries> Worker<P> {
    /// Prefetches the target of the connection of the packet at `index` of the burst, and its counts. `layout` is
    /// that of a packet of the same IP version.
    #[inline(always)]
    fn prefetch_target(
        &self,
        (services, counts): (&ServiceTable, &WorkerCounts),
        index: usize,
        layout: Layout,
    ) {
        if let Some(target) = self.connections.likely_target(index, layout) {
            services.prefetch(target);
            prefetch_line(counts.target(target));
        }
    }

    /// Encapsulates the packet at `index` of the burst if its connection is known and does not change by
    /// it. Returns whether it did: any other packet is as it was. `unhinted`: see [`Balance::run`].
    #[inline(always)]
    fn forward(
        &mut self,
        (services, counts, link): (&ServiceTable, &WorkerCounts, &[u8; 12]),
        (packet, layout): (&mut P, Layout),
        (index, now): (usize, Instant),
        unhinted: Option<Unhinted>,
    ) -> bool {
        let Self { connections, identifications, .. } = self;
        if let Some(key) = layout.fast_key_v4(packet.data()) {
            let found = match unhinted {
                Some(at) => connections.found_v4_unhinted(&key, at),
                None => connections.found_v4(&key, index, now),
            };
            if let Some((connection, hash)) = found
                && let Some(front) = packet.data().first_chunk()
                && connection.is_unmoved_by(fast_flags(front))
                && let Some(target) = services.active(connection.target)
            {
                let (mtu_bytes, flow) = (services.settings.mtu_bytes, (*hash, identifications));
                if target.tunnel.wrap_fast_v4(packet, layout, mtu_bytes, link, flow) {
                    counts.target(connection.target).packets.add(1);
                    return true;
                }
            } else {
                return false;
            }
        }
        self.forward_any((services, counts), (packet, layout), (index, now))
    }

    /// [`forward`](Self::forward) for any packet.
    #[inline(never)]
    fn forward_any(
        &mut self,
        (services, counts): (&ServiceTable, &WorkerCounts),
        (packet, layout): (&mut P, Layout),
        (index, now): (usize, Instant),
    ) -> bool {
        let frame = packet.data();
        let Self { connections, link, identifications, seed, .. } = self;
        if let Some(connection) = connections.found(index, layout, frame, now)
            && connection.is_unmoved_by(plain_flags(frame, layout))
            && let id = connection.target
            && let Some(target) = services.active(id)
        {
            let (tunnel, mtu_bytes) = (&target.tunnel, services.settings.mtu_bytes);
            let hash = if tunnel.is_spread() { hash(frame, layout, seed) } else { 0 };
            let count = &counts.target(id).packets;
            if tunnel.wrap_fast_v6(packet, layout, mtu_bytes, link, (hash, identifications)) {
                count.add(1);
                return true;
            }
            return target.takes_frame(packet.len_bytes())
                && self.encapsulate(packet, target, hash, count).is_ok();
        }
        false
    }
}

impl<P> Worker<P> {
    /// Forgets what fell silent, in bounded steps.
    #[inline]
    fn age(&mut self, counts: &WorkerCounts, now: Instant) {
        let Self { connections, schedule, .. } = self;
        connections.age(now, |target| schedule.connection_removed(target, counts));
        counts.connections.set(connections.len() as u64);
    }
}
