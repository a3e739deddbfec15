//! ICMP errors about services' packets.

use super::expected::wrapped;
use super::{PAIRS, Pair, V4_IN_V4, four};
use crate::deployed::{Running, assert_dropped, in_all, preamble, service};
use hotloop::packet::build::{
    PacketBuilder, echo_reply, parameter_problem, redirect, source_quench, tcp, time_exceeded,
    too_big, udp, unreachable,
};
use hotloop::packet::tcp::flags::ACK;
use hotloop_balancer::connection::State;
use std::time::Duration;

const BACKENDS: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];

/// One service of each family, with backends in turns, so that only the connection determines the
/// backend.
fn turns() -> String {
    let service = |name: &str, vip| {
        service(name, &format!("{vip} any any"), "scheduler = \"round-robin\"", &BACKENDS)
    };
    preamble("") + &service("v4", V4_IN_V4.vip) + &service("v6", "2001:db8:f::10")
}

/// All kinds of errors about a frame.
fn errors(about: &[u8]) -> [PacketBuilder; 4] {
    [unreachable(about), too_big(about, 1300), time_exceeded(about), parameter_problem(about)]
}

#[test]
fn errors_go_to_the_backend_of_the_connection_they_quote_whatever_router_sent_them() {
    let (_, report) = in_all(&turns(), |lb| {
        for pair in [V4_IN_V4, PAIRS[2]] {
            for port in 1..40 {
                for (packet, answer) in [(tcp(), tcp()), (udp(), udp())] {
                    let (client, vip) = (pair.client(port), pair.vip(80));
                    let backend = lb.backend(packet.from(&client).to(&vip));
                    let answer = answer.from(&vip).to(&client).payload([0; 900]).build();
                    for (number, error) in (1..).zip(errors(&answer)) {
                        let router = if pair.is_v4() { "192.88.99." } else { "2001:db8:99::" };
                        let error = error.from(format!("{router}{number}"));
                        let sent = lb.one(error.clone());
                        assert_eq!(sent.backend(), backend, "{pair:?}");
                        // Unchanged, except for the hop.
                        assert_eq!(sent.inner()[9..10], error.clone().build()[23..24]);
                        let expected = error.ttl(63).build();
                        assert_eq!(sent.inner(), expected[14..]);
                    }
                }
            }
        }
        assert_eq!(lb.admitted(), 4 * 39);
    });
    assert_dropped(&report, &[]);
}

#[test]
fn errors_leave_wrapped_in_all_four_combinations() {
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            let answer = pair.reply(udp()).payload([7; 100]).build();
            let error = unreachable(&answer).dont_fragment();
            let outer = super::expected::Outer { dont_fragment: true, ..pair.outer() };
            let expected = wrapped(&error.clone().ttl(63).build(), &outer);
            assert_eq!(lb.one(error).frame, expected);
        }
    });
}

#[test]
fn eight_bytes_of_the_quoted_message_suffice() {
    in_all(&turns(), |lb| {
        let (client, vip) = (V4_IN_V4.client(7), V4_IN_V4.vip(80));
        let backend = lb.backend(tcp().from(&client).to(&vip));
        let answer = tcp().from(&vip).to(&client).payload([0; 900]).build();
        assert_eq!(lb.backend(time_exceeded(&answer).quote_bytes(28)), backend);
    });
}

#[test]
fn errors_about_the_echo_replies_of_a_backend_find_it() {
    let config = turns().replace("mtu = 1500", "mtu = 1500\nicmp_echo = \"forward\"");
    in_all(&config, |lb| {
        for identifier in 1..9 {
            let request = hotloop::packet::build::echo_request(identifier, 1);
            let backend = lb.backend(request.from(V4_IN_V4.client).to(V4_IN_V4.vip));
            let reply = echo_reply(identifier, 1).from(V4_IN_V4.vip).to(V4_IN_V4.client).build();
            assert_eq!(lb.backend(time_exceeded(&reply)), backend);
        }
    });
}

#[test]
fn errors_refresh_a_connection_and_do_not_change_its_state() {
    let config = turns().replace("mtu = 1500", "mtu = 1500\ntimeouts_s = { tcp_opening = 10 }");
    in_all(&config, |lb| {
        let (client, vip) = (V4_IN_V4.client(7), V4_IN_V4.vip(80));
        lb.one(tcp().from(&client).to(&vip));
        let answer = tcp().from(&vip).to(&client).tcp_flags(ACK).build();
        for _ in 0..4 {
            lb.advance(Duration::from_secs(9));
            lb.one(unreachable(&answer));
            assert_eq!(lb.state(&client, &vip), Some(State::Opening));
        }
        lb.advance(Duration::from_millis(10_040));
        assert_eq!(lb.state(&client, &vip), None);
    });
}

