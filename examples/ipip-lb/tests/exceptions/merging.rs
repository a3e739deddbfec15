//! A balancer's treatment of a claim to a connection that it knows itself.

use super::node::{self, BACKENDS, Node, WEB, claim, record};
use hotloop::packet::build::tcp;
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop_balancer::connection::State::{Closing, Established, Opening};
use hotloop_balancer::exceptions::{Change, Record};
use std::time::Duration;

const CLIENT: &str = "198.51.100.7:4000";

/// A node that has the connection, opened here a second ago, and a backend that the connection is
/// not on.
fn with_connection(flags: &[u8]) -> (Node, &'static str) {
    let mut node = Node::new();
    for flags in flags {
        node.backend(segment(*flags));
    }
    node.advance(Duration::from_secs(1));
    let here = node.known(CLIENT, WEB).unwrap().to_string();
    let other = BACKENDS.into_iter().find(|it| **it != here).unwrap();
    (node, other)
}

fn segment(flags: u8) -> hotloop::packet::build::PacketBuilder {
    tcp().from(CLIENT).to(WEB).tcp_flags(flags)
}

/// Whether the claim wins, judged by the backend of the next packet.
fn wins(mut node: Node, other: &str, change: Change) -> bool {
    let stale_count = node.exceptions.stale_count();
    node.import(&[change]);
    let is_stale = node.exceptions.stale_count() > stale_count;
    let wins = node.backend(segment(ACK)).to_string() == other;
    assert_eq!(wins, !is_stale);
    wins
}

#[test]
fn the_connection_that_was_inserted_earlier_wins() {
    for (age_ms, is_theirs) in [(60_000, true), (100, false)] {
        let (node, other) = with_connection(&[ACK]);
        let change = claim(CLIENT, other, Established, (age_ms, 800_000));
        assert_eq!(wins(node, other, change), is_theirs);
    }
}

#[test]
fn established_beats_opening() {
    let (node, other) = with_connection(&[SYN]);
    assert!(wins(node, other, claim(CLIENT, other, Established, (100, 800_000))));
    let (node, other) = with_connection(&[ACK]);
    assert!(!wins(node, other, claim(CLIENT, other, Opening, (60_000, 8_000))));
}

#[test]
fn a_connection_whose_syn_was_seen_here_beats_any_older_claim() {
    for flags in [&[SYN][..], &[SYN, ACK]] {
        let (node, other) = with_connection(flags);
        assert!(!wins(node, other, claim(CLIENT, other, Established, (60_000, 800_000))));
    }
}

/// Whether the connection is a peer's, and its number of moves.
fn owned(node: &Node) -> (bool, u8) {
    let connection = node.connection(CLIENT, WEB).unwrap();
    (connection.is_remote(), connection.moves())
}

#[test]
fn of_one_backend_the_balancer_to_which_it_moved_last_has_the_connection() {
    // The claim's number of moves, whether it may win ties, and the silence here: whether the
    // connection is then theirs, and its number of moves.
    let cases = [
        ((1, false), 100, (true, 1)),
        // This balancer did not know of the other's claim.
        ((1, false), 0, (false, 2)),
        ((0, false), 100, (false, 0)),
        ((0, true), 100, (true, 0)),
    ];
    for ((moves, wins_ties), silent_s, after) in cases {
        let (mut node, _) = with_connection(&[ACK]);
        let here = node.known(CLIENT, WEB).unwrap();
        node.backend(segment(ACK));
        node.advance(Duration::from_secs(silent_s));
        let its = record(CLIENT, &here.to_string(), Established, (60_000, 899_000));
        node.import(&[Change::Claim(Record { moves, wins_ties, ..its })]);
        assert_eq!((node.known(CLIENT, WEB), owned(&node)), (Some(here), after));
        // On the configuration's backend, so there is nothing to claim.
        assert!(node.changes().is_empty());
        node.backend(segment(ACK));
        assert_eq!(owned(&node), (false, after.1 + u8::from(after.0)));
        assert_eq!(node.exceptions.stale_count(), 0);
    }
}

