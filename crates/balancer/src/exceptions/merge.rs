//! Decides between a peer's claim and this node's own knowledge of the same connection. A pure
//! function of both. All nodes that see the same claims end with the same owner and backend.

use super::Record;
use crate::state::State;
use std::net::IpAddr;

/// A node's entry under a claim's key, its own or from a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Existing {
    /// The connection's backend.
    pub backend: IpAddr,
    /// The connection's state.
    pub state: State,
    /// Time since its backend got its first packet, in milliseconds.
    pub age_ms: u32,
    /// Time until it is forgotten if no packet comes, in milliseconds.
    pub left_ms: u32,
    /// Number of times that a packet moved it to another node, modulo [`MOVES`].
    pub moves: u8,
    /// Whether the connection is this node's own: not remote.
    pub is_own: bool,
    /// Whether the connection is an exception here: only then has this node claimed it, and only
    /// then could a peer take it over.
    pub is_exception: bool,
    /// Whether this node saw the SYN that opened the connection.
    pub has_seen_syn: bool,
}

impl Existing {
    /// Whether a claim proves that this node's own connection is established, while this node has
    /// seen only its SYN. The claim must be about this connection, not about an earlier one between
    /// the same ports.
    #[must_use]
    pub fn is_established_by(&self, claim: &Record) -> bool {
        let states = (self.state, claim.state);
        self.is_own
            && self.backend == claim.backend
            && states == (State::Opening, State::Established)
            && !self.is_older_by(claim)
    }

    /// Whether the claimed connection began earlier than this one, by more than a claim's delay.
    const fn is_older_by(&self, claim: &Record) -> bool {
        claim.age_ms > self.age_ms.saturating_add(MARGIN_MS)
    }
}

/// The action for a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The claim wins: the entry becomes the peer's connection, with all values of the claim, as
    /// *remote*.
    Replace,
    /// Same backend, and the peer's knowledge is newer. The entry becomes *remote* and takes the
    /// claim's `left_ms`, the greater of both ages, [the `moves` that is ahead](is_ahead), and the
    /// claim's state unless that is [`State::Opening`]; whether this node saw its SYN stays.
    Renew,
    /// Same backend, and this node's own connection has moved here since, from a node that this one
    /// didn't know of. It takes the claim's `moves` plus one, may be
    /// [established](Existing::is_established_by), and is claimed again if it is an exception here.
    Reclaim,
    /// Same backend, and the peer's knowledge isn't newer. Nothing changes, except that the
    /// connection may become [established](Existing::is_established_by).
    Known,
    /// This node's entry wins. Nothing changes, and the claim counts as stale.
    Stale,
}

/// Moves are counted modulo this number, so that a few bits hold them: nodes in contact are never
/// half of it apart.
pub const MOVES: u8 = 32;

/// Typical maximum delay of claims, in milliseconds: the remaining time in a claim is too large by
/// its delay.
const MARGIN_MS: u32 = 1_000;

/// Whether a connection with `one` as its count of moves has moved since its count was `other`.
#[must_use]
pub const fn is_ahead(one: u8, other: u8) -> bool {
    let ahead = one.wrapping_sub(other) % MOVES;
    ahead != 0 && ahead < MOVES / 2
}

