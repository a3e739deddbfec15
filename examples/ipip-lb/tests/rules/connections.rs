//! What is remembered of connections, and for how long.

use crate::deployed::left::backends;
use crate::deployed::{Running, in_all, in_both, preamble, service};
use crate::{PAIRS, Pair, V4_IN_V4, WEB, client_of, segment, web};
use hotloop::packet::build::{protocol, tcp, udp};
use hotloop::packet::ip::protocol as number;
use hotloop::packet::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use ipip_lb::connection::State;
use std::time::Duration;

const TIMEOUTS: &str = "timeouts_s = { tcp_opening = 10, tcp_established = 100, tcp_closing = 5, \
                        udp = 20, other = 30 }";

/// How much longer than its time a connection may live: two steps of the tables' clock.
const SLACK: Duration = Duration::from_millis(34);

fn config() -> String {
    crate::four(TIMEOUTS)
}

/// What the server answers, through the tunnel.
fn server(lb: &mut Running<'_>, pair: Pair, flags: u8) {
    let reply = pair.reply(tcp()).tcp_flags(flags).tunnelled(pair.backend, pair.source);
    assert!(lb.answer(reply).to_client);
}

fn client(lb: &mut Running<'_>, pair: Pair, flags: u8) {
    assert_eq!(lb.backend(pair.request(tcp()).tcp_flags(flags)), pair.backend);
}

fn state(lb: &mut Running<'_>, pair: Pair) -> Option<State> {
    lb.state(&pair.client(4000), &pair.vip(80))
}

/// Checks that the connection is there to the end of its time, and no longer.
fn assert_lives(lb: &mut Running<'_>, idle_s: u64, is_there: impl Fn(&mut Running<'_>) -> bool) {
    lb.advance(Duration::from_secs(idle_s));
    assert!(is_there(lb), "not there any more after {idle_s} s");
    lb.advance(SLACK);
    assert!(!is_there(lb), "still there {SLACK:?} after {idle_s} s");
}

#[test]
fn tcp_opens_is_established_and_closes_each_with_a_time_of_its_own() {
    in_all(&config(), |lb| {
        for pair in PAIRS {
            let is_there = |lb: &mut Running<'_>| state(lb, pair).is_some();
            client(lb, pair, SYN);
            assert_eq!(state(lb, pair), Some(State::Opening));
            assert_lives(lb, 10, is_there);

            client(lb, pair, SYN);
            server(lb, pair, SYN | ACK);
            assert_eq!(state(lb, pair), Some(State::Opening));
            client(lb, pair, ACK);
            assert_eq!(state(lb, pair), Some(State::Established));
            assert_lives(lb, 100, is_there);

            client(lb, pair, SYN);
            client(lb, pair, ACK);
            client(lb, pair, RST);
            assert_eq!(state(lb, pair), Some(State::Closing));
            assert_lives(lb, 5, is_there);
        }
    });
}

#[test]
fn udp_and_other_protocols_have_times_of_their_own() {
    in_all(&config(), |lb| {
        for pair in PAIRS {
            let known = |lb: &mut Running<'_>, protocol, port| {
                let (client, vip) = match port {
                    true => (pair.client(4000), pair.vip(80)),
                    false => (crate::with_port(pair.client, 0), crate::with_port(pair.vip, 0)),
                };
                lb.connection(protocol, &client, &vip).map(|it| it.state())
            };
            lb.one(pair.request(udp()));
            assert_eq!(known(lb, number::UDP, true), Some(State::Udp));
            assert_lives(lb, 20, |lb| known(lb, number::UDP, true).is_some());
            lb.one(protocol(50).from(pair.client).to(pair.vip).payload([7; 40]));
            assert_eq!(known(lb, 50, false), Some(State::Other));
            assert_lives(lb, 30, |lb| known(lb, 50, false).is_some());
        }
    });
}

