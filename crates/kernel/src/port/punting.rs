//! Copies bursts of packets into frames for the kernel.

use super::frame_ring::Filling;
use super::gate::{Gate, Verdict};
use super::punt::{PuntLimits, PuntReason};
use hotloop_packet::PacketBuf;
use hotloop_stage::{Burst, Counter};
use std::sync::Arc;

/// A count for each kind.
pub(super) type Each = [Counter; PuntReason::ALL.len()];

/// A core's counters of packets for the kernel.
#[derive(Debug, Default)]
pub(super) struct SinkCounts {
    pub(super) punted: Each,
    pub(super) limited: Each,
    pub(super) queue_full: Each,
    pub(super) forwarded: Each,
    pub(super) too_long: Counter,
}

/// A core's state for punting packets.
#[derive(Debug)]
pub(super) struct Punting {
    gate: Gate,
    ring: Filling,
    counts: Arc<SinkCounts>,
    refused_count: u64,
}

impl Punting {
    pub(super) fn new(limits: &PuntLimits, ring: Filling, counts: Arc<SinkCounts>) -> Self {
        Self { gate: Gate::new(limits), ring, counts, refused_count: 0 }
    }

    /// Copies packets into frames, and returns their number. Drops packets that the [`Gate`]
    /// refuses or that are too long for the interface. Without an empty frame, the rest stays.
    pub(super) fn send(&mut self, burst: &mut Burst<impl PacketBuf>, now_ns: u64) -> usize {
        let mut sent = 0;
        while let Some(packet) = burst.as_slice().first() {
            let Some(mut frame) = self.ring.take() else { break };
            let refused = if frame.copy_from(packet) {
                self.judge(frame.data(), now_ns).err()
            } else {
                Some(&self.counts.too_long)
            };
            if let Some(refused) = refused {
                refused.add(1);
                self.refused_count += 1;
                self.ring.keep(frame);
            } else {
                self.ring.send(frame);
                sent += 1;
            }
            drop(burst.pop());
        }
        sent
    }

    /// Counts a frame that goes; otherwise returns the counter for its drop.
    fn judge(&mut self, frame: &[u8], now_ns: u64) -> Result<(), &Counter> {
        let (reason, verdict) = self.gate.judge(frame, now_ns);
        let refused = match verdict {
            Verdict::Passes { spare_count } if self.ring.empty_count() >= spare_count => {
                self.counts.punted[reason as usize].add(1);
                return Ok(());
            }
            Verdict::Passes { .. } => &self.counts.queue_full,
            Verdict::Limited => &self.counts.limited,
            Verdict::Forwarded => &self.counts.forwarded,
        };
        Err(&refused[reason as usize])
    }

    /// Number of packets dropped.
    pub(super) const fn refused_count(&self) -> u64 {
        self.refused_count
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame_ring::{FRAME_COUNT, frame_rings};
    use super::super::punt::{PuntLimit, PuntPeer};
    use super::*;
    use hotloop_packet::build::{PacketBuilder, tcp, udp};
    use hotloop_packet::memory::MemPacket;
    use hotloop_packet::prefix::Prefix;
    use hotloop_packet::tcp::flags::ACK;

    const PEER: &str = "203.0.113.7:4000";

    /// Offers a packet once, and returns whether it went.
    fn offer(punting: &mut Punting, packet: &PacketBuilder) -> bool {
        let mut burst = Burst::new();
        burst.push(packet.clone().packet_in_memory());
        punting.send(&mut burst, 0) == 1
    }

    /// While the kernel takes nothing, less important packets leave some frames to more important
    /// ones.
    #[test]
    fn a_flood_does_not_fill_every_frame() {
        let limit = PuntLimit { per_second: 1_000_000, burst: 1_000_000 };
        let prefix = Prefix::host([203, 0, 113, 7].into());
        let peers = vec![PuntPeer { prefix, gtsm: false }];
        let limits = PuntLimits::all(limit).with_peers(peers);
        let counts = Arc::<SinkCounts>::default();
        let (filling, mut emptying) = frame_rings(1_500);
        let mut punting = Punting::new(&limits, filling, Arc::clone(&counts));
        let other = "198.51.100.1:4000";
        let host = udp().from(other).to("192.0.2.1:9");
        let bgp = tcp().tcp_flags(ACK).from(other).to("192.0.2.1:179");
        let peer = tcp().tcp_flags(ACK).from(PEER).to("192.0.2.1:179");
        let mut sent = |packet| (0..1_000).filter(|_| offer(&mut punting, packet)).count();
        // The frame being filled does not count among the empty ones.
        assert_eq!(sent(&host), FRAME_COUNT - 96);
        assert_eq!(sent(&bgp), 64);
        assert_eq!(sent(&peer), 32);
        let count = |each: &Each, reason| each[reason as usize].count();
        assert_eq!(count(&counts.queue_full, PuntReason::Host), 1_000 - 160);
        assert_eq!(count(&counts.queue_full, PuntReason::Bgp), 1_000 - 64);
        // A peer's packets stay in the burst: the engine offers them again.
        assert_eq!(count(&counts.queue_full, PuntReason::Bgp), punting.refused_count() - 840);
        let expected: MemPacket = host.packet_in_memory();
        let frame = emptying.full.pop().unwrap();
        assert_eq!(frame.data(), expected.data());
    }
}
