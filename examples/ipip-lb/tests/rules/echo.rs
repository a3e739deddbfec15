//! Echo requests to a service's address.

use super::expected::to_client;
use super::{PAIRS, Pair, V4_IN_V4, V6_IN_V6, four};
use crate::deployed::{assert_dropped, in_all, preamble, service};
use hotloop::packet::build::{PacketBuilder, echo_reply, echo_request};

fn request(pair: Pair, packet: PacketBuilder) -> PacketBuilder {
    packet.from(pair.client).to(pair.vip)
}

#[test]
fn reply_answers_from_the_vip() {
    let (_, report) = in_all(&four("icmp_echo = \"reply\""), |lb| {
        for pair in PAIRS {
            for payload in [&[][..], b"56 bytes", &[0xA5; 1400]] {
                let frame = request(pair, echo_request(77, 5)).payload(payload).ttl(9).vlan(3);
                let sent = lb.one(frame.identification(0x1234).dont_fragment());
                let reply = echo_reply(77, 5).from(pair.vip).to(pair.client).payload(payload);
                let reply = reply.ttl(64).vlan(3).identification(0x1234).dont_fragment();
                assert!(sent.to_client);
                assert_eq!(sent.frame, to_client(&reply.build()), "{pair:?}");
            }
        }
        assert_eq!((lb.admitted(), lb.count(|it| it.answered.count())), (0, 12));
    });
    assert_dropped(&report, &[("icmp_echo", 12)]);
    assert_eq!(report.created, 12);
}

#[test]
fn reply_is_the_default_and_not_limited() {
    let (_, report) = in_all(&four(""), |lb| {
        let frames: Vec<_> = (0..1500)
            .map(|sequence| request(V4_IN_V4, echo_request(1, sequence)).build())
            .collect();
        assert_eq!(lb.feed(&frames).len(), 1500);
    });
    assert_dropped(&report, &[("icmp_echo", 1500)]);
}

#[test]
fn reply_does_not_answer_fragments_nor_groups() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            let fragments = request(pair, echo_request(1, 1)).payload([0; 2000]);
            assert_eq!(lb.feed(&fragments.build_fragments(1300)), []);
            let group = if pair.is_v4() { "224.0.0.1" } else { "ff02::1" };
            lb.none(request(pair, echo_request(1, 1)).from(group));
        }
    });
    assert_dropped(&report, &[("icmp_echo", 12)]);
    assert_eq!(report.created, 0);
}

#[test]
fn a_request_with_a_wrong_checksum_is_dropped_and_not_answered() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            let l4_offset = if pair.is_v4() { 34 } else { 54 };
            for (offset, bit) in [(0, 0), (2, 1), (3, 0x80), (4, 1), (12, 4)] {
                let mut frame = request(pair, echo_request(7, 1)).payload([3; 9]).build();
                frame[l4_offset + offset] ^= bit;
                match bit {
                    0 => assert!(lb.one(frame).to_client),
                    _ => lb.none(frame),
                }
            }
        }
        // Nor a request with a wrong checksum in its IP header.
        let mut frame = request(V4_IN_V4, echo_request(7, 1)).build();
        frame[14 + 4] ^= 1;
        lb.none(frame);
    });
    assert_dropped(&report, &[("icmp_echo", 4), ("bad_checksum", 17)]);
    assert_eq!(report.created, 4);
}

#[test]
fn a_reply_of_all_zeroes_has_the_checksum_0xffff() {
    in_all(&four(""), |lb| {
        let sent = lb.one(request(V4_IN_V4, echo_request(0, 0)).payload([0; 56]));
        assert_eq!(sent.frame[34..42], [0, 0, 0xFF, 0xFF, 0, 0, 0, 0]);
    });
}

#[test]
fn drop_drops() {
    let (_, report) = in_all(&four("icmp_echo = \"drop\""), |lb| {
        for pair in PAIRS {
            lb.none(request(pair, echo_request(1, 1)));
            let fragments = request(pair, echo_request(1, 1)).payload([0; 2000]);
            assert_eq!(lb.feed(&fragments.build_fragments(1300)), []);
        }
    });
    assert_dropped(&report, &[("icmp_echo", 12)]);
    assert_eq!(report.created, 0);
}

#[test]
fn forward_sends_them_to_a_backend_which_they_keep() {
    let config = |vips: [&str; 2]| {
        let backends = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        preamble("icmp_echo = \"forward\"")
            + &service(
                "a",
                &format!("{} any any", vips[0]),
                "scheduler = \"round-robin\"",
                &backends,
            )
            + &service(
                "b",
                &format!("{} any any", vips[1]),
                "scheduler = \"round-robin\"",
                &backends,
            )
    };
    let (_, report) = in_all(&config(["203.0.113.10", "2001:db8:f::10"]), |lb| {
        for pair in [V4_IN_V4, V6_IN_V6] {
            let mut backends = Vec::new();
            for identifier in 1..10 {
                let one = |sequence| request(pair, echo_request(identifier, sequence));
                let backend = lb.backend(one(1));
                assert_eq!(lb.backend(one(2)), backend);
                // Its fragments, too: they belong to one datagram.
                let fragments = one(3).payload([0; 2000]).identification(identifier);
                for sent in lb.feed(&fragments.build_fragments(1300)) {
                    assert_eq!(sent.backend(), backend);
                }
                backends.push(backend);
            }
            assert_eq!(backends[0..3].iter().collect::<std::collections::HashSet<_>>().len(), 3);
        }
        // Each identifier is a connection.
        assert_eq!(lb.admitted(), 18);
    });
    assert_dropped(&report, &[]);
}

#[test]
fn forward_finds_the_most_specific_service_where_none_takes_icmp() {
    let config = [
        preamble("icmp_echo = \"forward\""),
        service("net", "203.0.113.0/24 any any", "", &["10.0.0.1"]),
        service("wide", "203.0.113.10 udp 1-1000", "", &["10.0.0.2"]),
        service("narrow", "203.0.113.10 tcp 80", "", &["10.0.0.3"]),
        service("web6", "2001:db8:f::10 tcp 80", "", &["10.0.0.4"]),
    ];
    let (_, report) = in_all(&config.concat(), |lb| {
        let one = |vip: &str| match vip.contains(':') {
            true => echo_request(1, 1).from("2001:db8:c::7").to(vip),
            false => echo_request(1, 1).from("198.51.100.7").to(vip),
        };
        // A service takes ICMP, even if only by a shorter prefix.
        assert_eq!(lb.backend(one("203.0.113.10")), "10.0.0.1");
        assert_eq!(lb.backend(one("2001:db8:f::10")), "10.0.0.4");
        lb.none(one("203.0.114.1"));
    });
    assert_dropped(&report, &[("punt", 1)]);
}

#[test]
fn replies_and_other_messages_are_not_requests() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            // A host answers a backend's request.
            assert_eq!(lb.backend(request(pair, echo_reply(5, 1))), pair.backend);
        }
    });
    assert_dropped(&report, &[]);
}
