//! Handles a burst: forwards packets of known connections at once, and dispatches all others. Reads
//! the service table in use and this worker's connections, and allocates nothing. Each packet of
//! the input leaves exactly once: sent, dropped or kept as a fragment.

use super::{Balance, BalanceDrop, WAITING_MAX, Worker};
use crate::classify::hash;
use crate::counts::{TargetCounts, WorkerCounts};
use crate::route::Route;
use crate::services::ServiceTable;
use crate::tcp_flags::{fast_flags, plain_flags};
use hotloop::engine::{Lister, Routed};
use hotloop::flow::{SeenAt, prefetch_at};
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;
use hotloop::stage::{BURST_CAPACITY, Burst, BurstStage, Classified, Cx, Instant, Output};

/// Number of targets that stay in a core's cache without help. With more, the targets of packets
/// off the fast path are prefetched.
const CACHED_TARGETS_MAX: usize = 512;

/// Prefetch distance, in packets of the burst. With 10,000 services, 6 and 12 were alike; 3 took a
/// quarter longer.
const TARGETS_AHEAD: usize = 12;

/// Shared state of a burst's packets: the time and the drop counters, the egress, the service
/// table.
pub(super) struct Turn<'t, 'c, 'o, P> {
    pub(super) cx: &'t mut Cx<'c, BalanceDrop>,
    out: &'t mut Output<'o, Routed<P, Route>>,
    pub(super) services: &'t ServiceTable,
    /// This worker's counters.
    pub(super) counts: &'t WorkerCounts,
    /// Whether packets that aren't the balancer's may be passed to the kernel.
    pub(super) may_punt: bool,
}

impl<P: PacketBuf> Turn<'_, '_, '_, P> {
    #[inline]
    pub(super) fn now(&self) -> Instant {
        self.cx.now()
    }

    pub(super) fn reject(&mut self, packet: P, reason: BalanceDrop) {
        self.cx.discard(packet, reason);
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

impl<P: PacketBuf> BurstStage<Classified<P>> for Balance<P> {
    type Out = Routed<P, Route>;
    type Drop = BalanceDrop;

    #[inline]
    fn process(
        &mut self,
        cx: &mut Cx<'_, BalanceDrop>,
        input: &mut Burst<Classified<P>>,
        out: &mut Output<'_, Routed<P, Route>>,
    ) {
        self.time_budget.packets_came();
        let has_blocked = self.services.current().blocked().is_some();
        let Worker { connections, ports, .. } = &mut self.state;
        let seen_at = connections.seen_at(cx.now());
        let any_v6 = if self.classifies && !has_blocked {
            let classify = |classified: &mut Classified<P>| ports.classify(&mut classified.packet);
            // This core has received them, so they are not cold: `Burst::iter_mut` would take 20 instructions more a packet.
            connections.hint_burst(input.as_mut_slice().iter_mut(), classify)
        } else {
            if self.classifies {
                self.classify(input);
            }
            if has_blocked {
                self.drop_blocked(cx, input);
            }
            let key = |classified: &mut Classified<P>| {
                classified.tag().fast_key_v4(classified.packet.data())
            };
            self.state.connections.hint_burst(input.iter_mut(), key)
        };
        if any_v6 {
            self.state.connections.hint_burst_v6(input.as_slice());
        }
        self.run(cx, input, out, seen_at);
    }

    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_, BalanceDrop>, out: &mut Output<'_, Routed<P, Route>>) {
        let now = cx.now();
        self.update_services(now);
        let counts = &self.counts[self.worker];
        self.state.expire(counts, now);
        if let Some(queries) = &mut self.queries {
            let at = (&self.state.connections, now);
            queries.tick(|query, walk, budget, rows| query.walk(at, walk, budget, rows));
        }
        if !self.has_waiting_work() || self.time_budget.is_left() {
            self.state.walk(self.services.current(), now);
            if self.exchanges.are_made() {
                let tables = Tables { services: self.services.current(), counts };
                self.exchanges.go_on(&mut self.state, tables, now);
            }
        }
        if self.has_waiting_work() {
            self.time_budget.turn_begins();
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
        self.has_waiting_work() || self.queries.as_ref().is_some_and(Lister::has_work)
    }

    fn held_max(&self) -> usize {
        WAITING_MAX
    }
}

impl<P: PacketBuf> Balance<P> {
    /// Balances a burst, after the hints for it were made.
    #[inline(never)]
    fn run(
        &mut self,
        cx: &mut Cx<'_, BalanceDrop>,
        input: &mut Burst<Classified<P>>,
        out: &mut Output<'_, Routed<P, Route>>,
        seen_at: SeenAt,
    ) {
        let (now, count) = (cx.now(), input.len());
        let (services, counts) = (self.services.current(), &self.counts[self.worker]);
        let route = self.state.egresses.backends.route;
        let context = BurstContext::new(services, counts, self.state.link);
        let begins_plainly = !services.has_limits();
        let tables = Tables { services, counts };
        let state = &mut self.state;
        let mut turn = Turn { cx, out, services, counts, may_punt: true };
        let mut next_index = 0;
        while let Some((packet, layout, found)) = turn.out.map_until(input, |classified| {
            // Always below the capacity: the remainder spares the bounds checks.
            let index = next_index % BURST_CAPACITY;
            next_index += 1;
            let layout = classified.tag();
            let mut packet = classified.packet;
            if state.forward(&context, &mut packet, layout, index, now, seen_at) {
                return Ok(Routed { packet, route });
            }
            if !begins_plainly {
                state.connections.prefetch_new(index + 1);
                return Err((packet, layout, None));
            }
            match state.forward_first(tables, &mut packet, layout, index, now) {
                Ok(()) => Ok(Routed { packet, route }),
                Err(found) => Err((packet, layout, found)),
            }
        }) {
            let index = count - 1 - input.len();
            if let Some(order) = &mut self.order {
                order.wait_for(index);
            }
            state.dispatch(&mut turn, packet, layout, index, found);
        }
        if let Some(order) = &mut self.order {
            order.burst_done(count);
        }
    }

    /// Stores the classification of each packet of a burst in the packet.
    #[inline(never)]
    fn classify(&self, input: &mut Burst<Classified<P>>) {
        for packet in input.as_mut_slice() {
            self.state.ports.classify(&mut packet.packet);
        }
    }

    /// Switches to the newest service table.
    fn update_services(&mut self, now: Instant) {
        if self.services.take_up() {
            let settings = &self.services.current().settings;
            self.state.connections.set_idle_ns(settings.idle_ns);
            self.state.schedule.set_persistence_ns(settings.persistence_ns_max);
            self.state.begin_marking(settings.prepare_ns_max, now);
        }
    }
}

/// The service table in force, and the worker's counts.
#[derive(Clone, Copy)]
pub(super) struct Tables<'t> {
    pub services: &'t ServiceTable,
    pub counts: &'t WorkerCounts,
}

