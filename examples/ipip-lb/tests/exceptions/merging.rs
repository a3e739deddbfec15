//! A balancer's treatment of a claim to a connection that it knows itself.

use super::node::{self, BACKENDS, Node, WEB, claim};
use hotloop::packet::build::{PacketBuilder, tcp};
use hotloop::packet::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use hotloop_agreement::Birth;
use hotloop_balancer::connection::State::{self, Closing, Established, Opening};
use hotloop_balancer::exceptions::Record;
use hotloop_balancer::spec::Timeouts;
use std::time::Duration;

const CLIENT: &str = "198.51.100.7:4000";

/// A node that has the connection, opened here ten seconds ago, and a backend that the connection is
/// not on.
fn with_connection(flags: &[u8]) -> (Node, &'static str) {
    let mut node = Node::new();
    node.advance(Duration::from_secs(1_000));
    for flags in flags {
        node.backend(segment(*flags));
    }
    node.advance(Duration::from_secs(9));
    let other = other_backend(&node);
    (node, other)
}

/// A backend that the connection is not on.
fn other_backend(node: &Node) -> &'static str {
    let here = node.known(CLIENT, WEB).unwrap().to_string();
    BACKENDS.into_iter().find(|it| **it != here).unwrap()
}

fn segment(flags: u8) -> PacketBuilder {
    tcp().from(CLIENT).to(WEB).tcp_flags(flags)
}

/// The claim of a peer that saw the SYN, which came this many seconds ago.
fn begun(node: &mut Node, backend: &str, state: State, ago_s: u64) -> Record {
    let birth = Birth::new(node.clock() - ago_s * 1_000_000_000 / hotloop::flow::STEP_NS);
    Record { birth, ..claim(CLIENT, backend, state, 800_000) }
}

/// The claim of the end of a connection, which came this long ago.
fn ended_ago(claim: Record, ago: Duration) -> Record {
    let idle = Duration::from_secs(Timeouts::default().tcp_closing_s.into());
    let left_ms = (idle - ago).as_millis().try_into().unwrap();
    Record { state: Closing, left_ms, ..claim }
}

/// Whether the claim wins, judged by the backend of the next packet.
fn wins(node: &mut Node, other: &str, claim: Record) -> bool {
    let stale_count = node.exceptions.stale_count();
    node.import(&[claim]);
    let is_stale = node.exceptions.stale_count() > stale_count;
    let wins = node.backend(segment(ACK)).to_string() == other;
    assert_eq!(wins, !is_stale);
    wins
}

fn state(node: &Node) -> Option<State> {
    node.connection(CLIENT, WEB).map(|it| it.state())
}

#[test]
fn the_connection_that_began_later_wins() {
    for (ago_s, is_theirs) in [(60, false), (1, true)] {
        for state in [Opening, Established] {
            let (mut node, other) = with_connection(&[SYN, ACK]);
            let its = begun(&mut node, other, state, ago_s);
            assert_eq!(wins(&mut node, other, its), is_theirs);
        }
    }
}

/// Its client uses the port again, by another balancer. This one knows nothing of the end.
#[test]
fn a_connection_that_was_met_in_its_midst_yields_to_one_with_a_syn() {
    for (ago_s, state) in [(60, Established), (1, Opening)] {
        let (mut node, other) = with_connection(&[ACK]);
        let its = begun(&mut node, other, state, ago_s);
        assert!(wins(&mut node, other, its));
    }
    let (mut node, other) = with_connection(&[SYN]);
    let met = Record { birth: Birth::UNKNOWN, ..claim(CLIENT, other, Established, 800_000) };
    assert!(!wins(&mut node, other, met));
}

/// A late packet of the port's connection before was the first one here, and the cluster's clock has just
/// begun: an unknown birth is not a time near its beginning.
#[test]
fn a_new_balancer_takes_the_claim_to_a_connection_that_began_after_a_late_packet() {
    let mut node = Node::new();
    node.backend(segment(ACK));
    node.advance(Duration::from_secs(1));
    let other = other_backend(&node);
    let its = begun(&mut node, other, Opening, 0);
    assert!(wins(&mut node, other, its));
}

