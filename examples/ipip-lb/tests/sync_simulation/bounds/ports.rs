//! Ports that are used again while a node takes the connection before for the present one.

use super::super::model::{CLOSING_MS, ESTABLISHED_MS, OPENING_MS, Packet, backend};
use super::super::node::SETTLE_MS;
use super::{CLIENTS, Cluster, DRAINED, FIRST, WALK_MS};

/// The next connection begins where the backend of the one before is drained.
#[test]
fn a_port_used_again_goes_to_the_backend_before_by_a_node_that_has_not_heard_of_it() {
    for has_heard in [false, true] {
        let (mut cluster, client, before) = Cluster::with_port_used_again(has_heard);
        let expected = if has_heard { backend(0) } else { before };
        assert_eq!(cluster.send(1, client, Packet::Data), expected);
    }
}

/// An exception gets its last packet by the second node, `last_ms` after the first node has claimed it.
/// The next connection begins by the first node after a silence, and is where the reference table has
/// it. Returns whether the second node sends it there, too.
fn begins_after_silence(last_ms: u64, silent_ms: u64) -> bool {
    let mut cluster = Cluster::new(2);
    cluster.adopt(0, DRAINED);
    let (client, before) = cluster.open_exception();
    cluster.adopt(0, FIRST);
    cluster.sleep(last_ms);
    assert_eq!(cluster.send(1, client, Packet::Data), before);
    cluster.sleep(silent_ms);
    let next = cluster.open(0, client);
    cluster.send(1, client, Packet::Data) == next
}

/// The table is looked through at the end of each 24th of the idle timeout at the earliest.
#[test]
fn a_port_used_again_without_an_end_in_the_last_24th_of_the_idle_timeout_may_find_the_one_before() {
    assert!(begins_after_silence(10_000, ESTABLISHED_MS * 23 / 24));
    assert!(!begins_after_silence(10_000, ESTABLISHED_MS - 1_000));
    assert!(begins_after_silence(10_000, ESTABLISHED_MS + 1_000));
}

#[test]
fn a_port_used_again_after_a_packet_that_ends_a_silence_may_find_the_one_before_until_the_next_walk()
 {
    assert!(!begins_after_silence(ESTABLISHED_MS - 500, 1_000));
    assert!(begins_after_silence(ESTABLISHED_MS - 500, WALK_MS + 250));
}

#[test]
fn a_port_used_again_after_a_late_packet_of_the_end_may_find_the_one_before_until_the_next_walk() {
    for (after_ms, is_right) in [(1_000, false), (WALK_MS + 250, true)] {
        let mut cluster = Cluster::new(2);
        cluster.adopt(0, DRAINED);
        let (client, before) = cluster.open_exception();
        cluster.adopt(0, FIRST);
        cluster.send(0, client, Packet::Fin);
        cluster.settle();
        cluster.sleep(CLOSING_MS - 500);
        assert_eq!(cluster.send(1, client, Packet::Fin), before);
        cluster.sleep(after_ms);
        let next = cluster.open(0, client);
        assert_eq!(cluster.send(1, client, Packet::Data) == next, is_right);
    }
}

/// The first node's clock goes twice as fast as the second one's.
#[test]
fn a_port_used_again_may_find_the_one_before_where_clocks_are_slower_and_its_end_is_remembered() {
    const RATES: [u64; 2] = [1_500, 750];
    let [forgotten_ms, remembered_ms] = RATES.map(|rate| CLOSING_MS * 1_000 / rate);
    for (after_ms, is_right) in [
        (forgotten_ms - 1_000, true),
        (forgotten_ms + 1_000, false),
        (remembered_ms - 1_000, false),
        (remembered_ms + 1_000, true),
    ] {
        let mut cluster = Cluster::new(2);
        RATES
            .into_iter()
            .enumerate()
            .for_each(|(node, rate)| cluster.node(node).clock.set_rate(rate));
        cluster.adopt(0, DRAINED);
        let (client, _) = cluster.open_exception();
        cluster.adopt(0, FIRST);
        cluster.sleep(5_000);
        cluster.send(0, client, Packet::Fin);
        cluster.settle();
        cluster.sleep(after_ms);
        let next = cluster.open(0, client);
        cluster.settle();
        assert_eq!(cluster.send(1, client, Packet::Data) == next, is_right, "{after_ms}");
    }
}

/// The first node's table is full, and the end of the exception leaves it.
#[test]
fn a_port_used_again_may_find_the_one_before_where_its_end_is_remembered_for_longer_than_in_a_full_table()
 {
    for (after_ms, is_right) in [(CLOSING_MS - 1_000, false), (CLOSING_MS + 1_000, true)] {
        let mut cluster = Cluster::new(2);
        cluster.adopt(0, DRAINED);
        let (client, _) = cluster.open_exception();
        cluster.adopt(0, FIRST);
        cluster.send(0, client, Packet::Fin);
        let ended_ms = cluster.now_ms;
        cluster.settle();
        let takeover = cluster.begin_takeover(0);
        cluster.fill_table(0);
        assert!(cluster.known(0, client).is_none());
        cluster.pass_until(ended_ms + after_ms);
        let next = cluster.open(0, client);
        cluster.settle();
        assert_eq!(cluster.send(1, client, Packet::Data) == next, is_right, "{after_ms}");
        cluster.end_takeover(0, takeover);
        assert_eq!(cluster.send(0, client, Packet::Data) == next, is_right, "{after_ms}");
    }
}

/// A connection ends at the second node. `after_ms` later, the next one begins at the first node, and sends a
/// packet by the third. Once the first node has forgotten it, the reference table moves, so that the nodes
/// claim both. Returns whether the third node keeps the next one.
fn outlasts_end(after_ms: u64, rates: [u64; 3]) -> bool {
    let mut cluster = Cluster::new(3);
    for (node, rate) in rates.into_iter().enumerate() {
        cluster.node(node).clock.set_rate(rate);
    }
    let client = CLIENTS.0[0];
    let its = cluster.open(1, client);
    cluster.send(1, client, Packet::Fin);
    cluster.pass(after_ms);
    assert_eq!(cluster.send(0, client, Packet::Syn), its);
    assert_eq!(cluster.send(2, client, Packet::Data), its);
    cluster.pass_until(cluster.now_ms + OPENING_MS * 1_000 / rates[0] + 1_000);
    assert!(cluster.known(0, client).is_none());
    (0..3).for_each(|node| cluster.adopt(node, DRAINED));
    cluster.pass(2 * SETTLE_MS);
    cluster.sleep(2 * CLOSING_MS);
    assert_ne!(cluster.send(0, CLIENTS.0[1], Packet::Data), its);
    cluster.send(2, client, Packet::Data) == its
}

#[test]
fn the_end_of_the_connection_before_may_end_one_whose_packets_follow_it_within_half_a_second() {
    const ALIKE: [u64; 3] = [1_000; 3];
    const APART: [u64; 3] = [1_500, 750, 1_500];
    for (after_ms, rates, outlasts) in [
        (400, ALIKE, false),
        (600, ALIKE, true),
        (600, APART, false),
        (CLOSING_MS * 1_000 / 750, APART, true),
    ] {
        assert_eq!(outlasts_end(after_ms, rates), outlasts, "after {after_ms} ms");
    }
}
