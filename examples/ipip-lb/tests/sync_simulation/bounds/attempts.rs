//! SYNs of a port at two nodes: of one connection, or of two.

use super::super::Setup;
use super::super::model::{BACKENDS, Packet, backend, is_udp};
use super::super::worker::Workers;
use super::{CLIENTS, Cluster, DRAINED, FIRST, without};
use std::net::IpAddr;

/// The connection goes on by the second node, with the first one's backend if the claim has arrived.
#[test]
fn a_syn_at_two_nodes_with_different_tables_gets_two_backends_until_the_claim_has_arrived() {
    for has_arrived in [false, true] {
        let mut cluster = Cluster::new(2);
        cluster.adopt(0, DRAINED);
        let (client, its) = cluster.begin_exception();
        if has_arrived {
            cluster.settle();
        }
        let expected = if has_arrived { its } else { backend(0) };
        assert_eq!(cluster.send(1, client, Packet::Syn), expected);
        assert_eq!(cluster.send(1, client, Packet::Data), expected);
        cluster.settle();
        for node in [0, 1] {
            assert_eq!(cluster.send(node, client, Packet::Data), expected);
        }
    }
}

#[test]
fn a_syn_at_two_nodes_loses_nothing_if_the_connection_goes_on_by_the_first() {
    let mut cluster = Cluster::new(2);
    cluster.adopt(0, DRAINED);
    let (client, its) = cluster.begin_exception();
    assert_eq!(cluster.send(1, client, Packet::Syn), backend(0));
    assert_eq!(cluster.send(0, client, Packet::Data), its);
    cluster.settle();
    for node in [1, 0] {
        assert_eq!(cluster.send(node, client, Packet::Data), its);
    }
}

#[test]
fn a_syn_at_two_nodes_with_one_table_gets_one_backend() {
    for configuration in [FIRST, DRAINED] {
        let mut cluster = Cluster::new(2);
        for node in [0, 1] {
            cluster.node(node).adopt(configuration);
        }
        let client = CLIENTS.0[0];
        let its = cluster.send(0, client, Packet::Syn);
        assert_eq!(cluster.send(1, client, Packet::Syn), its);
        assert_eq!(cluster.send(1, client, Packet::Data), its);
        cluster.settle();
        assert_eq!(cluster.send(0, client, Packet::Data), its);
    }
}

/// A connection is where the reference table has it, on this backend, so another node doesn't know it. There,
/// a SYN comes `after_ms` later, where that backend is drained, `silent_ms` after the connection's last packet.
/// Returns whether the nodes send the next packets to the SYN's backend.
fn begins_another(number: u8, after_ms: u64, silent_ms: u64, is_end_seen: bool) -> bool {
    let mut cluster = Cluster::new(2);
    let its = backend(number);
    let client = client_on(its);
    cluster.adopt(1, without(number));
    assert_eq!(cluster.open(0, client), its);
    cluster.pass(after_ms - silent_ms);
    let last = if is_end_seen { Packet::Fin } else { Packet::Data };
    cluster.send(0, client, last);
    cluster.pass(silent_ms);
    let second = cluster.send(1, client, Packet::Syn);
    assert_ne!(second, its);
    cluster.settle();
    let backends = [0, 1].map(|node| cluster.send(node, client, Packet::Data));
    assert!([[its; 2], [second; 2]].contains(&backends), "{backends:?}");
    backends[0] == second
}

/// A client of TCP that the first configuration has on this backend.
fn client_on(its: IpAddr) -> u32 {
    let mut workers = Workers::new(Setup::PLAIN, FIRST, 0);
    let mut clients = (0..100).filter(|it| !is_udp(*it));
    clients.find(|it| workers.packet(*it, Packet::Syn) == Some(its)).expect("one of a hundred")
}

/// It may be a late one, one of the next connection, or a forged one. Of the two backends, either may be the
/// lower.
#[test]
fn a_syn_by_another_node_is_of_the_same_attempt_soon_after_the_first_one_and_the_last_packet() {
    for number in [0, BACKENDS - 1] {
        for (after_ms, silent_ms, begins) in
            [(3_950, 10, false), (4_050, 10, true), (3_950, 450, false), (3_950, 550, true)]
        {
            let has_begun = begins_another(number, after_ms, silent_ms, false);
            assert_eq!(has_begun, begins, "{number} {after_ms} {silent_ms}");
        }
        assert!(begins_another(number, 100, 10, true), "the first node has seen the end");
    }
}
