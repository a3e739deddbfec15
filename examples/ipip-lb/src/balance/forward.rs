//! The way of a packet: the short one of known connections, and where the others leave it.

use super::{Balance, BalanceDrop, Route, Turn, WAITING_MAX, Worker};
use hotloop::engine::Routed;
use hotloop::flow::prefetch_line;
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;
use hotloop::stage::{Burst, BurstStage, Carries, Classified, Cx, Output};

/// How many targets stay in a core's cache by themselves. With more, those of a burst are prefetched.
const CACHED_TARGETS_MAX: usize = 512;

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
        self.state.connections.lookup_burst(input.as_slice(), cx.now());
        let (services, counts) = (self.services.current(), &self.counts[self.worker]);
        if services.targets().len() > CACHED_TARGETS_MAX {
            self.prefetch_targets(input.as_slice());
        }
        let mut turn = Turn { cx, out, services, counts };
        let mut index = 0;
        while let Some(classified) = input.pop() {
            let (layout, mut packet) = (classified.tag(), classified.packet);
            if self.state.forward(&turn, &mut packet, layout, index) {
                turn.send(packet, self.state.egresses.backends.route);
            } else {
                self.state.dispatch(&mut turn, packet, layout);
            }
            index += 1;
        }
    }

    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_, BalanceDrop>, out: &mut Output<'_, Routed<P, Route>>) {
        self.update_services();
        let now = cx.now();
        let counts = &self.counts[self.worker];
        self.state.age(counts, now);
        if let Some(walk) = self.state.marking {
            self.state.mark(self.services.current(), walk);
        }
        self.queries.answer(&self.state.connections, now);
        if self.state.fragments.waiting_count() > 0 {
            let mut turn = Turn { cx, out, services: self.services.current(), counts };
            self.state.give_up_fragments(&mut turn, Some(now));
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_, BalanceDrop>, out: &mut Output<'_, Routed<P, Route>>) {
        let counts = &self.counts[self.worker];
        let mut turn = Turn { cx, out, services: self.services.current(), counts };
        self.state.give_up_fragments(&mut turn, None);
    }

    fn held(&self) -> usize {
        self.state.fragments.waiting_count()
    }

    fn held_max(&self) -> usize {
        WAITING_MAX
    }
}

impl<P: PacketBuf + Carries> Balance<P> {
    /// Prefetches the targets of a burst's connections, and their counts.
    #[inline(never)]
    fn prefetch_targets(&self, burst: &[Classified<P>]) {
        let (services, counts) = (self.services.current(), &self.counts[self.worker]);
        for (index, classified) in burst.iter().enumerate() {
            let connections = &self.state.connections;
            if let Some((connection, _)) =
                connections.found(index, classified.tag(), &classified.packet)
            {
                services.prefetch(connection.target);
                prefetch_line(counts.target(connection.target));
            }
        }
    }
}

impl<P: PacketBuf + Carries> Worker<P> {
    /// The short way: encapsulates the packet at `index` of the burst, if its connection is known and it
    /// doesn't change that. Returns whether it did: any other packet is as it was.
    #[inline(always)]
    fn forward(
        &mut self,
        turn: &Turn<'_, '_, '_, P>,
        packet: &mut P,
        layout: Layout,
        index: usize,
    ) -> bool {
        if let Some((connection, flags)) = self.connections.found(index, layout, packet)
            && connection.is_unmoved_by(flags)
            && let id = connection.target
            && let Some(target) = turn.services.active(id)
            && target.takes_frame(packet.len_bytes())
        {
            return self.encapsulate(turn, packet, id, target, layout.hash()).is_ok();
        }
        false
    }
}
