//! Packets that may not be wrapped: from this balancer's own tunnels, from the backend that they
//! would go to, in too many tunnels, or with a statement that they may not.

use super::expected::to_client;
use super::{PAIRS, V4_IN_V4, V6_IN_V4, V6_IN_V6, four, web};
use crate::deployed::{Running, assert_dropped, in_all, in_both, preamble, service};
use hotloop::packet::build::{PacketBuilder, parameter_problem, protocol, tcp, time_exceeded, udp};

/// Own tunnel sources: a single address, one of a prefix, and an own address.
const SOURCES: &str = "source_v4 = \"192.0.2.64/26\"\nsource_v6 = \"2001:db8:1::/64\"\n\
                       decapsulate = [\"192.0.2.1\", \"2001:db8::1\"]";
const ENTRIES: [[&str; 2]; 3] = [
    ["192.0.2.64", "2001:db8:1::"],
    ["192.0.2.127", "2001:db8:1::ffff:1"],
    ["192.0.2.1", "2001:db8::1"],
];

fn end(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// RFC 2003, section 3: the source of a wrapped packet is not the tunnel's entry point.
#[test]
fn packets_from_an_own_tunnel_source_are_not_wrapped() {
    let (_, report) = in_all(&four(SOURCES), |lb| {
        for pair in PAIRS {
            for entry in ENTRIES.map(|it| it[usize::from(!pair.is_v4())]) {
                for packet in [tcp(), udp()] {
                    lb.none(packet.from(end(entry, 9)).to(pair.vip(80)));
                }
                lb.none(protocol(47).from(entry).to(pair.vip).payload([1; 20]));
                let fragments = udp().from(end(entry, 9)).to(pair.vip(80)).payload([7; 300]);
                assert_eq!(lb.feed(&fragments.build_fragments(200)), []);
                // An error about the service's packet, from any sender.
                let about = pair.reply(udp()).payload([1; 20]).build();
                lb.none(time_exceeded(&about).from(entry));
            }
            // The address next to the prefix is another host's.
            let other = if pair.is_v4() { "192.0.2.63" } else { "2001:db8:1:1::" };
            assert_eq!(lb.backend(udp().from(end(other, 9)).to(pair.vip(80))), pair.backend);
        }
        assert_eq!(lb.admitted(), 4);
    });
    let fragments = 2 * 2 + 2 * 3;
    assert_dropped(&report, &[("tunnel_loop", 3 * (4 * 4 + fragments))]);
}

/// Each outgoing packet comes back, as from a network that routes the backend's address here.
fn passes_until_gone(lb: &mut Running<'_>, packet: PacketBuilder) -> usize {
    let mut frames = vec![packet.build()];
    for pass in 0..20 {
        let sent = lb.feed(&frames);
        if sent.is_empty() {
            return pass;
        }
        frames = sent.into_iter().map(|it| it.frame).collect();
    }
    panic!("{} packets go on for ever", frames.len());
}

#[test]
fn a_backend_that_is_a_service_is_reached_once() {
    let config = preamble("nested_backends = [\"203.0.113.10\", \"203.0.113.11\"]")
        + &service("a", "203.0.113.10 any any", "", &["203.0.113.11"])
        + &service("b", "203.0.113.11 any any", "", &["203.0.113.10"]);
    let (_, report) = in_all(&config, |lb| {
        for df in [false, true] {
            let packet = udp().from("198.51.100.7:1000").to("203.0.113.10:53").payload([0; 100]);
            let packet = if df { packet.dont_fragment() } else { packet };
            assert_eq!(passes_until_gone(lb, packet), 1);
        }
        // Nor in the fragments of a packet that is too long for the tunnel.
        let long = udp().from("198.51.100.7:1000").to("203.0.113.10:53").payload([0; 1465]);
        assert_eq!(passes_until_gone(lb, long), 1);
    });
    assert_dropped(&report, &[("tunnel_loop", 2 + 2)]);
}

/// In a loop through other balancers, the innermost tunnels begin elsewhere.
#[test]
fn a_tunnel_within_tunnels_of_others_is_wrapped_up_to_four_deep_and_not_once_more_in_its_own() {
    let (_, report) = in_all(&four(""), |lb| {
        let hops = ["198.51.100.21", "198.51.100.22", "198.51.100.23", "198.51.100.24"];
        for (depth, is_wrapped) in [(1, true), (2, true), (3, true), (4, false), (5, false)] {
            let packet = (0..depth)
                .fold(V4_IN_V4.syn(), |packet, hop| packet.tunnelled(hops[hop % 4], V4_IN_V4.vip));
            match is_wrapped {
                true => assert_eq!(lb.backend(packet), V4_IN_V4.backend, "{depth}"),
                false => lb.none(packet),
            }
        }
        for depth in 0..3 {
            // The balancer's own tunnel, inside `depth` other tunnels.
            let own = V4_IN_V4.syn().tunnelled("192.0.2.1", V4_IN_V4.vip);
            lb.none((0..depth).fold(own, |it, hop| it.tunnelled(hops[hop], V4_IN_V4.vip)));
            let own = V6_IN_V6.syn().tunnelled("2001:db8::1", V6_IN_V6.vip);
            lb.none((0..depth).fold(own, |it, hop| it.tunnelled(hops[hop], V4_IN_V4.vip)));
        }
    });
    assert_dropped(&report, &[("tunnel_loop", 2 + 6)]);
}

#[test]
fn a_backend_that_is_a_client_goes_to_another() {
    for scheduler in ["maglev", "source", "round-robin", "least-connections"] {
        let config =
            web(&format!("scheduler = \"{scheduler}\""), &["10.0.0.1", "10.0.0.2*3", "10.0.0.3"]);
        let (_, [report, _]) = in_both(&(preamble("") + &config), 1, |lb| {
            let mut counts = [0; 4];
            for port in 0..400 {
                let from = |backend: usize| format!("10.0.0.{backend}:{}", 1000 + port);
                for backend in 1..4 {
                    let went = lb.backend(tcp().from(from(backend)).to(super::WEB));
                    assert_ne!(went, format!("10.0.0.{backend}"));
                    if backend == 1 {
                        counts[went[7..].parse::<usize>().unwrap()] += 1;
                    }
                    // It stays there.
                    let again = tcp().tcp_flags(0x10).from(from(backend)).to(super::WEB);
                    assert_eq!(lb.backend(again), went);
                }
            }
            if scheduler == "maglev" {
                // In proportion to the other backends' weights.
                assert!((270..330).contains(&counts[2]), "{counts:?}");
            }
        });
        assert_dropped(&report, &[]);
    }
}

#[test]
fn a_backend_that_is_the_only_one_up_gets_nothing_from_itself() {
    let (_, report) = in_all(&(preamble("") + &web("", &["10.0.0.1", "10.0.0.2*0"])), |lb| {
        for packet in [tcp(), tcp().tcp_flags(0x10)] {
            lb.none(packet.from("10.0.0.1:9").to(super::WEB));
        }
        assert_eq!(lb.backend(tcp().from("10.0.0.2:9").to(super::WEB)), "10.0.0.1");
        // Nor an error about another host's connection.
        assert_eq!(lb.backend(tcp().from("198.51.100.7:9").to(super::WEB)), "10.0.0.1");
        let about = tcp().from(super::WEB).to("198.51.100.7:9").build();
        lb.none(time_exceeded(&about).from("10.0.0.1"));
        assert_eq!(lb.backend(time_exceeded(&about).from("10.0.0.3")), "10.0.0.1");
    });
    assert_dropped(&report, &[("tunnel_loop", 3)]);
}

/// An IPv6 packet with an encapsulation limit.
fn limited(packet: PacketBuilder, limit: u8) -> PacketBuilder {
    packet.extension(60, &[4, 1, limit, 1, 1, 0])
}

#[test]
fn an_encapsulation_limit_of_0_is_honoured_and_answered() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in [V6_IN_V6, V6_IN_V4] {
            for packet in [tcp(), udp().payload([1; 200])] {
                let frame = limited(pair.request(packet.clone()), 0).build();
                let sent = lb.one(frame.clone());
                // Its pointer is the limit's offset: 40 bytes of header, then the fifth byte.
                let mut error = parameter_problem(&frame).from(pair.vip).tos(0xC0).build();
                error[14 + 41] = 0;
                error[14 + 44..14 + 48].copy_from_slice(&[0, 0, 0, 44]);
                let expected = to_client(&error);
                assert_eq!(sent.frame[..14 + 42], expected[..14 + 42]);
                assert_eq!(sent.frame[14 + 44..], expected[14 + 44..]);
                // A limit above zero is enough, and stays unchanged: no outer header states one.
                let sent = lb.one(limited(pair.request(packet.clone()).ttl(9), 1));
                let expected = limited(pair.request(packet).ttl(8), 1).build();
                assert_eq!(
                    (sent.backend(), sent.inner()),
                    (pair.backend.into(), expected[14..].to_vec())
                );
                let next_header = sent.packet()[if pair.is_in_v4() { 9 } else { 6 }];
                assert_eq!(next_header, 41);
            }
            // In the midst of a connection, too.
            assert!(lb.one(limited(pair.request(tcp().tcp_flags(0x10)), 0)).to_client);
        }
    });
    assert_dropped(&report, &[("encapsulation_limit", 2 * 3)]);
    assert_eq!(report.created, 2 * 3);
}
