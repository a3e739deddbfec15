//! Decides which punted packets go to the kernel.

use super::budget::{Bucket, Budget, BudgetPart};
use super::frame_ring::FRAME_COUNT;
use super::punt::{HOP_LIMIT_MAX, Headers, PuntLimits, PuntPeer, PuntReason};
use std::hash::{BuildHasher, RandomState};

/// Empty frames that less important packets leave to more important ones, for each step between
/// them.
const FRAMES_PER_STEP: usize = FRAME_COUNT / 8;

/// The fate of a packet for the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// It goes, if at least `spare_count` frames are empty then.
    Passes { spare_count: usize },
    /// It is above a limit.
    Limited,
    /// BGP with a peer's address, forwarded by a router although that peer is adjacent.
    Forwarded,
}

/// The limits of a core.
#[derive(Debug)]
pub(super) struct Gate {
    /// Secret, so that an attacker can't choose addresses with shares at the same place.
    hashes: RandomState,
    budgets: [Budget; PuntReason::ALL.len()],
    peers: Vec<Peer>,
}

#[derive(Debug)]
struct Peer {
    peer: PuntPeer,
    budgets: [Bucket; PuntReason::ALL.len()],
}

impl Gate {
    pub(super) fn new(limits: &PuntLimits) -> Self {
        let peers = limits.peers().iter().map(|peer| Peer {
            peer: *peer,
            budgets: PuntReason::ALL.map(|reason| Bucket::new(limits.of(reason))),
        });
        Self {
            hashes: RandomState::new(),
            budgets: PuntReason::ALL.map(|reason| Budget::new(limits.of(reason))),
            peers: peers.collect(),
        }
    }

    /// Judges a frame at this time, which never goes back.
    pub(super) fn judge(&mut self, frame: &[u8], now_ns: u64) -> (PuntReason, Verdict) {
        let headers = Headers::of(frame);
        (headers.reason, self.verdict(&headers, now_ns))
    }

    fn verdict(&mut self, headers: &Headers, now_ns: u64) -> Verdict {
        let reason = headers.reason;
        let sender = headers.sender;
        let peer = self.peers.iter_mut().find(|known| sender.is_some_and(|of| known.peer.has(of)));
        if let Some(Peer { peer, budgets }) = peer {
            if !peer.gtsm || headers.hop_limit.is_none_or(|limit| limit == HOP_LIMIT_MAX) {
                let passes = budgets[reason as usize].take(now_ns);
                return if passes { Verdict::Passes { spare_count: 0 } } else { Verdict::Limited };
            }
            if matches!(reason, PuntReason::Bgp | PuntReason::BgpSyn) {
                return Verdict::Forwarded;
            }
        }
        let source = self.hashes.hash_one(headers.source());
        let Some(part) = self.budgets[reason as usize].take(source, now_ns) else {
            return Verdict::Limited;
        };
        // Order: peers, packets that the host's links and routes need, the rest; within both,
        // shares first.
        let is_bulk = matches!(reason, PuntReason::Host | PuntReason::HostSyn | PuntReason::Group);
        let steps = 1 + 2 * usize::from(is_bulk) + usize::from(part == BudgetPart::Rest);
        Verdict::Passes { spare_count: steps * FRAMES_PER_STEP }
    }
}

#[cfg(test)]
mod tests;
