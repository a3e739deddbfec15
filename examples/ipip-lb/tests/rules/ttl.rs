//! Packets whose TTL is spent, and the errors that say so.

use crate::deployed::{Left, assert_dropped, in_all, in_both};
use crate::expected::to_client;
use crate::{PAIRS, Pair, V4_IN_V4, four};
use hotloop::packet::build::{PacketBuilder, tcp, time_exceeded, too_big, udp};
use std::time::Duration;

/// The error about a frame that never left the balancer.
fn expired(frame: &[u8], pair: Pair) -> Vec<u8> {
    let error = time_exceeded(frame).from(pair.vip).tos(0xC0).identification(0).dont_fragment();
    to_client(&error.build())
}

#[test]
fn a_ttl_of_1_or_0_is_dropped_and_answered_by_time_exceeded_from_the_vip() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            for ttl in [0, 1] {
                for packet in [tcp(), udp().payload([1; 60]), udp().payload([5; 1300])] {
                    let frame = pair.request(packet).ttl(ttl).build();
                    let left = lb.one(frame.clone());
                    assert!(left.to_client);
                    assert_eq!(left.frame, expired(&frame, pair), "{pair:?}");
                }
            }
        }
    });
    assert_dropped(&report, &[("ttl_expired", 24)]);
    assert_eq!(report.created, 24);
}

#[test]
fn the_answers_vlan_tags_are_the_packets() {
    in_all(&four(""), |lb| {
        let frame = V4_IN_V4.syn().ttl(1).vlan(77).build();
        let left = lb.one(frame.clone());
        assert_eq!(left.frame[12..18], frame[12..18]);
        assert_eq!(left.frame[18..], expired(&V4_IN_V4.syn().ttl(1).build(), V4_IN_V4)[14..]);
    });
}

#[test]
fn errors_later_fragments_and_groups_are_not_answered() {
    let reply = |pair: Pair| pair.reply(udp()).payload([0; 40]).build();
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            lb.none(time_exceeded(&reply(pair)).ttl(1));
            lb.none(too_big(&reply(pair), 1400).ttl(1));
            // A sender that is no single host.
            let groups = match pair.is_v4() {
                true => ["224.0.0.5:1", "0.0.0.0:1", "255.255.255.255:1"],
                false => ["[ff02::5]:1", "[::]:1", "[ff0e::1]:1"],
            };
            for group in groups {
                lb.none(pair.request(udp()).from(group).ttl(1));
            }
            // The first fragment is answered, the later one is not.
            let fragments = pair.request(udp()).payload([0; 100]).ttl(1).build_fragments(100);
            assert!(lb.one(fragments[0].clone()).to_client);
            lb.none(fragments[1].clone());
        }
    });
    // Two or three fragments, of which one is answered.
    let expected = 4 * 7;
    assert_dropped(&report, &[("ttl_expired", expected)]);
    assert_eq!(report.created, 4);
}

#[test]
fn a_worker_answers_a_thousand_times_a_second_and_no_more() {
    let frames = |packet: PacketBuilder, count: u16| {
        let one = |it: u16| packet.clone().from(format!("198.51.100.7:{}", 1 + it)).build();
        (0..count).map(one).collect::<Vec<_>>()
    };
    let late = V4_IN_V4.request(udp()).ttl(1);
    let long = V4_IN_V4.request(udp()).payload([0; 1460]).dont_fragment();
    let is_answer = |left: &&Left| left.to_client;
    let (_, [report, _]) = in_both(&four(""), 1, |lb| {
        // Both kinds of errors share what there is.
        let mut left = lb.feed(&frames(late.clone(), 700));
        left.extend(lb.feed(&frames(long.clone(), 400)));
        assert_eq!((left.len(), left.iter().filter(is_answer).count()), (1000, 1000));
        lb.advance(Duration::from_millis(999));
        assert_eq!(lb.feed(&frames(late.clone(), 5)), []);
        lb.advance(Duration::from_millis(1));
        assert_eq!(lb.feed(&frames(long.clone(), 1005)).len(), 1000);
        // Another second may begin later.
        lb.advance(Duration::from_secs(10));
        assert_eq!(lb.feed(&frames(late.clone(), 3)).len(), 3);
    });
    assert_dropped(&report, &[("ttl_expired", 708), ("too_big", 1405)]);
    assert_eq!(report.created, 2003);
}

#[test]
fn each_worker_answers_as_much() {
    let (_, [report, _]) = in_both(&four(""), 2, |lb| {
        let client = |it: u16| format!("198.51.{}.{}:9", it / 250, it % 250 + 1);
        let frame = |it: u16| V4_IN_V4.request(udp()).from(client(it)).ttl(1).build();
        let left = lb.feed(&(0..5000).map(frame).collect::<Vec<_>>());
        assert_eq!(left.len(), 2000);
    });
    assert_eq!((report.dropped["ttl_expired"], report.created), (5000, 2000));
}
