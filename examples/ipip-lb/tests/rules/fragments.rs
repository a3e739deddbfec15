//! Fragments of requests.

use super::expected::wrapped;
use super::{PAIRS, Pair, V4_IN_V4, V6_IN_V6, four};
use crate::deployed::sent::backends;
use crate::deployed::{Sent, assert_dropped, in_all, in_both, preamble, service};
use hotloop::packet::build::{PacketBuilder, udp};
use std::time::Duration;

const FOUR: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];

/// Services with backends in turns, so that only the remembered datagram determines the backend.
fn turns() -> String {
    let keys = "scheduler = \"round-robin\"";
    preamble("")
        + &service("v4", "203.0.113.10 udp any", keys, &FOUR)
        + &service("v6", "2001:db8:f::10 udp any", keys, &FOUR)
}

/// A datagram in three fragments.
fn datagram(pair: Pair, port: u16, identification: u16) -> PacketBuilder {
    let datagram = udp().from(pair.client(port)).to(pair.vip(53)).payload([9; 3000]);
    datagram.identification(identification)
}

fn fragments(datagram: PacketBuilder) -> [Vec<u8>; 3] {
    datagram.build_fragments(1400).try_into().expect("three")
}

/// The fragments' offsets in their datagrams, in units of 8 bytes.
fn offsets(sent: &[Sent]) -> Vec<u16> {
    let offset = |it: &Sent| match it.inner() {
        inner if inner[0] >> 4 == 4 => u16::from_be_bytes([inner[6], inner[7]]) & 0x1FFF,
        inner => u16::from_be_bytes([inner[42], inner[43]]) >> 3,
    };
    sent.iter().map(offset).collect()
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

#[test]
fn all_fragments_reach_the_backend_of_their_first_in_whatever_order_on_whatever_queue() {
    let (_, report) = in_all(&turns(), |lb| {
        for pair in [V4_IN_V4, V6_IN_V6] {
            for (number, order) in (1..).zip(ORDERS.iter().cycle().take(60)) {
                let frames = fragments(datagram(pair, number, number));
                let sent = lb.feed_spread(&order.map(|index| frames[index].clone()));
                let went = backends(&sent);
                assert!(went.len() == 3 && went.iter().all(|it| *it == went[0]), "{went:?}");
            }
        }
        assert_eq!(lb.admitted(), 120);
    });
    assert_dropped(&report, &[]);
}

#[test]
fn fragments_leave_wrapped_in_all_four_combinations_and_else_as_they_came() {
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            for ttl in [9, 64] {
                let datagram = datagram(pair, 9, u16::from(ttl));
                let frames = fragments(datagram.clone().ttl(ttl));
                let expected = fragments(datagram.ttl(ttl - 1));
                for (sent, expected) in lb.feed_spread(&frames).iter().zip(&expected) {
                    let mut outer = pair.outer();
                    // Around IPv6 there is DF; else there are the worker's identifications.
                    outer.dont_fragment = !pair.is_v4();
                    if pair.is_v4() && pair.is_in_v4() {
                        let packet = sent.packet();
                        outer.identification = u16::from_be_bytes([packet[4], packet[5]]);
                    }
                    assert_eq!(sent.frame, wrapped(expected, &outer), "{pair:?}");
                }
            }
        }
    });
}

#[test]
fn those_that_came_early_leave_after_their_first_in_the_order_in_which_they_came() {
    let (_, report) = in_all(&turns(), |lb| {
        for pair in [V4_IN_V4, V6_IN_V6] {
            let [first, second, third] = fragments(datagram(pair, 1, 1));
            let [other_first, other_second, other_third] = fragments(datagram(pair, 1, 2));
            assert_eq!(lb.feed_spread(&[third, other_second.clone(), second]), []);
            let sent = lb.feed(&[first]);
            let expected = match pair.is_v4() {
                true => [0, 344, 172],
                false => [0, 338, 169],
            };
            assert_eq!(offsets(&sent), expected);
            // Another datagram's fragments stay until their own first comes.
            assert_eq!(offsets(&lb.feed(&[other_first])), [0, expected[2]]);
            assert_eq!(offsets(&lb.feed(&[other_third])), [expected[1]]);
        }
    });
    assert_dropped(&report, &[]);
}

