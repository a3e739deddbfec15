//! Checks for the fuzzer, on everything that goes to the kernel.

use super::frame_ring::{Emptying, frame_rings};
use super::punt::{PuntLimit, PuntLimits, PuntPeer, PuntReason};
use super::punting::{Each, Punting, SinkCounts};
use hotloop_packet::memory::MemPacket;
use hotloop_packet::prefix::Prefix;
use hotloop_stage::Burst;
use std::collections::VecDeque;
use std::sync::Arc;

/// The kernel's MTU here, so short that some frames are too long.
const MTU_BYTES: u32 = 200;

/// The most times that a frame is offered, one after the other.
const TIMES_MAX: u8 = 64;

/// A core and a kernel in memory.
struct Script {
    limits: PuntLimits,
    counts: Arc<SinkCounts>,
    punting: Punting,
    kernel: Emptying,
    /// The frames that the kernel must read next.
    expected: VecDeque<Vec<u8>>,
    /// Packets that were neither sent nor refused.
    left_count: u64,
    offered_count: u64,
    now_ns: u64,
}

/// Plays bytes as a script: limits, then frames of any bytes at any times, and a kernel that reads
/// them or does not.
///
/// # Panics
/// If the kernel reads anything but the punted frames, byte by byte and in order; if more of a kind
/// pass than its limits allow; or if a packet is not counted.
pub fn check_punted(bytes: &[u8]) {
    let Some((&head, mut bytes)) = bytes.split_first() else { return };
    let mut script = Script::new(head);
    while let Some((&step, rest)) = bytes.split_first() {
        bytes = script.step(step, rest);
        script.check();
    }
    script.read(usize::MAX);
    assert!(script.expected.is_empty(), "{} frames are missing", script.expected.len());
}

impl Script {
    fn new(head: u8) -> Self {
        let numbers = [0, 1, 100, 1_000_000];
        let of = |at: u8| numbers[usize::from(head >> at & 3)];
        let prefix = |address: [u8; 4], len| Prefix::of(address.into(), len);
        let peers = vec![
            PuntPeer { prefix: prefix([192, 0, 2, 1], 32), gtsm: head & 1 << 4 != 0 },
            PuntPeer { prefix: prefix([192, 0, 0, 0], 8), gtsm: head & 1 << 5 != 0 },
        ];
        let limits = PuntLimits::all(PuntLimit { per_second: of(0), burst: of(2) });
        let limits = limits.with_peers(peers);
        let counts = Arc::<SinkCounts>::default();
        let (filling, kernel) = frame_rings(MTU_BYTES);
        Self {
            punting: Punting::new(&limits, filling, Arc::clone(&counts)),
            limits,
            counts,
            kernel,
            expected: VecDeque::new(),
            left_count: 0,
            offered_count: 0,
            now_ns: 0,
        }
    }

    /// Plays a step, and returns the remaining bytes.
    fn step<'a>(&mut self, step: u8, bytes: &'a [u8]) -> &'a [u8] {
        let argument = step >> 2;
        match step & 3 {
            0 => self.now_ns += 1 << argument.min(40),
            1 => self.read(argument.into()),
            _ => {
                let Some((&[len, times], bytes)) = bytes.split_first_chunk() else { return &[] };
                let len = usize::from(len) + usize::from(argument & 1) * 256;
                let (frame, rest) = bytes.split_at(len.min(bytes.len()));
                (0..=times % TIMES_MAX).for_each(|_| self.offer(frame));
                return rest;
            }
        }
        bytes
    }

    fn offer(&mut self, frame: &[u8]) {
        let mut burst = Burst::new();
        burst.push(MemPacket::from(frame.to_vec()));
        match self.punting.send(&mut burst, self.now_ns) {
            0 => self.left_count += burst.len() as u64,
            _ => self.expected.push_back(frame.to_vec()),
        }
        self.offered_count += 1;
    }

    /// Has the kernel read `count` frames.
    fn read(&mut self, count: usize) {
        for _ in 0..count {
            let Some(frame) = self.kernel.full.pop() else { break };
            assert_eq!(Some(frame.data()), self.expected.pop_front().as_deref());
            self.kernel.give_back(frame);
        }
    }

    fn check(&self) {
        let of = |each: &Each| each.iter().map(|count| count.count()).sum::<u64>();
        let SinkCounts { punted, limited, queue_full, forwarded, too_long } = &*self.counts;
        let refused = of(limited) + of(queue_full) + of(forwarded) + too_long.count();
        assert_eq!(refused, self.punting.refused_count());
        assert_eq!(of(punted) + refused + self.left_count, self.offered_count);
        for (reason, punted) in PuntReason::ALL.into_iter().zip(punted) {
            let PuntLimit { per_second, burst } = self.limits.of(reason);
            let since = u128::from(self.now_ns) * u128::from(per_second) / 1_000_000_000;
            let most = since + u128::from(burst.max(1)) + 1;
            let senders = 1 + self.limits.peers().len() as u128;
            assert!(u128::from(punted.count()) <= senders * most, "{reason:?} {punted:?}");
        }
    }
}
