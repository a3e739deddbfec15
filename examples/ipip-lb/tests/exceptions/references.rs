//! A balancer's changes for other nodes, compared with reference tables, and packets of connections that
//! it doesn't know.

use super::node::{self, BACKENDS, Node, WEB, WEB6};
use hotloop::packet::build::{tcp, udp};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop_balancer::exceptions::Record;
use hotloop_balancer::services::{Removal, TargetName};
use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

/// The clients' addresses, each with a service's address.
fn clients(clients: Range<u32>) -> impl Iterator<Item = (String, &'static str)> {
    clients.flat_map(|it| {
        [(format!("198.51.100.{it}:4000"), WEB), (format!("[2001:db8:c::{it:x}]:4000"), WEB6)]
    })
}

/// Opens connections of these clients, and returns those on the backend.
fn open(node: &mut Node, numbers: Range<u32>, backend: &str) -> HashSet<FlowKey> {
    let mut keys = HashSet::new();
    for (client, vip) in clients(numbers) {
        if node.open(&client, vip).to_string() == backend {
            keys.insert(node::key(&client, vip, 6));
        }
    }
    assert!(!keys.is_empty());
    keys
}

fn claimed(claims: &[Record]) -> HashSet<FlowKey> {
    claims.iter().map(|it| it.key).collect()
}

#[test]
fn only_connections_that_differ_from_the_reference_table_are_claimed() {
    let mut node = Node::new();
    node.refer_to_own();
    open(&mut node, 1..50, BACKENDS[2]);
    node.weigh(BACKENDS[2], 0);
    assert!(node.changes().is_empty(), "they are where the reference table has them");
    let mut reference = Node::new();
    let elsewhere = open(&mut reference, 50..100, BACKENDS[2]);
    for (client, vip) in clients(50..100) {
        assert_ne!(node.open(&client, vip).to_string(), BACKENDS[2]);
    }
    let changes = node.changes();
    assert_eq!(claimed(&changes), elsewhere);
    assert_eq!(claimed(&node.snapshot()), elsewhere);
    node.weigh(BACKENDS[2], 1);
    assert!(node.changes().is_empty(), "they are exceptions for as long as they last");
}

#[test]
fn during_a_move_connections_are_compared_with_both_tables() {
    let mut node = Node::new();
    node.refer_to_own();
    let mut known = open(&mut node, 1..100, BACKENDS[2]);
    node.plan_weight(BACKENDS[2], 0);
    node.refer_beside_to_planned();
    let changes = node.changes();
    assert_eq!(claimed(&changes), known);
    assert!(changes.iter().all(|it| it.backend.to_string() == BACKENDS[2]));

    // The table in use still decides.
    let begun = open(&mut node, 100..200, BACKENDS[2]);
    let changes = node.changes();
    assert_eq!(claimed(&changes), begun);
    known.extend(begun);

    node.turn_references();
    assert!(node.changes().is_empty());
    node.forget_other_reference();
    assert!(node.changes().is_empty(), "the next table has them elsewhere");
    assert_eq!(claimed(&node.snapshot()), known);
}

#[test]
fn a_connection_that_the_next_table_has_where_it_is_is_no_exception_after_the_move() {
    let mut node = Node::new();
    node.refer_to_own();
    node.weigh(BACKENDS[2], 0);
    for (client, vip) in clients(1..100) {
        node.open(&client, vip);
    }
    let exceptions = claimed(&node.changes());
    assert!(!exceptions.is_empty());
    node.refer_beside_to_planned();
    node.turn_references();
    assert!(node.changes().is_empty());
    node.forget_other_reference();
    assert!(node.changes().is_empty());
    assert_eq!(claimed(&node.snapshot()), exceptions, "peers still have them");
    // No packet makes it news, and its claim isn't repeated.
    for (client, vip) in clients(1..100) {
        node.backend(tcp().from(&*client).to(vip).tcp_flags(ACK));
    }
    assert!(node.live(Duration::from_secs(400)).is_empty());
}

/// Another node may know them; the backend tells a new flow from one that it has.
#[test]
fn unknown_packets_within_tcp_and_of_udp_go_by_the_reference_table() {
    let mut node = Node::new();
    let of_reference: Vec<_> =
        clients(1..100).map(|(client, vip)| node.open(&client, vip)).collect();
    let mut node = Node::new();
    node.refer_to_own();
    node.weigh(BACKENDS[2], 0);
    for ((client, vip), backend) in clients(1..100).zip(&of_reference) {
        let packet = tcp().from(&*client).to(vip).tcp_flags(ACK);
        assert_eq!(node.backend(packet), *backend);
    }
    assert!(node.changes().is_empty());
    for (client, vip) in clients(100..200) {
        let of_reference = Node::new().backend(udp().from(&*client).to(vip));
        assert_eq!(node.backend(udp().from(&*client).to(vip)), of_reference);
    }
    assert!(node.changes().is_empty());
    let (client, vip) = ("198.51.100.1:4001", WEB);
    for port in 4001..4050 {
        let client = client.replace("4001", &port.to_string());
        let syn = tcp().from(&*client).to(vip).tcp_flags(SYN);
        assert_ne!(node.backend(syn).to_string(), BACKENDS[2]);
    }
}