#[test]
fn datagrams_are_identified_by_both_addresses_protocol_and_identification() {
    let config = preamble("") + &service("all", "203.0.113.0/24 any any", "", &FOUR);
    let (_, report) = in_all(&config, |lb| {
        let [first, ..] = fragments(datagram(V4_IN_V4, 1, 7));
        lb.one(first);
        let later =
            |packet: PacketBuilder| packet.payload([9; 3000]).build_fragments(1400)[1].clone();
        let base = || hotloop::packet::build::protocol(17).identification(7);
        for other in [
            base().from("198.51.100.8").to("203.0.113.10"),
            base().from("198.51.100.7").to("203.0.113.11"),
            base().from("198.51.100.7").to("203.0.113.10").identification(8),
            hotloop::packet::build::protocol(50)
                .identification(7)
                .from("198.51.100.7")
                .to("203.0.113.10"),
        ] {
            lb.none(later(other));
        }
        lb.one(later(base().from("198.51.100.7").to("203.0.113.10")));
    });
    assert_dropped(&report, &[("fragment_orphan", 4)]);
}

#[test]
fn an_orphan_is_dropped_after_a_second() {
    let (_, report) = in_all(&turns(), |lb| {
        for pair in [V4_IN_V4, V6_IN_V6] {
            let [first, second, third] = fragments(datagram(pair, 1, 1));
            lb.none(second.clone());
            lb.advance(Duration::from_millis(999));
            assert_eq!(lb.feed(&[first]).len(), 2);

            let [first, second_again, _] = fragments(datagram(pair, 2, 2));
            lb.none(second_again);
            lb.advance(Duration::from_secs(1));
            // The packet that comes now goes alone.
            assert_eq!(lb.feed(&[first]).len(), 1);
            assert_eq!(lb.feed(&[third]).len(), 1);
        }
    });
    assert_dropped(&report, &[("fragment_orphan", 2)]);
}

#[test]
fn what_waits_at_the_end_of_a_run_is_dropped_as_orphans() {
    let (_, report) = in_all(&turns(), |lb| {
        let [_, second, third] = fragments(datagram(V4_IN_V4, 1, 1));
        assert_eq!(lb.feed_spread(&[second, third]), []);
    });
    assert_dropped(&report, &[("fragment_orphan", 2)]);
}

#[test]
fn a_worker_keeps_the_latest_256_waiting() {
    let (_, [report, _]) = in_both(&turns(), 1, |lb| {
        let later = |number: u16| fragments(datagram(V4_IN_V4, 1, number))[1].clone();
        let first = |number: u16| fragments(datagram(V4_IN_V4, 1, number))[0].clone();
        assert_eq!(lb.feed(&(1..=300).map(later).collect::<Vec<_>>()), []);
        // The last 256 are there; the first 44 made room for them.
        assert_eq!(lb.feed(&(1..=44).map(first).collect::<Vec<_>>()).len(), 44);
        assert_eq!(lb.feed(&(45..=300).map(first).collect::<Vec<_>>()).len(), 2 * 256);
        // There is room again.
        lb.none(later(400));
        assert_eq!(lb.feed(&[first(400)]).len(), 2);
    });
    assert_dropped(&report, &[("fragment_orphan", 44)]);
}

#[test]
fn a_first_that_gets_nowhere_leaves_the_others_waiting_to_the_end_of_their_time() {
    let config = preamble("") + &service("dns", "203.0.113.10 udp 53", "", &[]);
    let (_, report) = in_all(&config, |lb| {
        let [first, second, _] = fragments(datagram(V4_IN_V4, 1, 1));
        lb.none(second);
        lb.none(first.clone());
        // A backend is added, and the first fragment comes again.
        lb.configure(&(preamble("") + &service("dns", "203.0.113.10 udp 53", "", &FOUR[..1])));
        assert_eq!(lb.feed(&[first]).len(), 2);
        let [first, second, third] = fragments(datagram(V4_IN_V4, 1, 2).to("203.0.113.10:54"));
        assert_eq!(lb.feed_spread(&[third, first, second]), []);
        lb.advance(Duration::from_secs(1));
    });
    assert_dropped(&report, &[("no_backend", 1), ("no_service", 1), ("fragment_orphan", 2)]);
}

#[test]
fn a_datagram_is_remembered_for_2_seconds_after_its_first() {
    let (_, report) = in_all(&turns(), |lb| {
        for pair in [V4_IN_V4, V6_IN_V6] {
            let [first, second, third] = fragments(datagram(pair, 1, 1));
            let backend = lb.backend(first);
            // Later fragments don't extend the time.
            for _ in 0..2 {
                lb.advance(Duration::from_secs(1));
                assert_eq!(lb.backend(second.clone()), backend);
            }
            lb.advance(Duration::from_millis(1));
            lb.none(third);
        }
    });
    assert_dropped(&report, &[("fragment_orphan", 2)]);
}

