//! Classification: what a packet is, stored with the packet.

use crate::{Cx, NoDrops, Stage, Tagged, Verdict};
use hotloop_packet::PacketBuf;
use hotloop_packet::classify::{Depth, Kind, Layout};
use hotloop_packet::ethernet::Station;
use hotloop_packet::flow_key::FlowKey;
use hotloop_packet::seed::Seed;

/// A packet after [`Classify`]: its kind, the positions of its headers, the hash of its flow and
/// its shard.
///
/// All of these describe the packet at that time; a stage that changes headers must classify the
/// packet again before it reads them again.
pub type Classified<P> = Tagged<P, Layout>;

impl<P: PacketBuf> Tagged<P, Layout> {
    /// The packet's kind.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.tag().kind()
    }

    /// The key of the packet's flow, read from the header that [`Classify`] was made for, or from the
    /// quoted one of an ICMP error. `None` if the packet is not IP.
    #[inline]
    pub fn key(&self) -> Option<FlowKey> {
        self.tag().key(self.packet.data())
    }

    /// The symmetric hash of the two addresses: both directions of a connection, its fragments, and
    /// the errors about it have the same value. For a graph's `shard_by`.
    #[inline]
    pub fn shard(&self) -> u32 {
        self.tag().shard()
    }

    /// The symmetric hash of all five fields of its flow; 0 if the packet is not IP.
    #[inline]
    pub fn hash(&self) -> u32 {
        self.tag().hash()
    }
}

/// The stage that classifies each packet, by the [outermost](Self::outermost) or the
/// [innermost](Self::innermost) header of a tunnel packet. It drops no packets: a malformed packet's
/// [`kind`](Tagged::kind) shows it.
///
/// Without a seed, a packet's [`hash`](Tagged::hash) and [`shard`](Tagged::shard) are 0. This takes
/// two thirds of the instructions, in graphs in which few packets need a hash: [`Seed`] computes it
/// from the [key](Tagged::key).
///
/// ```
/// use hotloop_stage::Classify;
///
/// let of_a_firewall = Classify::outermost();
/// let of_a_balancer_with_workers = Classify::innermost().seeded(42);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Classify {
    depth: Depth,
    /// `None` for no hashes.
    seed: Option<Seed>,
}

impl Classify {
    /// Reads the flow of a tunnel packet from the packet's own header, and doesn't look inside. For
    /// firewalls, NATs and everything else that decides about the packet that it forwards. See
    /// [`Depth::Outermost`], also for ICMP errors, which belong to the flow that they quote.
    #[must_use]
    pub const fn outermost() -> Self {
        Self { depth: Depth::Outermost, seed: None }
    }

    /// Reads the flow of a tunnel packet from the header inside the tunnel. For balancers and tunnel
    /// endpoints, which unwrap the packet. In any other stage, a stranger's tunnel packet passes for
    /// the packet that it wraps. See [`Depth::Innermost`].
    #[must_use]
    pub const fn innermost() -> Self {
        Self { depth: Depth::Innermost, seed: None }
    }

    /// Adds hashes of this seed. Cores that must agree on a packet's shard have the same seed.
    #[must_use]
    pub const fn seeded(self, seed: u64) -> Self {
        self.with_seed(Seed::new(seed))
    }

    /// [`seeded`](Self::seeded) with a seed that was made from a secret: [`Seed::from_key`].
    #[must_use]
    pub const fn with_seed(self, seed: Seed) -> Self {
        Self { seed: Some(seed), ..self }
    }
}

impl<P: PacketBuf> Stage<P> for Classify {
    type Out = Classified<P>;
    type Drop = NoDrops;

    #[inline]
    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: P) -> Verdict<Classified<P>> {
        let (frame, len_bytes) = (packet.data(), packet.len_bytes());
        let layout = match &self.seed {
            Some(seed) => Layout::of(frame, len_bytes, self.depth, seed),
            None => Layout::at(frame, len_bytes, self.depth, &Station::ANY),
        };
        Ok(Tagged::new(packet, layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counters, DropReason, Instant};
    use hotloop_packet::build::udp;
    use hotloop_packet::memory::MemPacket;

    fn classified(frame: &[u8]) -> Classified<MemPacket> {
        let counters = Counters::new(NoDrops::NAMES);
        let mut cx = Cx::new(&counters, Instant::default());
        Classify::innermost()
            .seeded(7)
            .packet(&mut cx, MemPacket::new(frame))
            .expect("it never drops")
    }

    #[test]
    fn a_packet_keeps_what_was_found() {
        let there = classified(&udp().from("10.0.0.1:1000").to("198.51.100.7:53").build());
        let back = classified(&udp().from("198.51.100.7:53").to("10.0.0.1:1000").build());
        assert_eq!(there.kind(), Kind::Ipv4);
        assert_eq!(there.key().map(|key| key.destination_port()), Some(53));
        assert_eq!((there.shard(), there.hash()), (back.shard(), back.hash()));
        assert_ne!(there.hash(), 0);
    }

    #[test]
    fn a_packet_without_hashes_has_a_key() {
        let packet = MemPacket::new(&udp().from("10.0.0.1:1000").to("198.51.100.7:53").build());
        let counters = Counters::new(NoDrops::NAMES);
        let mut cx = Cx::new(&counters, Instant::default());
        let unhashed = Classify::innermost().packet(&mut cx, packet).expect("it never drops");
        assert_eq!((unhashed.kind(), unhashed.hash(), unhashed.shard()), (Kind::Ipv4, 0, 0));
        assert_eq!(unhashed.key().map(|key| key.destination_port()), Some(53));
    }

    #[test]
    fn a_tunnel_is_looked_into_only_by_the_innermost() {
        let counters = Counters::new(NoDrops::NAMES);
        let mut cx = Cx::new(&counters, Instant::default());
        let frame = udp().to("198.51.100.7:53").tunnelled("203.0.113.66", "10.0.0.5").build();
        for seed in [None, Some(Seed::new(7))] {
            for (mut classify, is_inner) in
                [(Classify::outermost(), false), (Classify::innermost(), true)]
            {
                classify.seed = seed;
                let packet = classify.packet(&mut cx, MemPacket::new(&frame)).expect("no drops");
                let destination = if is_inner { [198, 51, 100, 7] } else { [10, 0, 0, 5] };
                assert_eq!(packet.key().map(|key| key.destination()), Some(destination.into()));
                assert_eq!(packet.tag().is_tunnel(), is_inner);
                assert_eq!(packet.hash() != 0, seed.is_some());
            }
        }
    }

    #[test]
    fn what_is_not_ip_has_no_key() {
        let other = classified(&[0; 60]);
        assert_eq!((other.kind(), other.key()), (Kind::Other, None));
    }
}
