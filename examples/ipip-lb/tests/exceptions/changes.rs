//! A balancer's changes for other nodes.

use super::node::{self, BACKENDS, Node, TURNS, WEB, claims, ends};
use hotloop::packet::build::{tcp, udp};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop_balancer::connection::State;
use hotloop_balancer::exception_mover::Pulled;
use hotloop_balancer::exceptions::{Change, Record};
use std::time::Duration;

/// Clients of connections to the backend whose drain has begun, and the changes reported for them.
fn drained(node: &mut Node) -> Vec<String> {
    let clients = (1..200).map(|it| format!("198.51.100.{it}:4000"));
    let mut drained: Vec<_> =
        clients.filter(|it| node.open(it, WEB).to_string() == BACKENDS[2]).collect();
    assert!(node.changes().is_empty(), "all are where the configuration says");
    node.weigh(BACKENDS[2], 0);
    let said = node.changes();
    let mut said_of: Vec<_> =
        claims(&said).iter().map(|it| format!("{}:4000", it.key.source())).collect();
    assert!(ends(&said).is_empty());
    assert!(claims(&said).iter().all(|it| it.state == State::Established));
    drained.sort();
    said_of.sort();
    assert_eq!(said_of, drained);
    drained
}

fn segment(client: &str, flags: u8) -> hotloop::packet::build::PacketBuilder {
    tcp().from(client).to(WEB).tcp_flags(flags)
}

#[test]
fn what_a_change_of_weights_makes_an_exception_is_claimed_and_ends_when_it_is_undone() {
    let mut node = Node::new();
    let clients = drained(&mut node);
    node.weigh(BACKENDS[2], 1);
    let said = node.changes();
    assert_eq!((ends(&said).len(), claims(&said).len()), (clients.len(), 0));
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
        let [record] = claims(&said)[..] else { panic!("{said:?}") };
        assert_eq!((record.state, record.key), (State::Closing, node::key(&clients[0], WEB, 6)));
        assert!((19_000..=20_000).contains(&record.left_ms), "{record:?}");
        assert!(ends(&said).is_empty());
    }
}

/// A SYN on the ports of an ended connection, whose backend takes no new ones: a new connection,
/// elsewhere.
#[test]
fn a_connection_in_whose_place_another_begins_has_ended() {
    let mut node = Node::new();
    let clients = drained(&mut node);
    node.backend(segment(&clients[0], RST));
    assert_eq!(node.changes().len(), 1);
    assert_ne!(node.backend(segment(&clients[0], SYN)).to_string(), BACKENDS[2]);
    let said = node.changes();
    assert_eq!((ends(&said), claims(&said)), (vec![node::key(&clients[0], WEB, 6)], vec![]));
}