/// First fragments of incomplete datagrams: each number is from this host.
fn flood(host: impl Fn(u16) -> [u8; 4], count: u16) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(move |number| {
        let from = std::net::Ipv4Addr::from(host(number));
        let datagram = udp().from(format!("{from}:{}", 1000 + number)).to(V4_IN_V4.vip(53));
        datagram.payload([1; 40]).identification(number).build_fragments(60).remove(0)
    })
}

#[test]
fn a_worker_remembers_the_latest_4096_datagrams() {
    let (_, [report, _]) = in_both(&turns(), 1, |lb| {
        let of = |number: u16| {
            let datagram = udp().from(V4_IN_V4.client(1)).to(V4_IN_V4.vip(53)).payload([9; 40]);
            datagram.identification(number).build_fragments(60)
        };
        let firsts: Vec<_> = (0..4200).map(|number| of(number)[0].clone()).collect();
        assert_eq!(lb.feed(&firsts).len(), 4200);
        let laters = |from, to| (from..to).map(|it| of(it)[1].clone()).collect::<Vec<_>>();
        assert_eq!(lb.feed(&laters(0, 104)), []);
        assert_eq!(lb.feed(&laters(104, 4200)).len(), 4096);
    });
    assert_dropped(&report, &[("fragment_orphan", 104)]);
}

/// 200 datagrams in two fragments each arrive whole through first fragments of others, one every 7
/// ms for 29 s, and through such a flood at once.
#[test]
fn a_flood_of_first_fragments_loses_no_datagram() {
    let from_two_nets =
        |number: u16| [198, 51, 100 + (number / 250 % 2) as u8, (number % 250) as u8];
    let from_4096_nets = |number: u16| [100, 64 + (number >> 8) as u8, number as u8, 7];
    let hosts: [fn(u16) -> [u8; 4]; 2] = [from_two_nets, from_4096_nets];
    for host in hosts {
        let (_, [report, _]) = in_both(&turns(), 1, |lb| {
            for first in flood(host, 4096) {
                lb.one(first);
                lb.advance(Duration::from_millis(7));
            }
            let honest = |number: u16| {
                let datagram = datagram(Pair { client: "192.168.7.7", ..V4_IN_V4 }, 5000, number);
                <[_; 2]>::try_from(datagram.payload([6; 1972]).build_fragments(1480)).unwrap()
            };
            for number in 0..200 {
                let went = backends(&lb.feed(&honest(number)));
                assert!(went.len() == 2 && went[0] == went[1], "{number}: {went:?}");
            }
            // As many others come between as there is room for.
            for number in 200..203 {
                let [first, second] = honest(number);
                let backend = lb.backend(first);
                assert_eq!(lb.feed(&flood(host, 4095).collect::<Vec<_>>()).len(), 4095);
                assert_eq!(lb.backend(second), backend);
            }
        });
        assert_dropped(&report, &[]);
    }
}

#[test]
fn fragments_of_a_datagram_go_where_its_first_went_though_the_backends_changed() {
    let (_, report) = in_all(&turns(), |lb| {
        let [first, second, third] = fragments(datagram(V4_IN_V4, 1, 1));
        let backend = lb.backend(first);
        lb.weigh("v4", &backend, 0);
        assert_eq!(lb.backend(second), backend);
        // Unless the backend is gone.
        lb.remove("v4", &backend, hotloop_balancer::services::Removal::Rebalance);
        lb.none(third);
    });
    assert_dropped(&report, &[("no_backend", 1)]);
}

#[test]
fn fragments_in_a_tunnel_to_a_service_are_put_together_with_those_in_none() {
    let (_, report) = in_all(&turns(), |lb| {
        let [first, second, third] = fragments(datagram(V4_IN_V4, 1, 1));
        let tunnelled = |frame: usize| {
            let datagram = datagram(V4_IN_V4, 1, 1).tunnelled("10.9.9.9", "192.0.2.1");
            datagram.build_fragments(1400)[frame].clone()
        };
        assert_eq!(lb.feed(&[tunnelled(1)]), []);
        let went = backends(&lb.feed(&[first, third, tunnelled(2), second]));
        assert!(went.len() == 5 && went.iter().all(|it| *it == went[0]), "{went:?}");
    });
    assert_dropped(&report, &[]);
}