/// A balancer that has just taken over a connection from a peer, and a record of the connection, as
/// last claimed by the peer. It is an exception, and has been claimed.
fn taken_over(moves: u8) -> (Node, Record) {
    let home = Node::new().open(CLIENT, WEB).to_string();
    let backend = BACKENDS.into_iter().find(|it| **it != home).unwrap();
    let claimed = Record { moves, ..record(CLIENT, backend, Established, (60_000, 800_000)) };
    let mut node = Node::new();
    node.import(&[Change::Claim(claimed)]);
    assert_eq!(owned(&node), (true, moves));
    assert_eq!(node.backend(segment(ACK)).to_string(), backend);
    (node, claimed)
}

#[test]
fn a_takeover_is_a_move() {
    for (moves, after) in [(0, 1), (5, 6), (31, 0)] {
        let (mut node, claimed) = taken_over(moves);
        let said = node.changes();
        let [record] = node::claims(&said)[..] else { panic!("{said:?}") };
        assert_eq!((record.backend, record.moves), (claimed.backend, after));
        node.backend(segment(ACK));
        assert_eq!(owned(&node), (false, after));
    }
}

#[test]
fn a_claim_from_before_a_takeover_changes_nothing() {
    let (mut node, claimed) = taken_over(5);
    node.advance(Duration::from_secs(200));
    node.changes();
    node.import(&[Change::Claim(Record { left_ms: 899_000, wins_ties: true, ..claimed })]);
    assert_eq!(owned(&node), (false, 6));
    assert!(node.changes().is_empty());

    // Nor can its previous owner end a peer's connection, or claim that it has not moved.
    let mut node = Node::new();
    node.import(&[Change::Claim(Record { moves: 6, ..claimed })]);
    node.import(&[Change::Claim(Record { state: Closing, left_ms: 19_000, ..claimed })]);
    assert_eq!(node.connection(CLIENT, WEB).map(|it| it.state()), Some(Established));
    node.import(&[Change::Claim(Record { left_ms: 899_000, ..claimed })]);
    assert_eq!(owned(&node), (true, 6));
}

#[test]
fn an_exception_that_moved_here_unknown_to_its_peer_is_claimed_again() {
    let (mut node, claimed) = taken_over(5);
    assert_eq!(node.changes().len(), 1);
    node.import(&[Change::Claim(Record { moves: 9, ..claimed })]);
    assert_eq!(owned(&node), (false, 10));
    let said = node.changes();
    let [record] = node::claims(&said)[..] else { panic!("{said:?}") };
    assert_eq!((record.backend, record.moves), (claimed.backend, 10));
    assert!(record.left_ms > 899_000, "{record:?}");
}

/// It is then claimed again with the time of its last packet, so that the next packet is news.
#[test]
fn an_exception_that_is_claimed_again_without_a_packet_is_so_after_the_next_one() {
    let (mut node, claimed) = taken_over(5);
    node.changes();
    node.advance(Duration::from_secs(80));
    node.import(&[Change::Claim(Record { moves: 9, ..claimed })]);
    let said = node.changes();
    let [record] = node::claims(&said)[..] else { panic!("{said:?}") };
    assert!((818_000..=820_000).contains(&record.left_ms), "{record:?}");
    node.backend(segment(ACK));
    let said = node.live(Duration::from_secs(300));
    let [record] = node::claims(&said)[..] else { panic!("{said:?}") };
    assert!(record.left_ms > 600_000, "{record:?}");
}