#[test]
fn each_packet_makes_the_time_begin_anew() {
    in_all(&config(), |lb| {
        client(lb, V4_IN_V4, SYN);
        client(lb, V4_IN_V4, ACK);
        for _ in 0..5 {
            lb.advance(Duration::from_secs(99));
            client(lb, V4_IN_V4, ACK | PSH);
        }
        assert_lives(lb, 100, |lb| state(lb, V4_IN_V4).is_some());
    });
}

#[test]
fn a_reset_from_either_side_closes() {
    in_all(&config(), |lb| {
        for from_server in [false, true] {
            client(lb, V4_IN_V4, SYN);
            server(lb, V4_IN_V4, SYN | ACK);
            client(lb, V4_IN_V4, ACK);
            match from_server {
                true => server(lb, V4_IN_V4, RST),
                false => client(lb, V4_IN_V4, RST | ACK),
            }
            assert_eq!(state(lb, V4_IN_V4), Some(State::Closing));
        }
    });
}

#[test]
fn both_fins_close_in_either_order_and_one_does_not() {
    in_all(&config(), |lb| {
        for client_first in [true, false] {
            client(lb, V4_IN_V4, SYN);
            server(lb, V4_IN_V4, SYN | ACK);
            client(lb, V4_IN_V4, ACK);
            let fins: [fn(&mut Running<'_>, Pair, u8); 2] = match client_first {
                true => [client, server],
                false => [server, client],
            };
            fins[0](lb, V4_IN_V4, FIN | ACK);
            assert_eq!(state(lb, V4_IN_V4), Some(State::Established));
            client(lb, V4_IN_V4, ACK);
            server(lb, V4_IN_V4, ACK);
            assert_eq!(state(lb, V4_IN_V4), Some(State::Established));
            fins[1](lb, V4_IN_V4, FIN | ACK);
            assert_eq!(state(lb, V4_IN_V4), Some(State::Closing));
            // The last acknowledgement doesn't open it again.
            client(lb, V4_IN_V4, ACK);
            assert_eq!(state(lb, V4_IN_V4), Some(State::Closing));
        }
    });
}

#[test]
fn where_backends_answer_clients_directly_connections_open_and_close_by_the_client_alone() {
    in_all(&config(), |lb| {
        for pair in PAIRS {
            client(lb, pair, SYN);
            client(lb, pair, ACK);
            client(lb, pair, ACK | PSH);
            assert_eq!(state(lb, pair), Some(State::Established));
            client(lb, pair, FIN | ACK);
            assert_eq!(state(lb, pair), Some(State::Closing));
        }
    });
}

/// Turns tell when a backend is chosen anew.
fn turns() -> String {
    preamble(TIMEOUTS) + &web("scheduler = \"round-robin\"", &["10.0.0.1", "10.0.0.2", "10.0.0.3"])
}

#[test]
fn a_syn_on_an_old_tuple_starts_afresh() {
    in_both(&turns(), 1, |lb| {
        let mut sent = |flags| lb.backend(segment(1, flags));
        assert_eq!((sent(SYN), sent(ACK)), ("10.0.0.1".into(), "10.0.0.1".into()));
        // Established, then reset.
        assert_eq!((sent(SYN), sent(ACK)), ("10.0.0.2".into(), "10.0.0.2".into()));
        assert_eq!((sent(RST), sent(ACK)), ("10.0.0.2".into(), "10.0.0.2".into()));
        assert_eq!((sent(SYN), sent(ACK)), ("10.0.0.3".into(), "10.0.0.3".into()));
        // As opening, with an opening's time.
        lb.one(segment(1, SYN));
        assert_eq!(lb.state(&client_of(1), WEB), Some(State::Opening));
        assert_lives(lb, 10, |lb| lb.state(&client_of(1), WEB).is_some());
    });
}

#[test]
fn a_syn_that_comes_again_is_the_same_connection() {
    in_both(&turns(), 1, |lb| {
        for _ in 0..5 {
            assert_eq!(lb.backend(segment(1, SYN)), "10.0.0.1");
        }
        assert_eq!(lb.admitted(), 1);
        // Flags that no connection begins with begin none.
        lb.one(segment(1, ACK));
        for flags in [SYN | ACK, SYN | FIN, SYN | RST, 0] {
            assert_eq!(lb.backend(segment(1, flags)), "10.0.0.1");
        }
        assert_eq!(lb.admitted(), 1);
    });
}

#[test]
fn what_is_no_syn_without_an_entry_takes_the_consistent_choice_and_gets_an_entry() {
    let backends_all = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
    let acks: Vec<_> = (0..100).map(|client| segment(client, ACK)).collect();
    // The schedulers differ for new connections only.
    let [by_maglev, by_turns, by_load] = ["maglev", "round-robin", "least-connections"].map(|it| {
        let config = preamble("") + &web(&format!("scheduler = \"{it}\""), &backends_all);
        let (taken_over, _) = in_all(&config, |lb| {
            let taken_over = backends(&lb.feed_spread(&acks));
            assert_eq!((lb.admitted(), lb.connections().len()), (100, 100));
            assert_eq!(lb.state(&client_of(5), WEB), Some(State::Established));
            assert_eq!(backends(&lb.feed_spread(&acks)), taken_over);
            taken_over
        });
        taken_over
    });
    assert_eq!((&by_turns, &by_load), (&by_maglev, &by_maglev));
}

#[test]
fn what_ends_a_connection_that_is_not_known_is_remembered_as_closing() {
    in_all(&turns(), |lb| {
        for (client, flags) in [(1, RST), (2, RST | ACK), (3, FIN | ACK)] {
            lb.one(segment(client, flags));
            assert_eq!(lb.state(&client_of(client), WEB), Some(State::Closing), "{flags:#x}");
        }
    });
}

#[test]
fn a_flow_is_told_by_protocol_addresses_and_ports() {
    let config = preamble("") + &service("all", "203.0.113.0/24 any any", "", &["10.0.0.1"]);
    in_all(&config, |lb| {
        for frame in [
            tcp().from("198.51.100.7:1").to("203.0.113.10:80"),
            udp().from("198.51.100.7:1").to("203.0.113.10:80"),
            tcp().from("198.51.100.7:2").to("203.0.113.10:80"),
            tcp().from("198.51.100.8:1").to("203.0.113.10:80"),
            tcp().from("198.51.100.7:1").to("203.0.113.11:80"),
            tcp().from("198.51.100.7:1").to("203.0.113.10:81"),
        ] {
            // Tags, marks and length tell no flows apart.
            for same in [frame.clone().vlan(5), frame.clone().tos(9), frame.payload([1; 60])] {
                lb.one(same);
            }
        }
        assert_eq!((lb.admitted(), lb.connections().len()), (6, 6));
    });
}

#[test]
fn both_directions_of_a_flow_its_fragments_and_errors_meet_on_one_worker() {
    use hotloop::packet::build::unreachable;
    in_both(&crate::four(""), 2, |lb| {
        for pair in PAIRS {
            for port in 1..60 {
                let (client, vip) = (pair.client(port), pair.vip(80));
                let before = lb.count(|it| it.replies_known.count());
                lb.one(tcp().from(&client).to(&vip));
                let answer = tcp().from(&vip).to(&client).tcp_flags(SYN | ACK);
                lb.answer(answer.clone().tunnelled(pair.backend, pair.source));
                assert_eq!(lb.count(|it| it.replies_known.count()), before + 1);
                lb.one(unreachable(&answer.build()));
            }
        }
        // One worker's tables have what the other's haven't, and both have some.
        let connections = lb.connections();
        let of_first = connections.iter().filter(|(worker, ..)| *worker == 0).count();
        assert_eq!(connections.len(), 4 * 59);
        (lb.admitted(), of_first > 0 && of_first < connections.len())
    });
}
