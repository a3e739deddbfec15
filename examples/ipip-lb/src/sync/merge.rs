//! What a node does with a peer's claim to a connection that it knows something of itself.

use super::Record;
use crate::connection::State;
use std::net::IpAddr;

/// What a node has under a claim's key, of its own or from a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Existing {
    /// Where its packets go.
    pub backend: IpAddr,
    /// How far it has come.
    pub state: State,
    /// How long ago its backend got its first packet, in milliseconds.
    pub age_ms: u32,
    /// For how long it is still remembered if no packet comes, in milliseconds.
    pub left_ms: u32,
    /// Whether this node itself saw the SYN that opened it.
    pub has_seen_syn: bool,
}

/// What to do with a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The claim wins: what is here becomes the peer's connection, with all that the claim says of it, as *remote*.
    Replace,
    /// Both say the same backend, and the peer has seen a packet later than this node. What is here becomes
    /// *remote* and takes the claim's `left_ms`, the greater of both ages, and the claim's state unless
    /// that is [`State::Opening`]; what this node saw of its SYN stays.
    Renew,
    /// Both say the same backend, and the peer knows nothing newer. Nothing changes.
    Known,
    /// What is here wins. Nothing changes, and the claim counts as stale.
    Stale,
}

/// By how much a claim's time must be later, in milliseconds: it was under way meanwhile, and of two nodes that saw
/// packets at nearly the same time, each would leave the connection to the other.
const MARGIN_MS: u32 = 1_000;

/// Decides between what a node has and what a peer claims. Where there is nothing under the key, a claim is
/// entered as remote, without a decision.
///
/// The rules, the first that applies:
/// 1. Of one backend, the node that saw a packet last, by more than a second, owns the connection: it refreshes it and
///    sends its end.
/// 2. A connection whose SYN this node saw beats any older claim: the port is in use for the second time, and
///    the end of the first connection is still on its way.
/// 3. What is not over beats what is closing; established beats opening. Protocols without a
///    handshake count as established.
/// 4. The connection that was inserted earlier wins. Of two that were inserted in the same millisecond,
///    the one of the lower backend does, so that all nodes decide alike.
#[must_use]
pub fn merge(existing: &Existing, claim: &Record) -> Verdict {
    if existing.backend == claim.backend {
        let is_later = claim.left_ms > existing.left_ms.saturating_add(MARGIN_MS);
        return if is_later { Verdict::Renew } else { Verdict::Known };
    }
    let is_claim_older = claim.age_ms > existing.age_ms;
    if existing.has_seen_syn && is_claim_older {
        return Verdict::Stale;
    }
    let here = (precedence(existing.state), existing.age_ms);
    let there = (precedence(claim.state), claim.age_ms);
    let wins = if here == there { claim.backend < existing.backend } else { there > here };
    if wins { Verdict::Replace } else { Verdict::Stale }
}

/// Whether a node that keeps its own exception against this claim answers with a claim of its own: the peer, and all that
/// heard it, believe that the peer saw the last packet, and this node knows better.
#[must_use]
pub fn is_outdated(own: &Existing, claim: &Record) -> bool {
    own.backend == claim.backend && own.left_ms > claim.left_ms.saturating_add(MARGIN_MS)
}

const fn precedence(state: State) -> u8 {
    match state {
        State::Closing => 0,
        State::Opening => 1,
        State::Established | State::Udp | State::Other => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Closing, Established, Opening};
    use Verdict::{Known, Renew, Replace, Stale};
    use hotloop::packet::flow_key::FlowKey;

    const HERE: [u8; 4] = [10, 0, 0, 5];

    fn existing(state: State, age_ms: u32, has_seen_syn: bool) -> Existing {
        Existing { backend: HERE.into(), state, age_ms, left_ms: 1000, has_seen_syn }
    }

    fn claim(backend: [u8; 4], state: State, age_ms: u32, left_ms: u32) -> Record {
        let (client, vip) = ("198.51.100.1:4000", "203.0.113.1:80");
        let key = FlowKey::new(client.parse().unwrap(), vip.parse().unwrap(), 6).unwrap();
        Record { key, backend: backend.into(), state, age_ms, left_ms }
    }

    fn elsewhere(state: State, age_ms: u32) -> Record {
        claim([10, 0, 0, 6], state, age_ms, 1000)
    }

    #[test]
    fn of_one_backend_the_later_packet_counts() {
        let here = existing(Established, 50, false);
        assert_eq!(merge(&here, &claim(HERE, Established, 50, 2001)), Renew);
        assert_eq!(merge(&here, &claim(HERE, Established, 99, 2000)), Known);
        assert_eq!(merge(&here, &claim(HERE, Established, 99, 999)), Known);
    }

    #[test]
    fn of_two_nodes_one_is_outdated_at_most() {
        let here = existing(Established, 50, false);
        assert!(is_outdated(
            &Existing { left_ms: 3000, ..here },
            &claim(HERE, Established, 50, 1999)
        ));
        for left_ms in [0, 1000, 2000] {
            assert!(!is_outdated(&here, &claim(HERE, Established, 50, left_ms)), "{left_ms}");
        }
    }

    #[test]
    fn the_earlier_of_two_wins() {
        let here = existing(Established, 50, false);
        assert_eq!(merge(&here, &elsewhere(Established, 51)), Replace);
        assert_eq!(merge(&here, &elsewhere(Established, 49)), Stale);
        assert_eq!(merge(&here, &elsewhere(State::Udp, 51)), Replace);
    }

    #[test]
    fn two_of_one_age_are_decided_alike_everywhere() {
        let here = existing(Established, 50, false);
        assert_eq!(merge(&here, &elsewhere(Established, 50)), Stale);
        assert_eq!(merge(&here, &claim([10, 0, 0, 4], Established, 50, 1000)), Replace);
    }

    #[test]
    fn established_beats_opening_whatever_their_ages() {
        assert_eq!(merge(&existing(Opening, 50, false), &elsewhere(Established, 1)), Replace);
        assert_eq!(merge(&existing(Established, 1, false), &elsewhere(Opening, 50)), Stale);
    }

    #[test]
    fn what_is_over_yields() {
        assert_eq!(merge(&existing(Closing, 50, true), &elsewhere(Opening, 1)), Replace);
        assert_eq!(merge(&existing(Opening, 1, false), &elsewhere(Closing, 50)), Stale);
    }

    #[test]
    fn a_syn_seen_here_beats_every_older_claim_and_no_younger_one() {
        assert_eq!(merge(&existing(Opening, 1, true), &elsewhere(Established, 50)), Stale);
        assert_eq!(merge(&existing(Established, 1, true), &elsewhere(Established, 50)), Stale);
        // The client has answered the SYN-ACK of the other backend, through the other node.
        assert_eq!(merge(&existing(Opening, 50, true), &elsewhere(Established, 1)), Replace);
    }
}
