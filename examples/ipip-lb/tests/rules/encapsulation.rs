//! The outer header, and the treatment of the inner packet.

use super::expected::{Outer, packet, sum, wrapped};
use super::{PAIRS, Pair, V4_IN_V4, V6_IN_V4, four, with_port};
use crate::deployed::{Sent, assert_dropped, in_all, in_both, preamble, service};
use hotloop::packet::build::{PacketBuilder, protocol, tcp, udp};
use std::collections::HashSet;

/// Packets of many kinds from the client to the service, before they are built.
fn kinds(pair: Pair) -> Vec<PacketBuilder> {
    let mut kinds = vec![
        tcp(),
        tcp().payload([7; 1]),
        tcp().payload([7; 700]).tcp_options(&[2, 4, 5, 0xB4]),
        udp(),
        udp().payload([1; 1300]),
        protocol(50).payload([9; 64]),
        protocol(132).payload([9; 12]),
        udp().vlan(7),
        udp().qinq(7, 8),
        tcp().vlan(4095).payload([3; 9]),
    ];
    if pair.is_v4() {
        kinds.push(udp().ipv4_options(&[1, 1, 1, 0]));
        kinds.push(tcp().ipv4_options(&[7, 7, 4, 0, 0, 0, 0, 0]).payload([5; 30]));
        kinds.push(udp().payload([9; 900]).identification(777));
    } else {
        kinds.push(udp().extension(0, &[0; 6]).extension(60, &[0; 14]).payload([2; 50]));
        kinds.push(tcp().extension(43, &[0; 6]));
    }
    kinds.into_iter().map(|kind| pair.request(kind)).collect()
}

/// With DF, so that the outer header doesn't depend on the worker.
fn forbidding(kind: PacketBuilder) -> PacketBuilder {
    kind.dont_fragment()
}

#[test]
fn packets_leave_wrapped_in_all_four_combinations_and_else_as_they_came() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            for kind in kinds(pair).into_iter().map(forbidding) {
                let sent = lb.one(kind.clone().ttl(9));
                let inner = kind.ttl(8).build();
                let outer = Outer { dont_fragment: true, ..pair.outer() };
                assert!(!sent.to_client);
                assert_eq!(sent.frame, wrapped(&inner, &outer), "{pair:?}");
            }
        }
    });
    assert_dropped(&report, &[]);
}

#[test]
fn packets_leave_by_the_port_whose_side_is_backend_from_and_to_its_macs() {
    use crate::deployed::{BACKENDS_MAC, OWN_MAC};
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            let sent = lb.one(pair.syn());
            assert!(!sent.to_client);
            assert_eq!((&sent.frame[..6], &sent.frame[6..12]), (&BACKENDS_MAC[..], &OWN_MAC[..]));
        }
    });
}

#[test]
fn padding_after_the_packet_is_cut_off() {
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            let padded = pair.request(udp()).dont_fragment().padded();
            let sent = lb.one(padded.clone());
            let inner = padded.ttl(63).build();
            let packet_bytes = if pair.is_v4() { 28 } else { 48 };
            let outer = Outer { dont_fragment: true, ..pair.outer() };
            assert_eq!(sent.frame, wrapped(&inner[..14 + packet_bytes], &outer), "{pair:?}");
        }
        // However long: padding doesn't count for the MTU.
        let mut padded = V4_IN_V4.syn().dont_fragment().build();
        padded.resize(1900, 0xEE);
        assert_eq!(lb.one(padded).frame.len(), 14 + 20 + 40);
    });
}

/// The TTL, TOS and DF of an outer header.
fn outer_fields(sent: &Sent) -> (u8, u8, Option<bool>) {
    match sent.packet() {
        outer @ [0x45, tos, ..] => (outer[8], *tos, Some(outer[6] & 0x40 != 0)),
        outer => (outer[7], outer[0] << 4 | outer[1] >> 4, None),
    }
}

#[test]
fn the_outer_ttl_is_64_whatever_the_inner() {
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            for ttl in [2, 3, 63, 64, 65, 128, 255] {
                assert_eq!(outer_fields(&lb.one(pair.syn().ttl(ttl))).0, 64, "{pair:?} {ttl}");
            }
        }
    });
}

#[test]
fn dscp_and_ecn_are_the_inners() {
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            for tos in 0..=255 {
                let sent = lb.one(pair.syn().tos(tos));
                assert_eq!(outer_fields(&sent).1, tos, "{pair:?}");
                assert_eq!(sent.inner(), packet(&pair.syn().tos(tos).ttl(63).build()));
            }
        }
    });
}

#[test]
fn df_is_the_inners_and_always_set_around_ipv6() {
    in_all(&four(""), |lb| {
        for dont_fragment in [false, true] {
            let syn = |pair: Pair| match dont_fragment {
                true => pair.syn().dont_fragment(),
                false => pair.syn(),
            };
            let v4 = lb.one(syn(V4_IN_V4));
            assert_eq!(outer_fields(&v4).2, Some(dont_fragment));
            // And the inner header stays unchanged.
            assert_eq!(v4.inner()[6] & 0x40 != 0, dont_fragment);
            assert_eq!(outer_fields(&lb.one(syn(V6_IN_V4))).2, Some(true));
        }
    });
}

