//! A burst: packets of known connections are forwarded at once, all others are dispatched.

use super::{Balance, BalanceDrop, WAITING_MAX, Worker};
use crate::arrival::hash;
use crate::connections::Finding;
use crate::counts::{TargetCounts, WorkerCounts};
use crate::next_hops::BY_KERNEL;
use crate::own_header::{fast_flags, plain_flags};
use crate::services::{ServiceTable, Target, TargetId, active};
use hotloop::engine::Routed;
use hotloop::flow::{Hinted, VALUES_AHEAD, prefetch_at};
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;
use hotloop::packet::ethernet::MacAddress;
use hotloop::stage::{Burst, BurstStage, Carries, Classified, Cx, Instant, Output};
use std::fmt;

/// How many targets stay in a core's cache by themselves. With more, those of a burst are prefetched: with 10,000
/// services, it took twice as long without.
const CACHED_TARGETS_MAX: usize = 512;

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
        let Worker { connections, ports, .. } = &mut self.state;
        let found_by = connections.hinted(cx.now());
        if self.classifies && !has_blocked {
            match found_by {
                Ok(hinted) => {
                    let classify = |it: &mut Classified<P>| ports.classify(&mut it.packet);
                    connections.hint_burst(input.as_mut_slice(), classify);
                    self.run_hinted(cx, input, out, hinted);
                }
                Err(unhinted) => self.run::<true, false, _>(cx, input, out, unhinted),
            }
            return;
        }
        if self.classifies {
            self.classify(input);
        }
        if has_blocked {
            self.drop_blocked(cx, input);
        }
        match found_by {
            Ok(hinted) => {
                let key = |it: &mut Classified<P>| it.tag().fast_key_v4(it.packet.data());
                self.state.connections.hint_burst(input.as_mut_slice(), key);
                self.run_hinted(cx, input, out, hinted);
            }
            Err(unhinted) => self.run::<false, false, _>(cx, input, out, unhinted),
        }
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
    /// Balances a burst that hints were made for.
    #[inline(never)]
    fn run_hinted(
        &mut self,
        cx: &mut Cx<'_, BalanceDrop>,
        input: &mut Burst<Classified<P>>,
        out: &mut Output<'_, Routed<P, Route>>,
        hinted: Hinted,
    ) {
        // Where the connections stay in the cache by themselves, their targets are not many.
        if self.services.current().targets().len() > CACHED_TARGETS_MAX {
            self.prefetch_targets(input.as_slice());
            self.run::<false, true, _>(cx, input, out, hinted);
        } else {
            self.run::<false, false, _>(cx, input, out, hinted);
        }
    }

    /// Balances a burst. Where it is `AT_ONCE`, its packets were not classified, so that each is looked at once.
    /// With `TARGETS`, those of later packets are prefetched.
    #[inline(always)]
    fn run<const AT_ONCE: bool, const TARGETS: bool, F: Finding>(
        &mut self,
        cx: &mut Cx<'_, BalanceDrop>,
        input: &mut Burst<Classified<P>>,
        out: &mut Output<'_, Routed<P, Route>>,
        finding: F,
    ) {
        let (now, count) = (cx.now(), input.len());
        let (services, counts) = (self.services.current(), &self.counts[self.worker]);
        let route = self.state.egresses.backends.route;
        let way = Way::new(services, counts, self.state.link);
        let state = &mut self.state;
        let mut turn = Turn { cx, out, services, counts, may_punt: true };
        let mut next_index = 0;
        while let Some((other, found)) = turn.out.map_until(input, |classified| {
            // Where packets are looked at once, the place in the burst does not matter.
            let index = next_index;
            next_index += usize::from(!AT_ONCE);
            let layout = match AT_ONCE {
                true => state.ports.layout_of(&classified.packet),
                false => classified.tag(),
            };
            let mut packet = classified.packet;
            if state.forward::<TARGETS>(&way, (&mut packet, layout), (index, now), finding) {
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
        for packet in input.as_mut_slice() {
            self.state.ports.classify(&mut packet.packet);
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
        let way = Way::new(services, counts, self.state.link);
        for (index, classified) in burst.iter().enumerate().take(VALUES_AHEAD) {
            let layout = classified.tag();
            if !layout.is_fast_v4() {
                self.state.prefetch_any_target(&way, index, layout);
            } else if let Some(target) = self.state.connections.likely_target_v4(index) {
                way.prefetch(target);
            }
        }
    }
}

/// What the packets of a burst need on their way to targets. Copied, so that no write to memory has it read again.
struct Way<'a> {
    services: &'a ServiceTable,
    counts: &'a WorkerCounts,
    slots: &'a [Target],
    target_counts: &'a [TargetCounts],
    mtu_bytes: u16,
    link: [u8; 12],
}

impl<'a> Way<'a> {
    fn new(services: &'a ServiceTable, counts: &'a WorkerCounts, link: [u8; 12]) -> Self {
        let slots = services.targets();
        // As many, so that what is in one of them is in the other.
        let target_counts = &counts.targets()[..slots.len()];
        let mtu_bytes = services.settings.mtu_bytes;
        Self { services, counts, slots, target_counts, mtu_bytes, link }
    }

    /// Prefetches a target, and its counts.
    #[inline(always)]
    fn prefetch(&self, id: TargetId) {
        prefetch_at(self.slots, id.slot());
        prefetch_at(self.target_counts, id.slot());
    }
}

impl<P: PacketBuf + Carries> Worker<P> {
    /// Prefetches the target of the connection of the packet at `index` of the burst, and its counts. `layout` is that
    /// of a packet of the same IP version. Those of the fast path are looked at where they stand.
    #[inline(never)]
    fn prefetch_any_target(&self, way: &Way<'_>, index: usize, layout: Layout) {
        if let Some(target) = self.connections.likely_target(index, layout) {
            way.prefetch(target);
        }
    }

    /// Encapsulates the packet at `index` of the burst if its connection is known and does not change by
    /// it. Returns whether it did: any other packet is as it was. With `TARGETS`, the target of a later one is prefetched.
    #[inline(always)]
    fn forward<const TARGETS: bool>(
        &mut self,
        way: &Way<'_>,
        (packet, layout): (&mut P, Layout),
        (index, now): (usize, Instant),
        finding: impl Finding,
    ) -> bool {
        let Self { connections, identifications, .. } = self;
        if layout.is_fast_v4() {
            let on_ahead = |target| {
                if TARGETS {
                    way.prefetch(target);
                }
            };
            let packet_seen = (&*packet, layout);
            if let Some((connection, hash)) =
                finding.find(connections, packet_seen, index, on_ahead)
                && let Some(front) = packet.data().first_chunk()
                && connection.is_unmoved_by(fast_flags(front))
                && let Some(target) = active(way.slots, connection.target)
            {
                let flow = (hash.source, identifications);
                if target.tunnel.wrap_fast_v4(packet, layout, way.mtu_bytes, &way.link, flow) {
                    way.target_counts[connection.target.slot()].packets.add(1);
                    return true;
                }
            } else {
                return false;
            }
        } else if TARGETS {
            self.prefetch_any_target(way, index + VALUES_AHEAD, layout);
        }
        self.forward_any((way.services, way.counts), (packet, layout), (index, now))
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
        let Self { connections, link, seed, .. } = self;
        if let Some(connection) = connections.found(index, layout, frame, now)
            && connection.is_unmoved_by(plain_flags(frame, layout))
            && let id = connection.target
            && let Some(target) = services.active(id)
        {
            let (tunnel, mtu_bytes) = (&target.tunnel, services.settings.mtu_bytes);
            let hash = if tunnel.is_spread() { hash(frame, layout, seed) } else { 0 };
            let count = &counts.target(id).packets;
            if tunnel.wrap_fast_v6(packet, layout, mtu_bytes, link, hash) {
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
