//! Exceptions whose node is lost.

use super::super::model::{OPENING_MS, Packet, backend};
use super::{CLIENTS, Cluster, DRAINED, LATE_MS};

/// The first `entered_count` of the other nodes have entered its claim.
#[test]
fn an_exception_is_lost_with_its_node_only_if_no_other_has_entered_its_claim() {
    for entered_count in 0..3 {
        let mut cluster = Cluster::new(3);
        cluster.adopt(0, DRAINED);
        for node in entered_count + 1..3 {
            cluster.link([0, node]).delay_ms = LATE_MS;
        }
        let (exception, its) = cluster.open_exception();
        let other = CLIENTS.1;
        let by_reference = cluster.open(0, other);
        cluster.pass(50);
        for node in [1, 2] {
            assert_eq!(cluster.known(node, exception).is_some(), node <= entered_count);
            assert!(cluster.known(node, other).is_none());
        }
        cluster.kill(0);
        cluster.settle();
        let expected = if entered_count == 0 { backend(0) } else { its };
        for node in [1, 2] {
            assert_eq!(cluster.send(node, exception, Packet::Data), expected);
            assert_eq!(cluster.send(node, other, Packet::Data), by_reference);
        }
    }
}

#[test]
fn until_the_node_that_has_its_claim_repeats_it_an_exception_goes_by_the_reference_table() {
    let mut cluster = Cluster::new(3);
    cluster.adopt(0, DRAINED);
    cluster.link([0, 2]).delay_ms = LATE_MS;
    let (client, its) = cluster.open_exception();
    cluster.pass(50);
    cluster.kill(0);
    assert_eq!(cluster.send(2, client, Packet::Data), backend(0));
    cluster.settle();
    assert_eq!(cluster.send(2, client, Packet::Data), its);
}

#[test]
fn an_exception_of_which_others_know_only_the_syn_lasts_like_an_opening_connection() {
    for (silent_ms, is_kept) in [(OPENING_MS - 250, true), (OPENING_MS + 250, false)] {
        let mut cluster = Cluster::new(2);
        cluster.adopt(0, DRAINED);
        let (client, its) = cluster.begin_exception();
        cluster.settle();
        cluster.send(0, client, Packet::Data);
        cluster.kill(0);
        cluster.sleep(silent_ms);
        let expected = if is_kept { its } else { backend(0) };
        assert_eq!(cluster.send(1, client, Packet::Data), expected);
    }
}

/// The next connection is where the reference table has it, but peers know the one before.
#[test]
fn a_connection_in_the_place_of_an_exception_is_lost_with_its_node_like_one() {
    for is_entered in [false, true] {
        let (mut cluster, client, before) = Cluster::with_port_used_again(is_entered);
        cluster.kill(0);
        cluster.settle();
        let expected = if is_entered { backend(0) } else { before };
        assert_eq!(cluster.send(1, client, Packet::Data), expected);
    }
}

/// Until its backend has answered, a connection may leave a full table. Then its own node sends it by the
/// reference table, although others know it.
#[test]
fn only_an_exception_without_an_answer_leaves_a_full_table() {
    for is_answered in [false, true] {
        let mut cluster = Cluster::new(2);
        cluster.adopt(0, DRAINED);
        let (client, its) = cluster.open_exception();
        if is_answered {
            cluster.node(0).workers.answer(client, Packet::Data, its);
        }
        cluster.settle();
        cluster.fill_table(0);
        let expected = if is_answered { its } else { backend(0) };
        assert_eq!(cluster.send(0, client, Packet::Data), expected);
        assert_eq!(cluster.send(1, client, Packet::Data), its);
    }
}
