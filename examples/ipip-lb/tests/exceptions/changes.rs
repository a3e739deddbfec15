//! A balancer's changes for other nodes.

use super::node::{self, BACKENDS, Node, TURNS, WEB};
use hotloop::packet::build::{tcp, udp};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop_agreement::Birth;
use hotloop_balancer::connection::State;
use hotloop_balancer::exception_mover::Pulled;
use hotloop_balancer::exceptions::Record;
use std::time::Duration;

/// Clients of connections to the backend whose drain has begun, and the changes reported for them.
fn drained(node: &mut Node) -> Vec<String> {
    let clients = (1..200).map(|it| format!("198.51.100.{it}:4000"));
    let mut drained: Vec<_> =
        clients.filter(|it| node.open(it, WEB).to_string() == BACKENDS[2]).collect();
    assert!(node.changes().is_empty(), "all are where the configuration says");
    node.weigh(BACKENDS[2], 0);
    let said = node.changes();
    let mut said_of: Vec<_> = said.iter().map(|it| format!("{}:4000", it.key.source())).collect();
    assert!(said.iter().all(|it| it.state == State::Established));
    drained.sort();
    said_of.sort();
    assert_eq!(said_of, drained);
    drained
}

fn segment(client: &str, flags: u8) -> hotloop::packet::build::PacketBuilder {
    tcp().from(client).to(WEB).tcp_flags(flags)
}

#[test]
fn what_a_change_of_weights_makes_an_exception_is_claimed_and_none_any_more_when_it_is_undone() {
    let mut node = Node::new();
    let clients = drained(&mut node);
    node.weigh(BACKENDS[2], 1);
    assert!(node.changes().is_empty());
    assert!(clients.iter().all(|it| !node.connection(it, WEB).unwrap().is_exception()));
    node.weigh(BACKENDS[2], 0);
    assert_eq!(node.changes().len(), clients.len());
}

#[test]
fn packets_of_a_known_exception_say_nothing_new() {
    let mut node = Node::new();
    for client in drained(&mut node) {
        node.backend(segment(&client, ACK));
    }
    assert!(node.live(Duration::from_secs(60)).is_empty());
}

#[test]
fn a_closed_connection_is_claimed_as_one_that_is_over() {
    for flags in [FIN | ACK, RST] {
        let mut node = Node::new();
        let clients = drained(&mut node);
        node.backend(segment(&clients[0], flags));
        let said = node.changes();
        let [record] = said[..] else { panic!("{said:?}") };
        assert_eq!((record.state, record.key), (State::Closing, node::key(&clients[0], WEB, 6)));
        assert!((19_000..=20_000).contains(&record.left_ms), "{record:?}");
    }
}

/// A SYN on the ports of an ended connection, whose backend takes no new ones: a new connection,
/// elsewhere.
#[test]
fn a_connection_that_takes_the_place_of_a_claimed_one_is_claimed() {
    let mut node = Node::new();
    let clients = drained(&mut node);
    node.backend(segment(&clients[0], RST));
    assert_eq!(node.changes().len(), 1);
    assert_ne!(node.backend(segment(&clients[0], SYN)).to_string(), BACKENDS[2]);
    let said = node.changes();
    let [record] = said[..] else { panic!("{said:?}") };
    assert_eq!(record.key, node::key(&clients[0], WEB, 6));
    assert_ne!(record.backend.to_string(), BACKENDS[2]);
}

#[test]
fn an_exception_is_claimed_again_within_a_third_of_its_idle_timeout() {
    let mut node = Node::new();
    let clients = drained(&mut node);
    for round in 1..=3 {
        let mut said = node.live(Duration::from_secs(100));
        for client in &clients {
            node.backend(segment(client, ACK));
        }
        said.extend(node.live(Duration::from_secs(200 + 10)));
        for client in &clients {
            let key = node::key(client, WEB, 6);
            let records: Vec<_> = said.iter().filter(|it| it.key == key).collect();
            assert!((1..=2).contains(&records.len()), "round {round}: {records:?}");
            // With the time remaining after its last packet.
            let last = records[records.len() - 1];
            assert!((600_000..900_000).contains(&last.left_ms), "{last:?}");
        }
    }
}

#[test]
fn an_exception_that_was_silent_is_claimed_again_within_a_twelfth_of_its_idle_timeout_after_a_packet()
 {
    let mut node = Node::new();
    let clients = drained(&mut node);
    assert!(node.live(Duration::from_secs(800)).is_empty(), "peers know all that there is");
    for client in &clients {
        node.backend(segment(client, ACK));
    }
    let said = node.live(Duration::from_secs(75 + 10));
    assert_eq!(said.len(), clients.len());
    assert!(said.iter().all(|it| it.left_ms > 800_000), "{said:?}");
}

/// If the first node goes, the second one reports them instead.
#[test]
fn connections_of_peers_are_in_each_walk() {
    let (mut first, mut second) = (Node::new(), Node::new());
    let clients = drained(&mut first);
    second.import(&first.snapshot());
    assert!(second.changes().is_empty());
    second.exceptions.hold_walk(true);
    second.exceptions.begin_walk();
    // No page comes meanwhile: this call would fail.
    assert!(second.changes().is_empty());
    second.exceptions.hold_walk(false);
    assert_eq!(second.snapshot().len(), clients.len());
}

/// A connection on the configuration's backend is none that a peer would have to learn of.
#[test]
fn a_peers_connection_that_is_no_exception_here_is_not_claimed_again() {
    let mut node = Node::new();
    let client = "198.51.100.7:4000";
    let backend = Node::new().open(client, WEB).to_string();
    node.import(&[node::claim(client, &backend, State::Established, 500_000)]);
    for _ in 0..3 {
        assert_eq!(node.backend(segment(client, ACK)).to_string(), backend);
        assert!(node.live(Duration::from_secs(300)).is_empty());
    }
}

