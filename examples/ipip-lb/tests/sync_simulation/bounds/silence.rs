//! Packets that peers have not heard of yet, or don't hear of.

use super::super::model::{ESTABLISHED_MS, Packet, backend};
use super::{Cluster, DRAINED, WALK_MS};

#[test]
fn after_the_loss_of_its_node_an_exception_may_be_silent_for_two_thirds_of_its_idle_timeout() {
    for (silent_ms, is_kept) in
        [(ESTABLISHED_MS * 2 / 3 - WALK_MS, true), (ESTABLISHED_MS * 3 / 4, false)]
    {
        let (mut cluster, client, its) = Cluster::with_due_exception();
        cluster.kill(0);
        cluster.sleep(silent_ms);
        let expected = if is_kept { its } else { backend(0) };
        assert_eq!(cluster.send(1, client, Packet::Data), expected);
    }
}

/// The first node gets a packet when the others are about to forget the connection. It is killed, or the
/// router changes its way, `after_ms` later.
fn goes_on_after_a_silence(after_ms: u64, is_killed: bool) -> bool {
    let mut cluster = Cluster::new(2);
    cluster.adopt(0, DRAINED);
    let (client, its) = cluster.open_exception();
    cluster.settle();
    cluster.sleep(ESTABLISHED_MS - 500);
    assert_eq!(cluster.send(0, client, Packet::Data), its);
    cluster.sleep(after_ms);
    if is_killed {
        cluster.kill(0);
        cluster.sleep(1_000);
    }
    cluster.send(1, client, Packet::Data) == its
}

#[test]
fn a_packet_after_a_long_silence_is_unknown_to_other_nodes_until_the_next_walk() {
    for is_killed in [false, true] {
        assert!(!goes_on_after_a_silence(1_000, is_killed));
        assert!(goes_on_after_a_silence(WALK_MS + 250, is_killed));
    }
}

#[test]
fn answers_keep_an_exception_only_where_they_come_by() {
    let mut cluster = Cluster::new(2);
    cluster.adopt(0, DRAINED);
    let (client, its) = cluster.open_exception();
    for _ in 0..ESTABLISHED_MS / 100_000 + 1 {
        cluster.sleep(100_000);
        cluster.node(1).workers.answer(client, Packet::Data, its);
    }
    cluster.settle();
    assert_eq!(cluster.send(1, client, Packet::Data), its);
    assert_eq!(cluster.send(0, client, Packet::Data), backend(0));
}