#[test]
fn two_that_were_met_in_their_midst_are_decided_alike_everywhere() {
    let (mut node, other) = with_connection(&[ACK]);
    let here = node.known(CLIENT, WEB).unwrap();
    let met = Record { birth: Birth::UNKNOWN, ..claim(CLIENT, other, Established, 800_000) };
    assert_eq!(wins(&mut node, other, met), met.backend < here);
}

/// A client sends its SYN again, and by another balancer, two seconds after the first one. It has had no
/// answer until then: a SYN that came later than the last packet begins another connection.
#[test]
fn an_established_connection_does_not_yield_to_its_own_syn() {
    for (answered_ms, is_again) in [(2_200, true), (1_800, true), (1_200, false)] {
        let mut node = Node::new();
        node.advance(Duration::from_secs(1_000));
        let here = node.backend(segment(SYN));
        node.advance(Duration::from_millis(answered_ms));
        node.backend(segment(ACK));
        node.advance(Duration::from_secs(9) - Duration::from_millis(answered_ms));
        let other = other_backend(&node);
        let its = begun(&mut node, other, Opening, 7);
        assert_eq!(wins(&mut node, other, its), !is_again, "{answered_ms} ms");
        let said = node.changes();
        let claims = said.iter().filter(|it| it.backend == here && it.birth > its.birth);
        assert_eq!(claims.count(), usize::from(is_again), "the peer yields: {said:?}");
    }
    let (mut node, other) = with_connection(&[SYN]);
    let its = begun(&mut node, other, Established, 7);
    assert!(wins(&mut node, other, its));
}

/// The peer still has the port's earlier connection. This balancer's is on the configuration's
/// backend, so the peer doesn't know of it.
#[test]
fn a_peer_that_claims_a_ports_earlier_connection_learns_of_the_present_one() {
    let (mut node, other) = with_connection(&[SYN, ACK]);
    let here = node.known(CLIENT, WEB).unwrap();
    for said_count in [1, 0] {
        let its = begun(&mut node, other, Established, 60);
        node.import(&[its]);
        let said = node.changes();
        assert_eq!(said.len(), said_count, "the peer knows it from then on: {said:?}");
        assert!(said.iter().all(|it| it.backend == here && it.birth > its.birth));
    }
    assert_eq!(node.exceptions.stale_count(), 2);
}

/// A balancer with a connection that a peer has claimed, and the claim.
fn with_claimed(state: State) -> (Node, Record) {
    let home = Node::new().open(CLIENT, WEB).to_string();
    let backend = BACKENDS.into_iter().find(|it| **it != home).unwrap();
    let mut node = Node::new();
    node.advance(Duration::from_secs(1_000));
    let its = begun(&mut node, backend, state, 60);
    node.import(&[its]);
    (node, its)
}

#[test]
fn a_packet_of_a_claimed_connection_is_no_news() {
    let (mut node, its) = with_claimed(Established);
    assert!(node.connection(CLIENT, WEB).unwrap().is_remote());
    assert_eq!(node.backend(segment(ACK)), its.backend);
    assert!(!node.connection(CLIENT, WEB).unwrap().is_remote());
    assert!(node.changes().is_empty());
}

/// Its claims are this balancer's to repeat from then on.
#[test]
fn a_claimed_connection_is_claimed_again_once_packets_have_come_for_a_third_of_its_time() {
    let (mut node, its) = with_claimed(Established);
    let mut claims = node.live(Duration::from_secs(400));
    assert!(claims.is_empty(), "none has come: {claims:?}");
    node.backend(segment(ACK));
    claims.extend(node.live(Duration::from_secs(90)));
    let [record] = claims[..] else { panic!("{claims:?}") };
    assert_eq!((record.backend, record.birth), (its.backend, its.birth));
    assert!(record.left_ms > 800_000, "{record:?}");
}

#[test]
fn an_opening_connection_is_established_once_a_peer_reports_it() {
    let (mut node, its) = with_claimed(Opening);
    node.import(&[Record { state: Established, ..its }]);
    assert_eq!(state(&node), Some(Established));
    node.import(&[its]);
    assert_eq!(state(&node), Some(Established));
}