/// A drain takes no flows away before the table moves. Then it takes those that begin: peers know the others.
#[test]
fn flows_of_udp_that_begin_follow_a_drain_once_the_reference_table_has_moved() {
    let [mut node, mut peer] = [(); 2].map(|()| Node::new());
    for node in [&mut node, &mut peer] {
        node.refer_to_own();
        node.weigh(BACKENDS[2], 0);
    }
    let flow = |node: &mut Node, (client, vip): (String, &str)| {
        node.backend(udp().from(&*client).to(vip)).to_string()
    };
    let begun: Vec<_> = clients(1..100).map(|it| flow(&mut node, it)).collect();
    assert!(begun.iter().any(|it| it == BACKENDS[2]), "the table has not moved");
    assert!(node.changes().is_empty());
    for node in [&mut node, &mut peer] {
        node.refer_beside_to_planned();
    }
    peer.import(&node.changes());
    for node in [&mut node, &mut peer] {
        node.turn_references();
        node.forget_other_reference();
        for (it, backend) in clients(1..100).zip(&begun) {
            assert_eq!(flow(node, it), *backend);
        }
        assert!(clients(100..200).all(|it| flow(node, it) != BACKENDS[2]));
    }
}

#[test]
fn a_flow_of_udp_whose_backend_is_down_begins_elsewhere_and_is_claimed() {
    let mut node = Node::new();
    node.refer_to_own();
    for service in ["web", "web6", "turns"] {
        node.lb.standing.down.insert(TargetName::new(service, BACKENDS[2].parse().unwrap()));
    }
    node.lb.reload();
    node.await_marked();
    let mut elsewhere = 0;
    for (client, vip) in clients(1..100) {
        let packet = udp().from(&*client).to(vip);
        elsewhere += usize::from(Node::new().backend(packet.clone()).to_string() == BACKENDS[2]);
        assert_ne!(node.backend(packet).to_string(), BACKENDS[2]);
    }
    assert_eq!(node.changes().len(), elsewhere);
}

/// A connection attempt that finds no room is forgotten: its next packets go by the reference table.
#[test]
fn a_connection_without_room_goes_by_the_reference_table_from_its_syn() {
    let mut node = Node::new();
    node.refer_to_own();
    node.weigh(BACKENDS[2], 0);
    node.lb.config.balancer.new_connections_per_second_max = 1;
    node.lb.reload();
    node.await_marked();
    let mut differing = 0;
    for (client, vip) in clients(1..100) {
        let before = node.lb.stateless();
        let [first, second] =
            [SYN, ACK].map(|flags| node.backend(tcp().from(&*client).to(vip).tcp_flags(flags)));
        if node.lb.stateless() == before + 2 {
            assert_eq!(first, second);
            differing += usize::from(first.to_string() == BACKENDS[2]);
        }
    }
    assert!(differing > 10, "{differing}");
}

#[test]
fn a_backend_of_the_reference_table_that_was_removed_gets_nothing() {
    let mut node = Node::new();
    node.refer_to_own();
    for service in ["web", "web6", "turns"] {
        let name = TargetName::new(service, BACKENDS[2].parse().unwrap());
        node.lb.standing.removed.insert(name, Removal::Rebalance);
    }
    node.lb.reload();
    node.await_marked();
    for (client, vip) in clients(1..100) {
        for flags in [ACK, SYN] {
            let packet = tcp().from(&*client).to(vip).tcp_flags(flags);
            assert_ne!(node.backend(packet).to_string(), BACKENDS[2]);
        }
    }
}

/// The reference table doesn't move while they may be alive.
#[test]
fn connections_that_are_evicted_for_others_are_counted() {
    let mut node = Node::of_size(64, 4096);
    node.refer_to_own();
    for port in 4000..4060 {
        node.open(&format!("198.51.100.1:{port}"), WEB);
    }
    node.changes();
    assert_eq!(node.exceptions.evicted_count(), 0);
    for port in 4060..4400 {
        node.open(&format!("198.51.100.1:{port}"), WEB);
    }
    node.changes();
    let evicted = node.exceptions.evicted_count();
    let lost = evicted + node.lb.stateless();
    assert!(evicted > 0 && lost >= 400 - 64, "{evicted} of {lost}");
}
