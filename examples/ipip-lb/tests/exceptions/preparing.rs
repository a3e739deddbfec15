//! A balancer's changes for other nodes before a change of the configuration is in force.

use super::node::{self, BACKENDS, Node, WEB, WEB6, claims, ends};
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::services::{Removal, TargetName};
use std::collections::HashSet;

/// Opens connections of these clients, and returns those on the backend.
fn open(node: &mut Node, clients: std::ops::Range<u32>, backend: &str) -> HashSet<FlowKey> {
    let mut keys = HashSet::new();
    for it in clients {
        for (client, vip) in
            [(format!("198.51.100.{it}:4000"), WEB), (format!("[2001:db8:c::{it:x}]:4000"), WEB6)]
        {
            if node.open(&client, vip).to_string() == backend {
                keys.insert(node::key(&client, vip, 6));
            }
        }
    }
    assert!(!keys.is_empty());
    keys
}

fn claimed(changes: &[hotloop_balancer::exceptions::Change]) -> HashSet<FlowKey> {
    claims(changes).iter().map(|it| it.key).collect()
}

#[test]
fn what_a_change_will_place_elsewhere_is_claimed_before_it_is_in_force() {
    let mut node = Node::new();
    let mut known = open(&mut node, 1..100, BACKENDS[2]);
    assert!(node.changes().is_empty());
    node.plan_weight(BACKENDS[2], 0);
    node.prepare();
    let said = node.changes();
    assert_eq!((claimed(&said), ends(&said)), (known.clone(), vec![]));
    assert!(claims(&said).iter().all(|it| it.backend.to_string() == BACKENDS[2]));

    // The table in use still decides; new connections are compared with both.
    let begun = open(&mut node, 100..200, BACKENDS[2]);
    let said = node.changes();
    assert_eq!((claimed(&said), ends(&said)), (begun.clone(), vec![]));
    known.extend(begun);

    // Once it is in force, nothing is new.
    node.lb.reload();
    node.await_marked();
    assert!(node.changes().is_empty());
    assert_eq!(claimed(&node.snapshot()), known);
    let client = "198.51.100.250:4000";
    assert_ne!(node.open(client, WEB).to_string(), BACKENDS[2]);
    assert!(node.changes().is_empty());
}

#[test]
fn what_is_discarded_leaves_no_exception() {
    let mut node = Node::new();
    let known = open(&mut node, 1..100, BACKENDS[2]);
    node.plan_weight(BACKENDS[2], 0);
    node.prepare();
    assert_eq!(claimed(&node.changes()), known);
    node.lb.go_beside(None);
    node.await_marked();
    let said = node.changes();
    assert_eq!((ends(&said).into_iter().collect(), claims(&said)), (known, vec![]));
    assert!(node.snapshot().is_empty());
    // New connections are now compared only with the table in use.
    open(&mut node, 100..200, BACKENDS[2]);
    assert!(node.changes().is_empty());
}

/// With the change in force, peers may still use the previous table.
#[test]
fn what_begins_is_claimed_as_long_as_peers_may_go_by_the_table_before() {
    let mut node = Node::new();
    node.weigh(BACKENDS[2], 0);
    let drained = node.lb.built();
    node.changes();
    node.weigh(BACKENDS[2], 1);
    node.changes();
    node.lb.go_beside(Some(drained));
    node.await_marked();
    assert!(node.changes().is_empty());
    let begun = open(&mut node, 100..200, BACKENDS[2]);
    let said = node.changes();
    assert_eq!(claimed(&said), begun);
    node.lb.go_beside(None);
    node.await_marked();
    assert_eq!(ends(&node.changes()).len(), begun.len());
}

/// Their connections go elsewhere whether or not other nodes know them.
#[test]
fn connections_of_a_backend_that_is_to_be_removed_are_no_exceptions() {
    let mut node = Node::new();
    let known = open(&mut node, 1..100, BACKENDS[2]);
    for service in ["web", "web6", "turns"] {
        let name = TargetName::new(service, BACKENDS[2].parse().unwrap());
        node.lb.standing.removed.insert(name, Removal::Rebalance);
    }
    node.prepare();
    let said = node.changes();
    assert!(claimed(&said).is_disjoint(&known), "{said:?}");
    // Its slot is unchanged, as if the removal had never been planned.
    node.lb.standing.removed.clear();
    node.lb.reload();
    node.await_marked();
    assert_eq!(open(&mut node, 1..100, BACKENDS[2]), known);
    assert!(node.snapshot().is_empty());
}