#[test]
fn a_connection_is_closing_once_a_peer_reports_it_but_no_later_one_of_the_port_is() {
    for flags in [&[][..], &[ACK]] {
        let (mut node, its) = with_claimed(Established);
        flags.iter().for_each(|flags| _ = node.backend(segment(*flags)));
        node.import(&[Record { state: Closing, left_ms: 19_000, ..its }]);
        assert_eq!(state(&node), Some(Closing));
        // Nor does a late claim open it again, or make it last longer.
        node.import(&[its]);
        assert_eq!(state(&node), Some(Closing));
        node.live(Duration::from_secs(18));
        assert_eq!(state(&node), Some(Closing));
        node.live(Duration::from_secs(2));
        assert_eq!(state(&node), None);
    }
    // The client's SYN may begin another connection on the backend.
    let (mut node, its) = with_claimed(Established);
    node.backend(segment(SYN));
    assert_eq!(node.changes().len(), 1);
    node.import(&[Record { state: Closing, left_ms: 19_000, ..its }]);
    assert_eq!(state(&node), Some(Established));
}

/// Half a second after the end, packets are of the port's next connection, wherever its SYN came. This
/// balancer learns of the end after them.
#[test]
fn an_end_does_not_end_a_connection_that_packets_have_used_since() {
    for (ago_ms, counts) in [(0, true), (400, true), (600, false), (15_000, false)] {
        for flags in [&[SYN, ACK][..], &[ACK]] {
            let (mut node, _) = with_connection(flags);
            let here = node.known(CLIENT, WEB).unwrap().to_string();
            node.backend(segment(ACK));
            let its = begun(&mut node, &here, Established, 5);
            node.import(&[ended_ago(its, Duration::from_millis(ago_ms))]);
            let its_state = if counts { Closing } else { Established };
            assert_eq!(state(&node), Some(its_state), "{ago_ms} ms");
            let said = node.changes();
            let [record] = said[..] else { panic!("{said:?}") };
            assert_eq!((record.state, record.birth), (its_state, its.birth.adopted()));
        }
    }
}

/// The port's next connection is on another backend, and its SYN came to a node that had forgotten the end.
#[test]
fn an_end_does_not_move_a_connection_that_packets_have_used_since() {
    for (ago_ms, counts) in [(400, true), (600, false)] {
        let (mut node, other) = with_connection(&[ACK]);
        node.backend(segment(ACK));
        let its = begun(&mut node, other, Established, 5);
        let end = ended_ago(its, Duration::from_millis(ago_ms));
        assert_eq!(wins(&mut node, other, end), counts, "{ago_ms} ms");
    }
}

/// Its client uses the port again at the peer, on the same backend.
#[test]
fn a_connection_that_is_closing_here_is_another_one_once_a_peer_claims_a_later_one() {
    for last in [FIN | ACK, RST] {
        let (mut node, its) = with_claimed(Established);
        node.backend(segment(last));
        assert_eq!(node.changes().len(), 1);
        let next = begun(&mut node, &its.backend.to_string(), Opening, 1);
        node.import(&[next]);
        assert_eq!(state(&node), Some(Opening));
        node.backend(segment(ACK));
        assert_eq!(state(&node), Some(Established));
    }
}

/// Data after a FIN is of the next connection of the port, and its SYN came to the peer.
#[test]
fn data_after_the_end_begins_a_later_connection() {
    let (mut node, its) = with_claimed(Established);
    node.backend(segment(FIN | ACK));
    node.backend(segment(PSH | ACK));
    let said = node.changes();
    let last = said.last().copied().unwrap();
    assert!(last.state == Established && last.birth > its.birth, "{said:?}");
    assert!(last.birth < begun(&mut node, BACKENDS[0], Opening, 1).birth);
}

/// Its next packets are of the connection that the peer claims, or of one after it.
#[test]
fn a_connection_in_use_is_later_than_one_that_a_peer_claims_on_the_same_backend() {
    let (mut node, _) = with_connection(&[ACK]);
    let here = node.known(CLIENT, WEB).unwrap().to_string();
    let its = begun(&mut node, &here, Established, 60);
    for said_count in [1, 0] {
        node.import(&[its]);
        let said = node.changes();
        assert_eq!(said.len(), said_count);
        assert!(said.iter().all(|it| it.birth == its.birth.adopted()), "{said:?}");
    }
}

