//! Connections without room.

use super::super::model::{ESTABLISHED_MS, Packet, backend};
use super::{CLIENTS, Cluster, DRAINED};
use hotloop_agreement::barrier::Step;

/// Clients other than [`CLIENTS`], more than a worker enters per second.
const OTHERS: std::ops::Range<u32> = 1_000..1_010;

/// How long a move of the reference table is followed in a step, in milliseconds.
const STEP_MS: u64 = 100;

#[test]
fn the_reference_table_waits_for_a_connection_without_room_until_its_node_has_marked_the_move() {
    let mut kept_count = 0;
    for step_count in 0.. {
        let mut cluster = about_to_move();
        (0..step_count).for_each(|_| follow_move(&mut cluster));
        if !cluster.node(0).holds_table() {
            break;
        }
        let client = begin_without_room(&mut cluster, 0);
        cluster.pass_until(cluster.now_ms + ESTABLISHED_MS / 2);
        assert_eq!(cluster.send(1, client, Packet::Data), backend(0), "after {step_count} steps");
        kept_count += 1;
    }
    assert!(kept_count > 20, "{kept_count}");
}

/// The second node has marked the move, and the first one still waits.
#[test]
fn a_connection_without_room_on_a_node_that_has_marked_a_move_goes_by_the_next_table() {
    let mut cluster = about_to_move();
    while cluster.node(1).agreement.phase().step != Step::Marked {
        follow_move(&mut cluster);
    }
    let client = begin_without_room(&mut cluster, 1);
    cluster.pass_until(cluster.now_ms + ESTABLISHED_MS / 2);
    assert_ne!(cluster.send(1, client, Packet::Data), backend(0));
}

/// Nodes that are about to agree on a move of the reference table.
fn about_to_move() -> Cluster {
    let mut cluster = Cluster::crowded(2);
    (0..2).for_each(|node| cluster.adopt(node, DRAINED));
    cluster.link([0, 1]).delay_ms = 500;
    cluster
}

/// Follows the move for a step, while the first node has a claim that must arrive before it marks the move.
fn follow_move(cluster: &mut Cluster) {
    cluster.send(0, CLIENTS.0[1], Packet::Syn);
    cluster.pass(STEP_MS);
}

/// Begins a connection without room by a node. It goes by the reference table, whatever the node's own.
/// Returns its client.
fn begin_without_room(cluster: &mut Cluster, node: usize) -> u32 {
    for other in OTHERS {
        cluster.node(node).workers.packet(other, Packet::Syn);
    }
    let client = CLIENTS.0[0];
    assert_eq!(cluster.send(node, client, Packet::Syn), backend(0));
    assert!(cluster.known(node, client).is_none());
    client
}