#[test]
fn errors_about_unknown_flows_take_the_consistent_choice_and_nothing_is_remembered() {
    let config = preamble("") + &service("web", "203.0.113.10 any any", "", &BACKENDS);
    let (_, report) = in_all(&config, |lb| {
        for port in 1..100 {
            let (client, vip) = (V4_IN_V4.client(port), V4_IN_V4.vip(80));
            let answer = udp().from(&vip).to(&client).payload([0; 30]).build();
            let backend = lb.backend(unreachable(&answer));
            assert!(lb.connection(17, &client, &vip).is_none());
            assert_eq!(lb.admitted(), u64::from(port) - 1);
            assert_eq!(lb.backend(udp().from(&client).to(&vip)), backend);
        }
    });
    assert_dropped(&report, &[]);
}

fn stray(lb: &mut Running<'_>, pair: Pair) {
    // About a packet that no service sent, to an address that is not a service's.
    let foreign = udp().from(pair.client(5)).to(pair.client(6)).build();
    lb.none(unreachable(&foreign));
    // About a packet that another service sent.
    let answer = pair.reply(udp()).build();
    lb.none(unreachable(&answer).to(pair.client));
}

#[test]
fn errors_that_are_not_for_the_sender_of_what_they_quote_are_dropped() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            stray(lb, pair);
            // To a service that did not send it.
            let foreign = udp().from(pair.client(5)).to(pair.client(6)).build();
            lb.none(unreachable(&foreign).to(pair.vip));
        }
    });
    assert_dropped(&report, &[("punt", 8), ("no_service", 4)]);
}

#[test]
fn errors_about_what_no_service_of_the_address_can_have_sent_are_dropped() {
    let config = preamble("") + &service("web", "203.0.113.10 tcp 80", "", &["10.0.0.1"]);
    let (_, report) = in_all(&config, |lb| {
        let answer = udp().from("203.0.113.10:53").to("198.51.100.7:9").build();
        lb.none(unreachable(&answer));
        let answer = tcp().from("203.0.113.10:81").to("198.51.100.7:9").build();
        lb.none(unreachable(&answer));
    });
    assert_dropped(&report, &[("no_service", 2)]);
}

#[test]
fn redirects_and_source_quenches_are_punted() {
    let (_, report) = in_all(&four(""), |lb| {
        let answer = V4_IN_V4.reply(udp()).build();
        lb.one(V4_IN_V4.request(udp()));
        lb.none(redirect(&answer, [192, 0, 2, 7].into()));
        lb.none(source_quench(&answer));
    });
    assert_dropped(&report, &[("punt", 2)]);
}

#[test]
fn errors_that_come_through_a_tunnel_go_on_like_any_other() {
    let (_, report) = in_all(&turns(), |lb| {
        for port in 1..20 {
            let (client, vip) = (V4_IN_V4.client(port), V4_IN_V4.vip(80));
            let backend = lb.backend(udp().from(&client).to(&vip));
            let answer = udp().from(&vip).to(&client).payload([0; 30]).build();
            for (from, own) in [("10.9.9.9", "192.0.2.1"), ("2001:db8:9::1", "2001:db8::1")] {
                assert_eq!(lb.backend(unreachable(&answer).tunnelled(from, own)), backend);
            }
        }
        let foreign = udp().from(V4_IN_V4.client(5)).to(V4_IN_V4.client(6)).build();
        lb.none(unreachable(&foreign).tunnelled("10.9.9.9", "192.0.2.1"));
    });
    assert_dropped(&report, &[("punt", 1)]);
}

#[test]
fn errors_about_the_first_fragment_of_an_answer_find_its_connection() {
    in_all(&turns(), |lb| {
        for pair in [V4_IN_V4, PAIRS[2]] {
            let (client, vip) = (pair.client(9), pair.vip(80));
            let backend = lb.backend(udp().from(&client).to(&vip));
            let answer = udp().from(&vip).to(&client).payload([0; 3000]).build_fragments(1400);
            assert_eq!(lb.backend(too_big(&answer[0], 1280)), backend, "{pair:?}");
        }
    });
}

#[test]
fn errors_are_never_answered() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            let answer = pair.reply(udp()).payload([0; 1300]).build();
            for error in errors(&answer) {
                lb.none(error.ttl(1));
            }
        }
    });
    assert_dropped(&report, &[("ttl_expired", 16)]);
    assert_eq!(report.created, 0);
}