/// The values that the packets of a burst need on their way to targets. Copied, so that no write to
/// memory makes the compiler read them again.
struct BurstContext<'a> {
    services: &'a ServiceTable,
    targets_serial: u64,
    counts: &'a WorkerCounts,
    target_counts: &'a [TargetCounts],
    mtu_bytes: u16,
    link: [u8; 12],
}

impl<'a> BurstContext<'a> {
    fn new(services: &'a ServiceTable, counts: &'a WorkerCounts, link: [u8; 12]) -> Self {
        let (targets_serial, mtu_bytes) = (services.targets_serial(), services.settings.mtu_bytes);
        let target_counts = counts.targets();
        Self { services, targets_serial, counts, target_counts, mtu_bytes, link }
    }
}

impl<P: PacketBuf> Worker<P> {
    /// Encapsulates the packet at `index` of the burst if its connection is known and this packet
    /// doesn't change the connection. Returns whether it did; any other packet is unchanged.
    #[inline(always)]
    fn forward(
        &mut self,
        context: &BurstContext<'_>,
        packet: &mut P,
        layout: Layout,
        index: usize,
        now: Instant,
        seen_at: SeenAt,
    ) -> bool {
        let Self { connections, identifications, .. } = self;
        if layout.is_fast_v4() {
            let found = connections.found_fast(index, seen_at);
            let Some((connection, kept)) = found else { return false };
            let Some(front) = packet.data().first_chunk() else { return false };
            if !connection.is_unmoved_by(fast_flags(front)) {
                return false;
            }
            if let Some(header) = kept.header(context.targets_serial)
                && let Some(count) = context.target_counts.get(connection.target.slot())
            {
                let link = &context.link;
                if header.wrap_fast(packet, layout, context.mtu_bytes, link, identifications) {
                    count.packets.add(1);
                    return true;
                }
            } else if kept.is_new_to(context.targets_serial) {
                connections.renew_header(context.services, layout, packet.data(), now);
            }
        }
        let tables = Tables { services: context.services, counts: context.counts };
        self.forward_any(tables, packet, layout, index, now)
    }

    /// [`forward`](Self::forward) for any packet.
    #[inline(never)]
    fn forward_any(
        &mut self,
        tables: Tables<'_>,
        packet: &mut P,
        layout: Layout,
        index: usize,
        now: Instant,
    ) -> bool {
        let Tables { services, counts } = tables;
        let frame = packet.data();
        let Self { connections, link, seed, .. } = self;
        let targets = services.targets();
        if targets.len() > CACHED_TARGETS_MAX
            && let Some(ahead) = connections.likely_target(index + TARGETS_AHEAD, layout)
        {
            prefetch_at(targets, ahead.slot());
        }
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
    /// Removes connections that fell silent, in bounded steps.
    #[inline]
    fn expire(&mut self, counts: &WorkerCounts, now: Instant) {
        let Self { connections, schedule, .. } = self;
        connections.expire(now, |target| schedule.connection_removed(target, counts));
        for (count, len) in counts.connections.iter().zip(connections.lens()) {
            count.set(len as u64);
        }
    }
}
