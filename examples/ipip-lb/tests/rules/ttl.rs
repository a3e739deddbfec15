//! Packets with an expired TTL, and the errors about them.

use super::expected::to_client;
use super::{PAIRS, Pair, V4_IN_V4, four};
use crate::deployed::{Running, assert_dropped, in_all, in_both};
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
                    let sent = lb.one(frame.clone());
                    assert!(sent.to_client);
                    assert_eq!(sent.frame, expired(&frame, pair), "{pair:?}");
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
        let sent = lb.one(frame.clone());
        assert_eq!(sent.frame[12..18], frame[12..18]);
        assert_eq!(sent.frame[18..], expired(&V4_IN_V4.syn().ttl(1).build(), V4_IN_V4)[14..]);
    });
}

#[test]
fn errors_later_fragments_and_groups_are_not_answered() {
    let reply = |pair: Pair| pair.reply(udp()).payload([0; 40]).build();
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            lb.none(time_exceeded(&reply(pair)).ttl(1));
            lb.none(too_big(&reply(pair), 1400).ttl(1));
            // A sender that is not a single host.
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
    // Two or three fragments: one of them is answered.
    assert_dropped(&report, &[("ttl_expired", 4 * 4), ("martian_source", 4 * 3)]);
    assert_eq!(report.created, 4);
}

/// Packets of this kind from many clients: one from each of these hosts.
fn of(packet: &PacketBuilder, hosts: impl IntoIterator<Item = [u8; 4]>) -> Vec<Vec<u8>> {
    let from = |host: [u8; 4]| packet.clone().from(format!("{}:9", std::net::Ipv4Addr::from(host)));
    hosts.into_iter().map(|host| from(host).build()).collect()
}

/// `each` hosts of each of `networks` networks.
fn hosts(networks: u16, each: u8) -> impl Iterator<Item = [u8; 4]> {
    (0..networks).flat_map(move |network| {
        let [high, low] = network.to_be_bytes();
        (1..=each).map(move |host| [100, 64 + high, low, host])
    })
}

fn late() -> PacketBuilder {
    V4_IN_V4.request(udp()).ttl(1)
}

fn long() -> PacketBuilder {
    V4_IN_V4.request(udp()).payload([0; 1460]).dont_fragment()
}

/// Number of these that were answered; the others were dropped.
fn answered(lb: &mut Running<'_>, frames: &[Vec<u8>]) -> usize {
    let sent = lb.feed(frames);
    assert!(sent.iter().all(|it| it.to_client));
    sent.len()
}

#[test]
fn a_worker_answers_a_thousand_times_a_second_with_each_kind_of_error_and_no_more() {
    let (_, [report, _]) = in_both(&four(""), 1, |lb| {
        // Each kind has its own thousand.
        assert_eq!(answered(lb, &of(&late(), hosts(110, 10))), 1000);
        assert_eq!(answered(lb, &of(&long(), hosts(110, 10))), 1000);
        lb.advance(Duration::from_millis(999));
        assert_eq!(answered(lb, &of(&late(), hosts(1, 5))), 0);
        lb.advance(Duration::from_millis(1));
        assert_eq!(answered(lb, &of(&long(), hosts(110, 10))), 1000);
        // Another second may begin later.
        lb.advance(Duration::from_secs(10));
        assert_eq!(answered(lb, &of(&late(), hosts(1, 3))), 3);
    });
    assert_dropped(&report, &[("ttl_expired", 1108), ("too_big", 2200)]);
    assert_eq!(report.created, 3003);
}

#[test]
fn a_hundred_of_each_kind_go_to_one_network() {
    let (_, [report, _]) = in_both(&four(""), 1, |lb| {
        for packet in [late(), long()] {
            assert_eq!(answered(lb, &of(&packet, hosts(1, 250))), 100);
            assert_eq!(answered(lb, &of(&packet, hosts(2, 250))), 100);
        }
        let v6 = |network: u16, host: u16| {
            let from = format!("[2001:db8:c:{network:x}::{host:x}]:9");
            PAIRS[2].request(udp()).from(from).ttl(1).build()
        };
        let frames = |network| (1..=250).map(|host| v6(network, host)).collect::<Vec<_>>();
        assert_eq!((answered(lb, &frames(1)), answered(lb, &frames(2))), (100, 100));
        lb.advance(Duration::from_secs(1));
        assert_eq!(answered(lb, &frames(1)), 100);
    });
    assert_dropped(&report, &[("ttl_expired", 1500), ("too_big", 750)]);
}

/// 1,100 packets a second with an expired TTL, and 1,100 of one network that are too big, take
/// nothing from the budget of errors that show clients the path's MTU.
#[test]
fn no_flood_keeps_a_client_from_learning_the_paths_mtu() {
    let (_, [report, _]) = in_both(&four(""), 1, |lb| {
        let mut learned = 0;
        for _ in 0..5 {
            let attack: Vec<_> =
                (0..1100_u16).map(|it| [198, 51, 100, 1 + (it % 250) as u8]).collect();
            lb.feed(&of(&late(), attack.clone()));
            lb.feed(&of(&long(), attack));
            for _ in 0..20 {
                let sent = lb.feed(&of(&long(), [[192, 168, 7, 7]]));
                // Destination unreachable, fragmentation needed.
                learned += sent.iter().filter(|it| it.frame[34..36] == [3, 4]).count();
                lb.advance(Duration::from_millis(50));
            }
        }
        assert_eq!(learned, 100);
    });
    assert_eq!((report.dropped["ttl_expired"], report.dropped["too_big"]), (5500, 5600));
}

#[test]
fn each_worker_answers_as_much() {
    let (_, [report, _]) = in_both(&four(""), 2, |lb| {
        assert_eq!(answered(lb, &of(&late(), hosts(100, 50))), 2000);
    });
    assert_eq!((report.dropped["ttl_expired"], report.created), (5000, 2000));
}