#[test]
fn the_identification_is_0_with_df_and_never_twice_the_same_without() {
    let flow = |port: u16| V4_IN_V4.request(udp()).from(V4_IN_V4.client(port));
    let clients = |host: u16| flow(1).from(format!("198.51.100.{host}:1"));
    let (_, _) = in_both(&four(""), 2, |lb| {
        for port in 1..40 {
            assert_eq!(lb.one(flow(port).dont_fragment()).packet()[4..6], [0, 0]);
        }
        let frames: Vec<_> =
            (1..250).flat_map(|it| [clients(it).build(), flow(it).build()]).collect();
        let sent = lb.feed(&frames);
        let numbers: Vec<_> =
            sent.iter().map(|it| u16::from_be_bytes([it.packet()[4], it.packet()[5]])).collect();
        // Two workers count in steps of two, one of them odd and the other even numbers.
        let distinct: HashSet<_> = numbers.iter().collect();
        assert_eq!((distinct.len(), numbers.len()), (498, 498));
        for parity in [0, 1] {
            let of_worker: Vec<_> = numbers.iter().filter(|it| *it % 2 == parity).collect();
            assert!(of_worker.len() > 50, "{parity}");
            assert!(of_worker.windows(2).all(|pair| *pair[1] == *pair[0] + 2), "{of_worker:?}");
        }
        numbers
    });
}

#[test]
fn the_source_is_one_address_or_a_flows_of_the_prefix() {
    let config = four("source_v4 = \"192.0.2.64/26\"\nsource_v6 = \"2001:db8:5::/48\"");
    let (sources, _) = in_all(&config, |lb| {
        PAIRS.map(|pair| {
            let source = |lb: &mut crate::deployed::Running<'_>, port| {
                let packets = [udp(), udp().payload([1; 99]).ttl(3)].map(|packet| {
                    let from = with_port(pair.client, port);
                    lb.one(packet.from(from).to(pair.vip(80))).unwrapped().0.source
                });
                assert_eq!(packets[0], packets[1], "of one flow");
                packets[0]
            };
            (1..200).map(|port| source(lb, port)).collect::<Vec<_>>()
        })
    });
    for (pair, sources) in PAIRS.iter().zip(&sources) {
        let prefix = if pair.is_in_v4() { "192.0.2.64/26" } else { "2001:db8:5::/48" };
        let prefix: hotloop::packet::prefix::Prefix = prefix.parse().unwrap();
        assert!(sources.iter().all(|source| prefix.contains(*source)), "{sources:?}");
        let distinct: HashSet<_> = sources.iter().collect();
        // Of 64 addresses, 199 flows use nearly all; of many more, none twice.
        let at_least = if pair.is_in_v4() { 50 } else { 199 };
        assert!(distinct.len() >= at_least, "{} sources", distinct.len());
    }
    // Only the flow decides, not the backend's family or the service.
    assert_eq!(sources[0].len(), 199);
}

#[test]
fn the_outer_checksum_is_right() {
    in_all(&four(""), |lb| {
        for (number, pair) in (0..400_u16).zip([V4_IN_V4, V6_IN_V4].into_iter().cycle()) {
            let request = pair.request(udp()).from(pair.client(number + 1)).tos(number as u8);
            let sent = lb.one(request.payload(vec![0; usize::from(number)]));
            assert_eq!(sum(&sent.packet()[..20]), 0, "{sent:02x?}");
        }
    });
}

#[test]
fn the_inner_ttl_is_one_less_and_its_checksum_is_changed_by_as_much() {
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            for ttl in 2..=255 {
                let sent = lb.one(pair.syn().ttl(ttl));
                assert_eq!(sent.inner(), packet(&pair.syn().ttl(ttl - 1).build()), "{pair:?}");
            }
        }
        // A header that was damaged on the way stays damaged, so that no receiver accepts it.
        let mut damaged = V4_IN_V4.syn().build();
        damaged[14 + 10] ^= 0x12;
        let inner = lb.one(damaged).inner();
        let mut expected = V4_IN_V4.syn().ttl(63).build();
        expected[14 + 10] ^= 0x12;
        assert_eq!(inner, packet(&expected));
        assert_ne!(sum(&inner[..20]), 0);
    });
}

#[test]
fn a_tunnel_to_a_service_is_wrapped_as_it_is_and_goes_by_the_flow_inside() {
    let config =
        preamble("") + &service("all", "203.0.113.10 any any", "", &["10.0.0.1", "10.0.0.2"]);
    let (backends, report) = in_all(&config, |lb| {
        let inside = |port: u16| udp().from(format!("198.51.100.7:{port}")).to("203.0.113.99:9");
        let mut backends = Vec::new();
        for port in 1..60 {
            let tunnel = |ttl| inside(port).ttl(ttl).tunnelled("198.51.100.1", "203.0.113.10");
            let sent = lb.one(tunnel(33).build());
            // Its own TTL is the one that counts: the outer header's.
            let mut expected = tunnel(33).build();
            expected[14 + 8] -= 1;
            expected[14 + 10..][..2].copy_from_slice(&[0, 0]);
            let sum = sum(&expected[14..34]);
            expected[14 + 10..][..2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(sent.inner(), expected[14..]);
            assert_eq!(lb.one(tunnel(9).build()).backend(), sent.backend());
            backends.push(sent.backend());
        }
        // No connection is entered.
        assert_eq!((lb.admitted(), lb.connections().len()), (0, 0));
        backends
    });
    assert_dropped(&report, &[]);
    assert_eq!(backends.iter().collect::<HashSet<_>>().len(), 2);
}
