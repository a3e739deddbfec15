//! Nodes that can't reach each other.

use super::super::model::{ESTABLISHED_MS, OPENING_MS, Packet, backend};
use super::{CLIENTS, Cluster, DRAINED, WALK_MS};

#[test]
fn of_all_connections_only_an_exception_that_began_in_a_partition_is_unknown_across() {
    let mut cluster = Cluster::new(2);
    cluster.adopt(0, DRAINED);
    let ([before, during], other) = *CLIENTS;
    let of_before = cluster.open(0, before);
    cluster.settle();
    cluster.link([0, 1]).is_parted = true;
    cluster.pass(10);
    let [of_during, of_other] = [during, other].map(|client| cluster.open(0, client));
    cluster.pass(1_000);
    assert_ne!(of_during, backend(0));
    for (client, its) in [(before, of_before), (during, backend(0)), (other, of_other)] {
        assert_eq!(cluster.send(1, client, Packet::Data), its);
    }
    cluster.link([0, 1]).is_parted = false;
    cluster.pass(200);
    cluster.settle();
    for (client, its) in [(before, of_before), (during, of_during), (other, of_other)] {
        for node in [1, 0] {
            assert_eq!(cluster.send(node, client, Packet::Data), its);
        }
    }
}

#[test]
fn an_exception_that_was_established_in_a_partition_lasts_across_like_an_opening_one() {
    for (parted_ms, is_kept) in [(OPENING_MS - 250, true), (OPENING_MS + 250, false)] {
        let mut cluster = Cluster::new(2);
        cluster.adopt(0, DRAINED);
        let (client, its) = cluster.begin_exception();
        cluster.settle();
        cluster.link([0, 1]).is_parted = true;
        assert_eq!(cluster.send(0, client, Packet::Data), its);
        cluster.sleep(parted_ms);
        let expected = if is_kept { its } else { backend(0) };
        assert_eq!(cluster.send(1, client, Packet::Data), expected);
    }
}

/// The other side hears of no packets that come meanwhile.
#[test]
fn an_exception_in_use_is_known_across_a_partition_for_two_thirds_of_its_idle_timeout() {
    for (parted_ms, is_kept) in
        [(ESTABLISHED_MS * 2 / 3 - WALK_MS, true), (ESTABLISHED_MS * 3 / 4, false)]
    {
        let (mut cluster, client, its) = Cluster::with_due_exception();
        cluster.link([0, 1]).is_parted = true;
        for _ in 0..20 {
            cluster.sleep(parted_ms / 20);
            assert_eq!(cluster.send(0, client, Packet::Data), its);
        }
        let expected = if is_kept { its } else { backend(0) };
        assert_eq!(cluster.send(1, client, Packet::Data), expected);
        cluster.link([0, 1]).is_parted = false;
        cluster.pass(200);
        cluster.settle();
        assert_eq!(cluster.send(1, client, Packet::Data), its);
    }
}