/// The connection that begins in its place is no exception, but peers have the one before.
#[test]
fn a_connection_in_the_place_of_a_claimed_one_is_claimed() {
    for last in [FIN | ACK, RST] {
        let (mut node, its) = with_claimed(Established);
        node.weigh(&its.backend.to_string(), 0);
        node.backend(segment(last));
        node.changes();
        assert_ne!(node.backend(segment(SYN)), its.backend);
        let said = node.changes();
        let [record] = said[..] else { panic!("{said:?}") };
        assert!(record.backend != its.backend && record.birth > its.birth, "{record:?}");
    }
}

#[test]
fn the_connections_of_a_peer_that_is_gone_are_claimed_again() {
    let (mut node, its) = with_claimed(Established);
    node.inherit(its.key);
    let said = node.changes();
    let [record] = said[..] else { panic!("{said:?}") };
    assert_eq!((record.key, record.backend, record.birth), (its.key, its.backend, its.birth));
    node.inherit(node::key("198.51.100.7:4001", WEB, 6));
    assert!(node.changes().is_empty());
}

#[test]
fn a_peers_connection_is_forgotten_at_the_remaining_time_unless_a_packet_comes() {
    let (idle_s, left_s) = (900, 37);
    for comes in [false, true] {
        let mut node = Node::new();
        node.import(&[claim(CLIENT, BACKENDS[1], Established, left_s * 1000)]);
        node.advance(Duration::from_secs(u64::from(left_s) - 1));
        if comes {
            assert_eq!(node.backend(segment(ACK)).to_string(), BACKENDS[1]);
            node.advance(Duration::from_secs(idle_s - 10));
        }
        node.live(Duration::ZERO);
        assert!(node.connection(CLIENT, WEB).is_some());
        node.advance(Duration::from_secs(if comes { 11 } else { 2 }));
        node.live(Duration::ZERO);
        assert!(node.connection(CLIENT, WEB).is_none());
    }
}

#[test]
fn a_claim_to_an_unknown_backend_is_refused() {
    let mut node = Node::new();
    node.import(&[claim(CLIENT, "10.9.9.9", Established, 800_000)]);
    assert_eq!(node.exceptions.refused_count(), 1);
    assert!(node.connection(CLIENT, WEB).is_none());
}

/// A table full of established exceptions accepts no more.
#[test]
fn claims_that_find_no_room_are_refused() {
    let mut node = Node::of_size(64, 64);
    node.advance(Duration::from_secs(1_000));
    let of = |number: u32| {
        let client = format!("198.51.{}.{}:4000", number / 250, number % 250 + 1);
        let backends = BACKENDS.map(|it| claim(&client, it, Established, 800_000));
        // One of them is on its hash's backend: the first one that isn't is an exception.
        backends[number as usize % 3]
    };
    node.import(&(0..2000).map(of).collect::<Vec<_>>());
    let refused = node.exceptions.refused_count();
    println!("{refused} of 2000 refused");
    assert!(refused > 0 && node.lb.connections() <= 64);
    let remote_count = {
        let all = node.lb.balance().connections().iter();
        all.filter(|(_, connection)| connection.is_remote()).count()
    };
    assert_eq!(remote_count, node.lb.connections());
}

/// The last packets of its client may still come here.
#[test]
fn an_end_elsewhere_leaves_a_connection_the_time_after_its_last_packet_here() {
    let (mut node, _) = with_connection(&[SYN, ACK]);
    let here = node.known(CLIENT, WEB).unwrap().to_string();
    let its = begun(&mut node, &here, Established, 1);
    let its = ended_ago(its, Duration::from_millis(9_400));
    node.import(&[its]);
    let said = node.changes();
    let [record] = said[..] else { panic!("{said:?}") };
    assert_eq!(record.state, Closing);
    assert!(record.left_ms > its.left_ms + 300, "{record:?}");
}

#[test]
fn data_after_an_end_is_of_a_later_connection_each_time() {
    let (mut node, its) = with_claimed(Closing);
    let mut birth = its.birth;
    for _ in 0..2 {
        node.backend(segment(PSH | ACK));
        let said = node.changes();
        let [record] = said[..] else { panic!("{said:?}") };
        assert_eq!(record.state, Established);
        assert!(record.birth > birth && record.birth.is_adopted());
        birth = record.birth;
        node.backend(segment(RST));
        assert_eq!(node.changes()[0].birth, birth);
    }
}
