//! The tunnels that end at the balancer, and how.

use super::expected::{sum, to_client};
use super::{PAIRS, V4_IN_V4, V6_IN_V4, V6_IN_V6, four};
use crate::deployed::{assert_dropped, in_all};
use hotloop::packet::build::{protocol, udp};

#[test]
fn tunnels_are_taken_from_backends_and_peers_alone() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            let from = |source: &str, own: &str| pair.reply(udp()).tunnelled(source, own);
            for backend_or_peer in ["10.0.0.1", "10.9.9.0", "10.9.9.255"] {
                assert!(lb.one(from(backend_or_peer, "192.0.2.1")).to_client);
            }
            for backend_or_peer in ["2001:db8:b::1", "2001:db8:9:ffff::1"] {
                assert!(lb.one(from(backend_or_peer, "2001:db8::1")).to_client);
            }
            for stranger in ["10.0.0.2", "10.9.8.255", "10.9.10.0", "203.0.113.10"] {
                lb.none(from(stranger, "192.0.2.1"));
            }
            for stranger in ["2001:db8:b::2", "2001:db8:a::1"] {
                lb.none(from(stranger, "2001:db8::1"));
            }
        }
    });
    assert_dropped(&report, &[("unknown_tunnel_source", 24)]);
}

#[test]
fn tunnels_to_other_addresses_are_punted() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            lb.none(pair.reply(udp()).tunnelled("10.0.0.1", "192.0.2.2"));
            lb.none(pair.reply(udp()).tunnelled("2001:db8:b::1", "2001:db8::2"));
            // Packets outside tunnels are ignored there.
            lb.none(pair.reply(udp()));
        }
        lb.none(udp().from("10.0.0.1:1").to("192.0.2.1:80"));
        lb.none(protocol(47).from("10.0.0.1").to("192.0.2.1").payload([0; 30]));
    });
    assert_dropped(&report, &[("punt", 14)]);
}

#[test]
fn fragments_of_tunnel_packets_are_dropped() {
    let (_, report) = in_all(&four(""), |lb| {
        for (from, own, number) in [
            ("10.0.0.1", "192.0.2.1", 4),
            ("10.0.0.1", "192.0.2.1", 41),
            ("2001:db8:b::1", "2001:db8::1", 4),
        ] {
            let first = if number == 4 { 0x45 } else { 0x60 };
            let frames = protocol(number).from(from).to(own).payload([first; 2000]);
            let frames = frames.build_fragments(1400);
            assert_eq!((frames.len(), lb.feed(&frames)), (2, vec![]));
        }
    });
    assert_dropped(&report, &[("tunnel_fragment", 6)]);
}

#[test]
fn an_outer_header_with_a_wrong_checksum_is_dropped() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in [V4_IN_V4, V6_IN_V4] {
            for (offset, bit) in [(10, 1), (11, 0x80), (8, 1), (4, 0x10)] {
                let mut frame = pair.reply(udp()).tunnelled(pair.backend, pair.source).build();
                frame[14 + offset] ^= bit;
                lb.none(frame);
            }
        }
    });
    assert_dropped(&report, &[("bad_checksum", 8)]);
}

/// Sets the outer header's congestion mark.
fn marked(mut frame: Vec<u8>, mark: u8) -> Vec<u8> {
    if frame[14] >> 4 == 4 {
        frame[15] = frame[15] & !3 | mark;
        frame[24..26].copy_from_slice(&[0, 0]);
        let sum = sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    } else {
        frame[15] = frame[15] & !0x30 | mark << 4;
    }
    frame
}

#[test]
fn the_congestion_mark_is_as_rfc_6040_combines_both() {
    // Rows are the inner mark (not capable, ECT(1), ECT(0), congestion), columns the outer one.
    const DROP: u8 = 9;
    const COMBINED: [[u8; 4]; 4] = [[0, 0, 0, DROP], [1, 1, 1, 3], [2, 1, 2, 3], [3, 3, 3, 3]];
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            for inner in 0..4 {
                for outer in 0..4 {
                    let reply = pair.reply(udp()).payload([1; 9]);
                    let tos = 0xA8 | inner;
                    let frame = reply.clone().tos(tos).tunnelled(pair.backend, pair.source);
                    let frame = marked(frame.build(), outer);
                    let combined = COMBINED[usize::from(inner)][usize::from(outer)];
                    if combined == DROP {
                        lb.none(frame);
                        continue;
                    }
                    let expected = reply.tos(0xA8 | combined).ttl(63).build();
                    let sent = lb.one(frame);
                    assert_eq!(sent.frame, to_client(&expected), "{pair:?} {inner} {outer}");
                }
            }
        }
    });
    assert_dropped(&report, &[("congestion", 4)]);
}

#[test]
fn nested_tunnels_are_unwrapped_once() {
    let (_, report) = in_all(&four(""), |lb| {
        // The inner packet is a tunnel to a service: it goes there like any other, still wrapped.
        let inside = udp().from("198.51.100.7:1").to("198.51.100.8:2");
        let to_service = inside.clone().tunnelled("198.51.100.9", "203.0.113.10");
        let sent = lb.one(to_service.clone().tunnelled("10.0.0.1", "192.0.2.1"));
        let bare = lb.one(to_service);
        assert_eq!(sent.backend(), "10.0.0.1");
        assert_eq!(sent.inner(), bare.inner());

        // The inner packet is a tunnel from a service to a client.
        let to_its_client = inside.clone().tunnelled("203.0.113.10", "198.51.100.7");
        let sent = lb.one(to_its_client.clone().tunnelled("10.0.0.1", "192.0.2.1"));
        let mut expected = to_its_client.build();
        expected[14 + 8] = 63;
        expected[14 + 10..][..2].copy_from_slice(&[0, 0]);
        let sum = sum(&expected[14..34]);
        expected[14 + 10..][..2].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(sent.frame, to_client(&expected));

        // The inner packet is another tunnel to the balancer: whatever its destination, it isn't a
        // service.
        let reply = V6_IN_V6.reply(udp());
        lb.none(reply.tunnelled("10.0.0.1", "192.0.2.1").tunnelled("10.0.0.1", "192.0.2.1"));
    });
    assert_dropped(&report, &[("punt", 1)]);
}

#[test]
fn what_is_inside_must_be_sound() {
    let (_, report) = in_all(&four(""), |lb| {
        let mut cut =
            V4_IN_V4.reply(udp()).payload([0; 40]).tunnelled("10.0.0.1", "192.0.2.1").build();
        cut[14 + 20] = 0x4F;
        lb.none(cut);
        let no_ip = protocol(4).from("10.0.0.1").to("192.0.2.1").payload([0x25; 40]);
        lb.none(no_ip);
        lb.none(protocol(4).from("10.0.0.1").to("192.0.2.1").payload([]));
    });
    assert_dropped(&report, &[("malformed", 3)]);
}