/// Decides between a node's entry and a peer's claim. Without an entry under the key, a claim is
/// entered as remote, and no decision is needed.
///
/// The first rule that applies decides:
/// 1. Same backend: the node to which the connection moved last owns it: it refreshes the
///    connection and sends its end. If the counts of moves are equal, because neither node knew of
///    the other, the node with the lesser name owns it.
///    - A node that loses, but has seen a packet later than its peer, did not know that the
///      connection moved, and counts that move now. If no peer can have known of this node's
///      connection, claims may be a second late in this comparison.
///    - A remote entry takes more time from any claim, and closing from any claim unless its own
///      moves are ahead. A closing entry with moves ahead takes nothing from a claim that is not
///      closing.
///    - If the entry is closing and its moves are not ahead, and the claim is younger and not
///      closing, the port is in use for the second time: the claim wins.
/// 2. If this node saw the connection's SYN, the entry beats any older claim: the port is in use
///    for the second time, and the end of the first connection is still on its way.
/// 3. A connection that isn't closing beats a closing one; established beats opening. Protocols
///    without a handshake count as established.
/// 4. The older connection wins. If both are equally old to the millisecond, the lower backend
///    wins, so that all nodes decide alike.
#[must_use]
pub fn merge(existing: &Existing, claim: &Record) -> Verdict {
    if existing.backend == claim.backend {
        return same_backend(existing, claim);
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

fn same_backend(existing: &Existing, claim: &Record) -> Verdict {
    let is_ahead_here = is_ahead(existing.moves, claim.moves);
    let is_ahead_there = is_ahead(claim.moves, existing.moves);
    let is_younger_there = claim.age_ms.saturating_add(MARGIN_MS) < existing.age_ms;
    let opens = existing.state == State::Closing && claim.state != State::Closing;
    if opens && is_younger_there && !is_ahead_here {
        return Verdict::Replace;
    }
    if existing.is_own {
        // No peer can have taken a connection from here that it didn't know of. Nor did a peer that
        // has known it for longer and has counted several moves more: this node has forgotten the
        // connection meanwhile, and counts from the start.
        let is_next_there = claim.moves == (existing.moves + 1) % MOVES;
        let is_known = existing.is_exception
            && is_ahead_there
            && (is_next_there || !existing.is_older_by(claim));
        let margin_ms = if is_known { 0 } else { MARGIN_MS };
        let is_later_here = existing.left_ms.saturating_add(margin_ms) > claim.left_ms;
        return match is_ahead_there || claim.wins_ties && !is_ahead_here {
            true if is_later_here => Verdict::Reclaim,
            true => Verdict::Renew,
            false => Verdict::Known,
        };
    }
    let closes = claim.state == State::Closing && existing.state != State::Closing;
    let is_longer = claim.left_ms > existing.left_ms && !(opens && is_ahead_here);
    let is_newer = is_ahead_there || is_longer || closes && !is_ahead_here;
    if is_newer { Verdict::Renew } else { Verdict::Known }
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
    use Verdict::{Known, Reclaim, Renew, Replace, Stale};
    use hotloop::packet::flow_key::FlowKey;

    const HERE: [u8; 4] = [10, 0, 0, 5];

    fn existing(state: State, age_ms: u32, has_seen_syn: bool) -> Existing {
        Existing {
            backend: HERE.into(),
            state,
            age_ms,
            left_ms: 1000,
            moves: 5,
            is_own: true,
            is_exception: true,
            has_seen_syn,
        }
    }

    fn claim(backend: [u8; 4], state: State, age_ms: u32, left_ms: u32) -> Record {
        let (client, vip) = ("198.51.100.1:4000", "203.0.113.1:80");
        let key = FlowKey::new(client.parse().unwrap(), vip.parse().unwrap(), 6).unwrap();
        Record { key, backend: backend.into(), state, age_ms, left_ms, moves: 5, wins_ties: false }
    }

    fn elsewhere(state: State, age_ms: u32) -> Record {
        claim([10, 0, 0, 6], state, age_ms, 1000)
    }

    #[test]
    fn of_one_backend_the_node_owns_it_to_which_it_moved_last() {
        let here = existing(Established, 50, false);
        let its = claim(HERE, Established, 50, 9000);
        assert_eq!(merge(&here, &Record { moves: 6, ..its }), Renew);
        assert_eq!(merge(&here, &Record { moves: 4, wins_ties: true, ..its }), Known);
        assert_eq!(merge(&here, &its), Known);
        assert_eq!(merge(&here, &Record { wins_ties: true, ..its }), Renew);
        let unknown = Existing { is_exception: false, ..here };
        assert_eq!(merge(&unknown, &Record { moves: 6, ..its }), Renew);
    }

    #[test]
    fn a_later_packet_here_is_a_move_that_was_not_counted() {
        let here = existing(Established, 50, false);
        let its = claim(HERE, Established, 50, 999);
        assert_eq!(merge(&here, &Record { moves: 6, ..its }), Reclaim);
        assert_eq!(merge(&here, &Record { wins_ties: true, ..its }), Reclaim);
        assert_eq!(merge(&here, &its), Known);
        let late = Record { moves: 6, left_ms: 1999, ..its };
        assert_eq!(merge(&here, &late), Renew);
        assert_eq!(merge(&Existing { is_exception: false, ..here }, &late), Reclaim);
        let tied = Record { moves: 5, wins_ties: true, ..late };
        assert_eq!(merge(&here, &tied), Reclaim);
        // This node has forgotten the connection meanwhile, and counts from the start.
        let older = Record { age_ms: 60_000, ..late };
        assert_eq!(merge(&here, &older), Renew);
        assert_eq!(merge(&here, &Record { moves: 7, ..older }), Reclaim);
        assert_eq!(merge(&here, &Record { moves: 7, ..late }), Renew);
    }

    #[test]
    fn what_is_remote_lasts_as_long_as_any_node_says_or_its_owner_closes_it() {
        let here = Existing { is_own: false, ..existing(Established, 50, false) };
        let its = claim(HERE, Established, 50, 1001);
        for moves in [4, 5, 6] {
            assert_eq!(merge(&here, &Record { moves, ..its }), Renew, "{moves}");
        }
        let closing = claim(HERE, Closing, 50, 10);
        assert_eq!(merge(&here, &closing), Renew);
        assert_eq!(merge(&here, &Record { moves: 4, ..closing }), Known);
        assert_eq!(merge(&here, &claim(HERE, Established, 99, 1000)), Known);
    }

    #[test]
    fn what_is_remote_and_closing_stays_so_whatever_a_former_owner_says() {
        let here = Existing { is_own: false, ..existing(Closing, 50, false) };
        let its = claim(HERE, Established, 50, 900_000);
        assert_eq!(merge(&here, &Record { moves: 4, ..its }), Known);
        assert_eq!(merge(&here, &its), Renew);
        assert_eq!(merge(&here, &claim(HERE, Closing, 50, 1001)), Renew);
    }

    #[test]
    fn what_opens_anew_on_the_same_backend_is_another_connection() {
        let closing = Existing { is_own: false, ..existing(Closing, 5_000, false) };
        let its = claim(HERE, Opening, 50, 900);
        for is_own in [false, true] {
            let here = Existing { is_own, ..closing };
            assert_eq!(merge(&here, &its), Replace);
            assert_eq!(merge(&here, &Record { moves: 6, ..its }), Replace);
            let established = Record { state: Established, moves: 6, left_ms: 9_000, ..its };
            assert_eq!(merge(&here, &established), Replace);
            assert_eq!(merge(&here, &Record { moves: 4, ..its }), Known, "said before it moved");
            assert_eq!(
                merge(&here, &Record { age_ms: 5_000, ..its }),
                Known,
                "the same connection"
            );
        }
        assert_eq!(merge(&Existing { state: Established, ..closing }, &its), Known);
    }

    #[test]
    fn of_two_counts_one_is_ahead_at_most_also_where_they_wrap() {
        for one in 0..MOVES {
            assert!(is_ahead((one + 1) % MOVES, one) && !is_ahead(one, one), "{one}");
            for other in 0..MOVES {
                assert!(!(is_ahead(one, other) && is_ahead(other, one)), "{one} {other}");
            }
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
        // The client has answered the other backend's SYN-ACK, through the other node.
        assert_eq!(merge(&existing(Opening, 50, true), &elsewhere(Established, 1)), Replace);
    }
}