/// The client's SYN came here, on its way to a backend that was then drained, and the later packets
/// came to the peer.
#[test]
fn a_connection_is_established_once_a_peer_says_so_unless_it_means_an_earlier_one() {
    for (age_ms, state) in [(900, Established), (60_000, Opening)] {
        let mut node = Node::new();
        let backend = node.backend(segment(SYN));
        node.weigh(&backend.to_string(), 0);
        assert_eq!(node::claims(&node.changes())[..].len(), 1);
        node.advance(Duration::from_secs(1));
        let its = record(CLIENT, &backend.to_string(), Established, (age_ms, 899_000));
        node.import(&[Change::Claim(its)]);
        assert_eq!(owned(&node), (false, 0));
        assert_eq!(node.connection(CLIENT, WEB).map(|it| it.state()), Some(state));
        let said = node::claims(&node.changes());
        assert!(said.iter().all(|it| it.state == Established), "{said:?}");
        assert_eq!(said.len(), usize::from(state == Established));
        // So no later claim to another backend replaces it, even if it is established as well.
        let other = BACKENDS.into_iter().find(|it| **it != backend.to_string()).unwrap();
        node.import(&[claim(CLIENT, other, Established, (500, 899_500))]);
        let is_kept = node.known(CLIENT, WEB) == Some(backend);
        assert_eq!(is_kept, state == Established);
    }
}

/// A connection that is over has little time left, however late its last packet came.
#[test]
fn a_connection_that_moves_with_its_last_packet_is_over_where_it_was_before() {
    for flags in [FIN | ACK, RST] {
        let (mut first, mut second) = (taken_over(0).0, Node::new());
        second.import(&first.changes());
        for node in [&mut first, &mut second] {
            node.advance(Duration::from_secs(5));
        }
        second.backend(segment(flags));
        let said = second.changes();
        let [record] = node::claims(&said)[..] else { panic!("{said:?}") };
        assert_eq!((record.state, record.moves), (Closing, 2));
        first.import(&said);
        assert_eq!(owned(&first), (true, 2));
        assert_eq!(first.connection(CLIENT, WEB).map(|it| it.state()), Some(Closing));
        assert!(first.changes().is_empty());
    }
}

/// Packets come to both in turn, more often than moves are counted.
#[test]
fn two_balancers_agree_on_which_of_them_has_a_connection() {
    let (mut one, claimed) = taken_over(0);
    let mut other = Node::new();
    for round in 0..40_u8 {
        let said = one.changes();
        assert_eq!(node::claims(&said).len(), 1, "{round}: {said:?}");
        other.import(&said);
        assert_eq!(owned(&one), (false, (1 + round) % 32));
        assert_eq!(owned(&other), (true, (1 + round) % 32));
        assert!(other.changes().is_empty());
        for node in [&mut one, &mut other] {
            node.advance(Duration::from_secs(1));
        }
        assert_eq!(other.backend(segment(ACK)), claimed.backend);
        std::mem::swap(&mut one, &mut other);
    }
}

#[test]
fn a_claim_of_what_is_over_shortens_what_its_owner_claimed_before() {
    let mut node = Node::new();
    node.import(&[claim(CLIENT, BACKENDS[1], Established, (5_000, 800_000))]);
    assert_eq!(node.connection(CLIENT, WEB).map(|it| it.state()), Some(Established));
    node.import(&[claim(CLIENT, BACKENDS[1], Closing, (6_000, 19_000))]);
    assert_eq!(node.connection(CLIENT, WEB).map(|it| it.state()), Some(Closing));
    let mut silent = Duration::ZERO;
    while node.connection(CLIENT, WEB).is_some() {
        node.live(Duration::from_secs(1));
        silent += Duration::from_secs(1);
        assert!(silent < Duration::from_secs(30));
    }
    assert!(silent >= Duration::from_secs(19), "{silent:?}");
}

#[test]
fn a_peers_connection_is_forgotten_at_the_remaining_time_unless_a_packet_comes() {
    let (idle_s, left_s) = (900, 37);
    for comes in [false, true] {
        let mut node = Node::new();
        node.import(&[claim(CLIENT, BACKENDS[1], Established, (5_000, left_s * 1000))]);
        node.advance(Duration::from_secs(u64::from(left_s) - 1));
        if comes {
            assert_eq!(node.backend(segment(ACK)).to_string(), BACKENDS[1]);
            node.advance(Duration::from_secs(idle_s - 10));
        }
        node.live(Duration::ZERO);
        assert!(node.connection(CLIENT, WEB).is_some());
        node.advance(Duration::from_secs(if comes { 11 } else { 2 }));
        assert!(node.live(Duration::ZERO).is_empty(), "of its expiry nobody needs to hear");
        assert!(node.connection(CLIENT, WEB).is_none());
    }
}

