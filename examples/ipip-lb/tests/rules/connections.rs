//! The entries of connections, and how long they are kept.

use super::{PAIRS, Pair, V4_IN_V4, WEB, client_of, segment, syns, web};
use crate::deployed::sent::backends;
use crate::deployed::{Running, in_all, in_both, preamble, service};
use hotloop::packet::build::{protocol, tcp, udp};
use hotloop::packet::ip::protocol as number;
use hotloop::packet::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use hotloop_balancer::connection::State;
use hotloop_balancer::spec::Scheduler;
use std::time::Duration;

const TIMEOUTS: &str = "timeouts_s = { tcp_opening = 10, tcp_established = 100, tcp_closing = 5, \
                        udp = 20, other = 30 }";

/// Maximum excess of a connection's lifetime: two steps of the tables' clock.
const SLACK: Duration = Duration::from_millis(34);

fn config() -> String {
    super::four(TIMEOUTS)
}

/// Sends the server's answer, through the tunnel.
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

/// Checks that the connection exists to the end of its time, and no longer.
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
                    false => (super::with_port(pair.client, 0), super::with_port(pair.vip, 0)),
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

/// A service with turns, which show when a backend is chosen anew.
fn turns() -> String {
    preamble(TIMEOUTS) + &web("scheduler = \"round-robin\"", &["10.0.0.1", "10.0.0.2", "10.0.0.3"])
}

#[test]
fn a_syn_goes_to_the_connections_backend_while_that_takes_new_ones_however_old_it_is() {
    in_both(&turns(), 1, |lb| {
        let sent = |lb: &mut Running<'_>, flags, state| {
            assert_eq!(lb.backend(segment(1, flags)), "10.0.0.1");
            assert_eq!(lb.state(&client_of(1), WEB), Some(state));
        };
        sent(lb, SYN, State::Opening);
        sent(lb, ACK, State::Established);
        // The backend decides whether that is another connection.
        sent(lb, SYN, State::Established);
        lb.advance(Duration::from_secs(70));
        sent(lb, SYN, State::Established);
        assert_lives(lb, 100, |lb| lb.state(&client_of(1), WEB).is_some());

        assert_eq!(lb.backend(segment(2, SYN)), "10.0.0.2");
        for flags in [RST, FIN | ACK] {
            lb.one(segment(2, flags));
            assert_eq!(lb.state(&client_of(2), WEB), Some(State::Closing));
            // With an opening's timeout, and no state of the earlier connection.
            assert_eq!(lb.backend(segment(2, SYN)), "10.0.0.2");
            assert_eq!(lb.state(&client_of(2), WEB), Some(State::Opening));
            lb.advance(Duration::from_secs(9));
            assert_eq!(lb.backend(segment(2, ACK)), "10.0.0.2");
            assert_eq!(lb.state(&client_of(2), WEB), Some(State::Established));
        }
        assert_eq!(lb.admitted(), 2);
    });
}

/// Whether a SYN this long after the last packet of a connection goes elsewhere.
fn moves(lb: &mut Running<'_>, client: u16, after: Duration) -> bool {
    lb.advance(after);
    let before = lb.remembered(&client_of(client), WEB).expect("it is remembered");
    let after = lb.backend(segment(client, SYN));
    assert_eq!(lb.backend(segment(client, ACK)), after, "and stays there");
    after != before
}

#[test]
fn where_the_backend_takes_no_new_ones_a_syn_begins_another_when_the_known_one_is_over() {
    let keys = "scheduler = \"round-robin\"\nhealth = { kind = \"tcp\", port = 80 }";
    let config = preamble(TIMEOUTS) + &web(keys, &["10.0.0.1", "10.0.0.2"]);
    for is_down in [false, true] {
        in_both(&config, 1, |lb| {
            lb.feed(&syns(0..8));
            lb.feed(&(0..8).map(|client| segment(client, ACK)).collect::<Vec<_>>());
            match is_down {
                true => lb.set_health("web", "10.0.0.1", false),
                false => lb.weigh("web", "10.0.0.1", 0),
            }
            // Clients with even numbers have its connections; the others don't matter.
            assert!((1..8).step_by(2).all(|client| !moves(lb, client, Duration::ZERO)));
            assert!(!moves(lb, 0, Duration::ZERO));
            lb.one(segment(2, RST));
            assert!(moves(lb, 2, Duration::ZERO), "it was closing");
            assert!(!moves(lb, 4, Duration::from_millis(59_900)));
            assert!(moves(lb, 6, Duration::from_millis(100)), "nothing for a minute");
            lb.advance(Duration::from_millis(59_900));
            // Without a SYN no connection begins.
            assert_eq!(lb.backend(segment(4, ACK)), "10.0.0.1");
            assert!(!moves(lb, 4, Duration::from_millis(59_900)));
            assert!(moves(lb, 4, Duration::from_secs(60)));
            assert_eq!(lb.admitted(), 8);
        });
    }
}