#[test]
fn a_connection_that_leaves_a_full_table_has_ended() {
    let mut node = Node::of_size(64, 4096);
    let query = |index: u32| {
        let client = format!("198.51.{}.{}:4000", index / 250, index % 250 + 1);
        udp().from(client).to(TURNS)
    };
    for index in 0..1000 {
        node.backend(query(index));
        let said = node.changes();
        let known = node.lb.connections();
        // Each is an exception at once; when the table is full, another one leaves.
        assert!(claims(&said).len() <= 1 && ends(&said).len() <= 1, "{said:?}");
        if index > 900 {
            assert_eq!((claims(&said).len(), ends(&said).len(), known), (1, 1, 64), "{said:?}");
        }
    }
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
        assert!(ends(&said).is_empty());
        for client in &clients {
            let key = node::key(client, WEB, 6);
            let records: Vec<_> = claims(&said).into_iter().filter(|it| it.key == key).collect();
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
    let said = claims(&node.live(Duration::from_secs(75 + 10)));
    assert_eq!(said.len(), clients.len());
    assert!(said.iter().all(|it| it.left_ms > 800_000), "{said:?}");
}

#[test]
fn a_peers_exception_is_claimed_once_a_packet_of_it_comes() {
    let (mut first, mut second) = (Node::new(), Node::new());
    let clients = drained(&mut first);
    second.weigh(BACKENDS[2], 0);
    let said = first.snapshot();
    second.import(&said);
    assert!(second.changes().is_empty() && second.snapshot().is_empty());
    // If the first node is absent, the second one reports it instead.
    assert_eq!(claims(&second.whole_snapshot()).len(), clients.len());
    second.backend(segment(&clients[0], ACK));
    let said = second.changes();
    let [record] = claims(&said)[..] else { panic!("{said:?}") };
    assert_eq!(record.key, node::key(&clients[0], WEB, 6));
    assert_eq!((record.backend.to_string().as_str(), record.moves), (BACKENDS[2], 1));
    assert!((899_000..=900_000).contains(&record.left_ms), "{record:?}");
    assert_eq!(claims(&second.snapshot()).len(), 1);
    // It was the first balancer's, which now reports neither the connection nor its end.
    first.advance(Duration::from_secs(5));
    first.import(&said);
    assert!(first.connection(&clients[0], WEB).unwrap().is_remote());
    assert_eq!(claims(&first.snapshot()).len(), clients.len() - 1);
    first.weigh(BACKENDS[2], 1);
    assert_eq!(ends(&first.changes()).len(), clients.len() - 1);
}

/// A connection on the configuration's backend needs no claim: the peer's claim ends.
#[test]
fn a_peers_connection_that_is_no_exception_here_ends_once_a_packet_of_it_comes() {
    let mut node = Node::new();
    let client = "198.51.100.7:4000";
    let backend = Node::new().open(client, WEB).to_string();
    node.import(&[node::claim(client, &backend, State::Established, (5_000, 500_000))]);
    assert!(node.changes().is_empty());
    for said in [1, 0] {
        assert_eq!(node.backend(segment(client, ACK)).to_string(), backend);
        assert_eq!(node.changes(), vec![Change::End(node::key(client, WEB, 6)); said]);
        assert_eq!(node.connection(client, WEB).map(|it| it.moves()), Some(1));
    }
}

/// It is journalled, and remote by the time control asks: an end would make the other nodes forget
/// it.
#[test]
fn of_an_exception_that_another_node_took_over_meanwhile_nothing_is_said() {
    let mut node = Node::new();
    assert!(node.changes().is_empty());
    let client = "198.51.100.7:4000";
    let backend = node.backend(udp().from(client).to(TURNS));
    let (key, state) = (node::key(client, TURNS, 17), State::Udp);
    let (age_ms, left_ms, moves) = (0, 70_000, 1);
    let claim = Record { key, backend, state, age_ms, left_ms, moves, wins_ties: false };
    assert_eq!(node.exceptions.import(node.lb.services(), &[Change::Claim(claim)]), 1);
    // Control has just requested changes: it is the import's turn.
    node.exceptions.turn(|pulled| panic!("{pulled:?}"));
    node.lb.tick();
    let all = node.lb.balance().connections().iter();
    assert_eq!(all.filter(|(_, connection)| connection.is_remote()).count(), 1);
    assert!(node.changes().is_empty());
}

#[test]
fn a_walk_that_is_held_goes_on_later_and_tells_own_exceptions_from_those_of_peers() {
    let (mut first, mut second) = (Node::new(), Node::new());
    let clients = drained(&mut first);
    second.weigh(BACKENDS[2], 0);
    second.import(&first.snapshot());
    second.backend(segment(&clients[0], ACK));
    second.exceptions.hold_walk(true);
    second.exceptions.begin_whole_walk();
    // No page comes meanwhile: this call would fail.
    assert_eq!(claims(&second.changes()).len(), 1);
    second.exceptions.hold_walk(false);
    let (mut own_keys, mut entered_count) = (Vec::new(), 0);
    while second.exceptions.is_walking() {
        second.exceptions.turn(|pulled| {
            if let Pulled::Exceptions { own, entered } = pulled {
                own_keys.extend(own.iter().map(|record| record.key));
                entered_count += entered.len();
            }
            true
        });
        second.lb.tick();
    }
    assert_eq!(
        (own_keys, entered_count),
        (vec![node::key(&clients[0], WEB, 6)], clients.len() - 1)
    );
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
    let mut keys: Vec<_> =
        claims(&node.snapshot()).iter().map(|it| it.key.source().to_string()).collect();
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
    assert_eq!(claims(&node.changes()).len(), 50);
}

/// Control knows when all exceptions for a service table were found and taken.
#[test]
fn control_knows_for_which_service_table_exceptions_are_complete() {
    let mut node = Node::new();
    drained(&mut node);
    assert!(node.exceptions.is_marked(node.lb.services()));
    node.lb.standing.weights.clear();
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
    assert_eq!(ends(&node.changes()).len(), all);
    node.weigh(BACKENDS[2], 0);
    assert_eq!(claims(&node.changes()).len(), all);

    node.exceptions.keep_journals(0);
    node.changes();
    node.weigh(BACKENDS[2], 1);
    assert!(node.changes().is_empty() && !node.exceptions.take_has_lost());
}