#[test]
fn the_end_of_a_peers_connection_is_its_end_here_unless_it_is_this_balancers_now() {
    for is_own in [false, true] {
        let mut node = Node::new();
        node.import(&[claim(CLIENT, BACKENDS[1], Established, (5_000, 800_000))]);
        if is_own {
            node.backend(segment(ACK));
        }
        node.import(&[Change::End(node::key(CLIENT, WEB, 6))]);
        assert_eq!(node.connection(CLIENT, WEB).is_some(), is_own);
        assert_eq!(node.exceptions.stale_count(), u64::from(is_own));
    }
}

/// The previous node's end of a connection doesn't cover the connection's last packets.
#[test]
fn a_connection_that_this_balancer_has_seen_closing_outlives_a_peers_end() {
    for last in [FIN | ACK, RST] {
        let (mut node, claimed) = taken_over(0);
        node.backend(segment(last));
        node.import(&[Change::End(node::key(CLIENT, WEB, 6))]);
        assert_eq!(node.exceptions.stale_count(), 1);
        assert_eq!(node.backend(segment(ACK)), claimed.backend);
    }
}

/// Its client uses the port again at the peer, for a connection that is no exception.
#[test]
fn what_begins_at_a_peer_replaces_what_this_balancer_has_seen_closing() {
    for last in [FIN | ACK, RST] {
        let (mut first, claimed) = taken_over(0);
        first.backend(segment(last));
        let mut second = Node::new();
        second.import(&first.changes());
        for node in [&mut first, &mut second] {
            node.weigh(&claimed.backend.to_string(), 0);
            assert!(node.changes().is_empty());
        }
        assert_ne!(second.backend(segment(SYN)), claimed.backend);
        let said = second.changes();
        let [Change::Claim(_), Change::End(_)] = said[..] else { panic!("{said:?}") };
        first.import(&said);
        assert!(first.connection(CLIENT, WEB).is_none());
    }
}

/// Its client uses the port again at the peer, on the same backend, and the peer stops before it
/// reports more.
#[test]
fn what_opens_at_a_peer_is_no_longer_closing_here() {
    let (mut first, _) = taken_over(0);
    first.backend(segment(FIN | ACK));
    first.advance(Duration::from_secs(5));
    let mut second = Node::new();
    second.import(&first.changes());
    second.backend(segment(SYN));
    first.import(&second.changes());
    assert_eq!(first.connection(CLIENT, WEB).map(|it| it.state()), Some(Opening));
    first.backend(segment(ACK));
    assert_eq!(first.connection(CLIENT, WEB).map(|it| it.state()), Some(Established));
}

#[test]
fn a_claim_to_an_unknown_backend_is_refused() {
    let mut node = Node::new();
    node.import(&[claim(CLIENT, "10.9.9.9", Established, (5_000, 800_000))]);
    assert_eq!(node.exceptions.refused_count(), 1);
    assert!(node.connection(CLIENT, WEB).is_none());
}

/// A table full of established exceptions accepts no more.
#[test]
fn claims_that_find_no_room_are_refused() {
    let mut node = Node::of_size(64, 64);
    let claims = |numbers: std::ops::Range<u32>| -> Vec<Change> {
        let of = |number: u32| {
            let client = format!("198.51.{}.{}:4000", number / 250, number % 250 + 1);
            let backends = BACKENDS.map(|it| claim(&client, it, Established, (60_000, 800_000)));
            // One of them is on its hash's backend: the first one that isn't is an exception.
            backends[number as usize % 3]
        };
        numbers.map(of).collect()
    };
    node.import(&claims(0..2000));
    let refused = node.exceptions.refused_count();
    println!("{refused} of 2000 refused");
    assert!(refused > 0 && node.lb.connections() <= 64);
    let target_counts: u64 = {
        let all = node.lb.balance().connections().iter();
        all.map(|(_, connection)| u64::from(connection.is_remote())).sum()
    };
    assert_eq!(target_counts, node.lb.connections() as u64);
}