#[test]
fn a_blind_syn_moves_no_connection() {
    for scheduler in ["maglev", "round-robin", "least-connections", "source"] {
        let keys = format!("scheduler = \"{scheduler}\"");
        let eight: Vec<_> = (1..9).map(|it| format!("10.0.0.{it}")).collect();
        let eight: Vec<_> = eight.iter().map(String::as_str).collect();
        in_all(&(preamble("") + &web(&keys, &eight)), |lb| {
            let mut moved_count = 0;
            for client in 0..50 {
                let before = lb.backend(segment(client, SYN));
                lb.one(segment(client, ACK));
                lb.one(segment(client, ACK | PSH));
                lb.one(segment(client, SYN));
                moved_count += usize::from(lb.backend(segment(client, ACK | PSH)) != before);
            }
            assert_eq!(moved_count, 0, "of 50, {scheduler}");
        });
    }
}

/// Takes enough turns to examine all connections in a table of 200.
fn turn_often(lb: &mut Running<'_>) {
    for _ in 0..100 {
        lb.advance(Duration::ZERO);
    }
}

/// Checks which connections are marked as exceptions, and returns their number.
fn exceptions(lb: &mut Running<'_>) -> usize {
    let mut count = 0;
    let hashes = lb.handles.services.settings.hashes;
    for (_, key, connection) in lb.connections() {
        let service = lb.handles.services.service_of_flow(&key).expect("a service");
        let by_hash = match service.scheduler {
            Scheduler::Source => hashes.of_client(key.source()),
            _ => hashes.seed().hash(&key),
        };
        let is_by_turns = service.scheduler == Scheduler::RoundRobin;
        let is_exception = service.by_hash(by_hash) != Some(connection.target)
            || is_by_turns && key.protocol() == number::UDP;
        assert_eq!(connection.is_exception(), is_exception, "{key:?}");
        count += usize::from(is_exception);
    }
    count
}

#[test]
fn a_connection_is_an_exception_where_it_would_go_elsewhere_if_it_were_forgotten() {
    let config = |scheduler: &str, backends: &[&str]| {
        let keys = format!("scheduler = \"{scheduler}\"\npersistence_s = 60");
        let keys = if scheduler == "source" { &keys } else { keys.lines().next().unwrap() };
        preamble("connections_max = 200") + &service("all", "203.0.113.10 any any", keys, backends)
    };
    let four = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
    for scheduler in ["maglev", "source", "round-robin"] {
        in_both(&config(scheduler, &four), 1, |lb| {
            lb.feed(&syns(0..60));
            let query = |it| udp().from(client_of(it)).to("203.0.113.10:53").build();
            lb.feed(&(100..130).map(query).collect::<Vec<_>>());
            let count = exceptions(lb);
            assert_eq!(lb.connections().len(), 90);
            match scheduler {
                "round-robin" => assert!((60..90).contains(&count), "{count}"),
                _ => assert_eq!(count, 0),
            }
            // Another configuration, and back.
            let others = [&four[..3], &["10.0.0.4*9", "10.0.0.9*9"]].concat();
            lb.configure(&config(scheduler, &others));
            turn_often(lb);
            let moved_count = exceptions(lb);
            assert!(moved_count > 40 && moved_count < 90, "{moved_count}");
            lb.configure(&config("maglev", &four));
            turn_often(lb);
            let count = exceptions(lb);
            assert_eq!(count == 0, scheduler == "maglev", "{count}");
        });
    }
}

#[test]
fn a_syn_that_comes_again_is_the_same_connection() {
    in_both(&turns(), 1, |lb| {
        for _ in 0..5 {
            assert_eq!(lb.backend(segment(1, SYN)), "10.0.0.1");
        }
        assert_eq!(lb.admitted(), 1);
        // Flags that can't begin a connection begin none.
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
fn a_flow_is_identified_by_protocol_addresses_and_ports() {
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
            // Tags, marks and length don't distinguish flows.
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
    in_both(&super::four(""), 2, |lb| {
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
        // The workers' tables have different connections, and both have some.
        let connections = lb.connections();
        let of_first = connections.iter().filter(|(worker, ..)| *worker == 0).count();
        assert_eq!(connections.len(), 4 * 59);
        (lb.admitted(), of_first > 0 && of_first < connections.len())
    });
}