/// It is journalled, and a peer has another one by the time control asks.
#[test]
fn a_claim_is_as_the_connection_is_when_control_asks() {
    let mut node = Node::new();
    assert!(node.changes().is_empty());
    let client = "198.51.100.7:4000";
    let backend = node.backend(udp().from(client).to(TURNS));
    let other = BACKENDS.map(|it| it.parse().unwrap()).into_iter().find(|it| *it != backend);
    let (key, state) = (node::key(client, TURNS, 17), State::Udp);
    let (backend, birth) = (other.unwrap(), Birth::new(1));
    node.import(&[Record { key, backend, state, birth, left_ms: 70_000 }]);
    let said = node.changes();
    assert!(said.last().is_some_and(|it| it.backend == backend), "{said:?}");
}

/// In a walk through a large table, changes are reported long before its end.
#[test]
fn changes_are_heard_while_a_walk_goes_on() {
    let mut node = Node::of_size(1_048_576, 4096);
    // A table without connections is left out.
    node.open("198.51.100.7:4000", WEB);
    assert!(node.changes().is_empty());
    node.exceptions.begin_walk();
    node.exceptions.turn(|pulled| panic!("{pulled:?}"));
    node.lb.tick();
    node.backend(udp().from("198.51.100.7:4000").to(TURNS));
    let (mut heard, mut tick_count) = (None, 0);
    while node.exceptions.is_walking() {
        node.exceptions.turn(|pulled| {
            if matches!(pulled, Pulled::Changes(_)) {
                heard.get_or_insert(tick_count);
            }
            true
        });
        node.advance(Duration::from_micros(3));
        node.lb.tick();
        tick_count += 1;
    }
    let heard = heard.expect("it was heard");
    assert!(heard < 2000 && tick_count > 5_000, "after {heard} turns of {tick_count}");
}

#[test]
fn changes_that_find_no_room_are_known_to_be_lost_and_a_walk_has_them() {
    let mut node = Node::of_size(4096, 16);
    let query = |index: u32| udp().from(format!("198.51.100.{index}:4000")).to(TURNS);
    for index in 1..=16 {
        node.backend(query(index));
    }
    assert_eq!(node.changes().len(), 16);
    assert!(!node.exceptions.take_has_lost());
    for index in 17..=100 {
        node.backend(query(index));
    }
    assert_eq!(node.changes().len(), 16);
    assert!(node.exceptions.take_has_lost() && !node.exceptions.take_has_lost());
    let mut keys: Vec<_> = node.snapshot().iter().map(|it| it.key.source().to_string()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 100);
}

/// Changes that are not taken come again, and nothing is requested meanwhile.
#[test]
fn what_control_has_no_room_for_stays_where_it_is() {
    let mut node = Node::new();
    let query = |index: u32| udp().from(format!("198.51.100.{index}:4000")).to(TURNS);
    for index in 1..=50 {
        node.backend(query(index));
    }
    let mut offered = Vec::new();
    for _ in 0..20 {
        node.exceptions.turn(|pulled| {
            offered.push(format!("{pulled:?}"));
            false
        });
        for _ in 0..20 {
            node.lb.tick();
        }
    }
    assert!(offered.len() > 10 && offered.iter().all(|it| *it == offered[0]), "{offered:?}");
    assert_eq!(node.changes().len(), 50);
}

/// Control knows when all exceptions for a service table were found and taken.
#[test]
fn control_knows_for_which_service_table_exceptions_are_complete() {
    let mut node = Node::new();
    drained(&mut node);
    node.weigh(BACKENDS[2], 1);
    assert!(node.changes().is_empty());
    assert!(node.exceptions.is_marked(node.lb.services()));
    node.plan_weight(BACKENDS[2], 0);
    node.lb.reload();
    node.exceptions.turn(|_| true);
    assert!(!node.exceptions.is_marked(node.lb.services()));
    let mut said = 0;
    while !node.exceptions.is_marked(node.lb.services()) {
        node.lb.tick();
        node.exceptions.turn(|pulled| {
            let Pulled::Changes(changes) = pulled else { panic!() };
            said += changes.len();
            true
        });
    }
    assert!(said > 20);
    assert!(node.changes().is_empty());
}

/// As during a takeover by another program.
#[test]
fn workers_note_changes_from_when_they_are_to_until_they_are_not() {
    let mut node = Node::of_size(4096, 0);
    let clients: Vec<_> = (1..100).map(|it| format!("198.51.100.{it}:4000")).collect();
    clients.iter().for_each(|it| _ = node.open(it, WEB));
    node.weigh(BACKENDS[2], 0);
    assert!(node.changes().is_empty(), "nobody is to hear of anything");
    let rounds = node.exceptions.round_count();
    assert!(rounds > 0);

    node.exceptions.keep_journals(4096);
    assert!(node.exceptions.has_journals());
    assert!(node.changes().is_empty() && !node.exceptions.has_journals());
    // Earlier changes come in a walk, later ones are journalled.
    let all = node.snapshot().len();
    assert!(all > 0 && node.exceptions.round_count() > rounds);
    node.weigh(BACKENDS[2], 1);
    assert!(node.changes().is_empty());
    node.weigh(BACKENDS[2], 0);
    assert_eq!(node.changes().len(), all);

    node.exceptions.keep_journals(0);
    node.changes();
    node.weigh(BACKENDS[2], 1);
    assert!(node.changes().is_empty() && !node.exceptions.take_has_lost());
}
