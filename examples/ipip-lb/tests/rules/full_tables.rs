//! Fixed memory, and the treatment of flows that find no room.

use super::{client_of, segment, syns, web};
use crate::deployed::sent::backends;
use crate::deployed::{Running, assert_dropped, in_all, in_both, preamble, service};
use hotloop::packet::build::{tcp, udp};
use hotloop::packet::tcp::flags::{ACK, RST, SYN};
use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

const FOUR: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];

fn query(client: u16) -> Vec<u8> {
    udp().from(client_of(client)).to("203.0.113.10:53").build()
}

fn dns(balancer: &str, keys: &str) -> String {
    preamble(balancer) + &service("dns", "203.0.113.10 udp 53", keys, &FOUR)
}

/// Those of these clients whose TCP connections are remembered.
fn remembered(lb: &mut Running<'_>, clients: std::ops::Range<u16>) -> Vec<u16> {
    clients.filter(|client| lb.state(&client_of(*client), super::WEB).is_some()).collect()
}

/// A server answers each of these clients through the balancer.
fn answer(lb: &mut Running<'_>, clients: Range<u16>, flags: u8) {
    for client in clients {
        let backend = lb.remembered(&client_of(client), super::WEB).expect("it is remembered");
        let reply = tcp().from(super::WEB).to(client_of(client)).tcp_flags(flags);
        lb.answer(reply.tunnelled(&backend, "192.0.2.1"));
    }
}

/// Establishes connections of these clients, with answers from their server.
fn establish(lb: &mut Running<'_>, clients: Range<u16>) {
    lb.feed(&syns(clients.clone()));
    answer(lb, clients.clone(), SYN | ACK);
    lb.feed(&clients.map(|client| segment(client, ACK)).collect::<Vec<_>>());
}

/// Makes the existing connections exceptions: the configuration now chooses 10.0.0.9 for nearly
/// all.
fn change(lb: &mut Running<'_>, balancer: &str, others: &str) {
    let backends = ["10.0.0.9*500", FOUR[0], FOUR[1], FOUR[2], FOUR[3]];
    lb.configure(&(preamble(balancer) + &web("", &backends) + others));
    (0..100).for_each(|_| drop(lb.advance(Duration::ZERO)));
}

fn is_known(lb: &mut Running<'_>, client: u16) -> bool {
    lb.state(&client_of(client), super::WEB).is_some()
}

/// In a table of four, all entries are examined.
#[test]
fn a_full_table_evicts_what_came_first_of_what_proves_nothing_and_else_what_was_silent_for_longest()
{
    let balancer = "connections_max = 4\ntimeouts_s = { tcp_opening = 300, tcp_closing = 300 }";
    let config = preamble(balancer) + &web("", &FOUR);
    in_both(&config, 1, |lb| {
        let pass = |lb: &mut Running<'_>| drop(lb.advance(Duration::from_millis(100)));
        establish(lb, 0..1);
        change(lb, balancer, "");
        pass(lb);
        // The oldest by its last packet, after the exception.
        establish(lb, 1..2);
        pass(lb);
        lb.one(segment(2, ACK));
        pass(lb);
        lb.one(segment(3, RST));
        let connections = lb.connections();
        let exceptions: Vec<_> = connections.iter().filter(|it| it.2.is_exception()).collect();
        assert_eq!((connections.len(), exceptions.len()), (4, 1));
        // The ACK without a SYN, the closing one, and SYNs, in order of arrival; then connections
        // that are no exception.
        for (newcomer, leaving) in [(4, 2), (5, 3), (6, 4), (7, 5)] {
            pass(lb);
            assert!(is_known(lb, leaving));
            lb.one(segment(newcomer, SYN));
            assert!(is_known(lb, newcomer) && !is_known(lb, leaving), "{newcomer}");
            assert!(is_known(lb, 0) && is_known(lb, 1));
        }
        establish(lb, 6..8);
        pass(lb);
        lb.one(segment(8, SYN));
        assert!(is_known(lb, 8) && !is_known(lb, 1), "the oldest that loses nothing");
        assert!(is_known(lb, 0), "an exception stays");
        assert_eq!(lb.stateless(), 0);
    });
}

#[test]
fn an_exception_of_an_established_connection_removeds_only_where_all_are() {
    let balancer = "connections_max = 4";
    in_both(&(preamble(balancer) + &web("", &FOUR)), 1, |lb| {
        establish(lb, 0..3);
        lb.advance(Duration::from_millis(100));
        establish(lb, 3..4);
        change(lb, balancer, "");
        lb.advance(Duration::from_secs(70));
        // Client 1 has now been silent for longest.
        lb.feed(&[segment(0, ACK), segment(2, ACK)]);
        lb.one(segment(4, SYN));
        assert_eq!(remembered(lb, 0..5), [0, 2, 3, 4]);
        // The next ones displace each other.
        lb.feed(&syns(5..100));
        let now = remembered(lb, 0..100);
        assert_eq!((&now[..3], now.len()), (&[0, 2, 3][..], 4));
        assert_eq!(lb.stateless(), 0);
    });
}

#[test]
fn without_an_answer_a_connection_is_established_when_it_has_outlasted_an_opening() {
    let balancer = "connections_max = 4";
    in_both(&(preamble(balancer) + &web("", &FOUR)), 1, |lb| {
        let go_on = |lb: &mut Running<'_>, clients: Range<u16>| {
            lb.feed(&clients.map(|client| segment(client, ACK)).collect::<Vec<_>>());
        };
        lb.feed(&syns(0..4));
        go_on(lb, 0..4);
        change(lb, balancer, "");
        for _ in 0..3 {
            lb.advance(Duration::from_secs(5));
            go_on(lb, 0..2);
        }
        lb.advance(Duration::from_millis(100));
        // Silence proves nothing: these are in the state of their first packets.
        lb.feed(&syns(10..40));
        let now = remembered(lb, 0..40);
        assert_eq!((&now[..2], now.len()), (&[0, 1][..], 4));
        assert!(now[2] >= 10, "{now:?}");
    });
}

#[test]
fn a_datagram_alone_leaves_before_those_of_which_more_came() {
    let balancer = "connections_max = 4";
    in_both(&dns(balancer, "scheduler = \"round-robin\""), 1, |lb| {
        lb.feed(&[query(0), query(1), query(0), query(1)]);
        lb.advance(Duration::from_millis(100));
        lb.feed(&(2..30).map(query).collect::<Vec<_>>());
        let keys: HashSet<_> = lb.connections().iter().map(|it| it.1.source()).collect();
        let source = |client| client_of(client).parse::<std::net::SocketAddr>().unwrap().ip();
        assert!(keys.contains(&source(0)) && keys.contains(&source(1)) && keys.len() == 4);
        assert_eq!(lb.stateless(), 0);
    });
}

#[test]
fn what_finds_no_room_is_balanced_by_the_consistent_choice_and_counted_as_stateless() {
    // Three searches examine less than a table of 200 has.
    let flows: Vec<_> = (0..3).map(query).collect();
    let balancer = "connections_max = 200";
    for scheduler in ["maglev", "round-robin", "least-connections"] {
        let keys = format!("scheduler = \"{scheduler}\"");
        let others = service("dns", "203.0.113.10 udp 53", &keys, &FOUR);
        let by_hash = preamble("") + &service("dns", "203.0.113.10 udp 53", "", &FOUR);
        // The choice of balancers with room.
        let (expected, _) = in_all(&by_hash, |lb| backends(&lb.feed_spread(&flows)));
        let config = preamble(balancer) + &web("", &FOUR) + &others;
        let (_, [report, _]) = in_both(&config, 1, |lb| {
            establish(lb, 0..200);
            change(lb, balancer, &others);
            assert!(lb.connections().iter().all(|it| it.2.is_exception()));
            assert_eq!(backends(&lb.feed(&flows)), expected);
            assert_eq!((lb.admitted(), lb.stateless(), lb.connections().len()), (203, 3, 200));
            // After the maximum number of candidates has been examined, one leaves.
            lb.feed(&(3..33).map(query).collect::<Vec<_>>());
            let stay_count = remembered(lb, 0..200).len();
            assert!((190..200).contains(&stay_count), "{stay_count}");
        });
        assert_dropped(&report, &[]);
    }
}

#[test]
fn each_ip_version_has_its_room() {
    let config = preamble("connections_max = 10")
        + &service("v4", "203.0.113.10 udp 53", "", &FOUR)
        + &service("v6", "2001:db8:f::10 udp 53", "", &FOUR);
    in_both(&config, 1, |lb| {
        let query6 =
            |it: u16| udp().from(format!("[2001:db8:c::{it}]:9")).to("[2001:db8:f::10]:53");
        let queries6: Vec<_> = (0..30).map(|it| query6(it).build()).collect();
        lb.feed(&queries6);
        assert_eq!(lb.connections().len(), 10);
        lb.feed(&(0..10).map(query).collect::<Vec<_>>());
        assert_eq!((lb.connections().len(), lb.stateless()), (20, 0));
    });
}

#[test]
fn connections_whose_time_is_up_make_room() {
    in_both(&dns("connections_max = 10\ntimeouts_s = { udp = 20 }", ""), 1, |lb| {
        lb.feed(&(0..10).map(query).collect::<Vec<_>>());
        lb.advance(Duration::from_secs(15));
        // Half of them continue.
        lb.feed(&(0..5).map(query).collect::<Vec<_>>());
        lb.advance(Duration::from_millis(5_040));
        lb.feed(&(100..105).map(query).collect::<Vec<_>>());
        assert_eq!(lb.stateless(), 0);
        let keys: HashSet<_> = lb.connections().iter().map(|(_, key, _)| key.source()).collect();
        let expected = (0..5)
            .chain(100..105)
            .map(|client| client_of(client).parse::<std::net::SocketAddr>().unwrap().ip());
        assert_eq!(keys, expected.collect());
    });
}

#[test]
fn connections_that_come_too_fast_are_balanced_without_an_entry_by_worker() {
    let flows: Vec<_> = (0..400).map(query).collect();
    let (expected, _) = in_all(&dns("", ""), |lb| backends(&lb.feed_spread(&flows)));
    let limited = dns("new_connections_per_second_max = 30", "");
    let (_, [report, _]) = in_both(&limited, 2, |lb| {
        // Thirty on each of two workers.
        assert_eq!(backends(&lb.feed_spread(&flows)), expected);
        assert_eq!((lb.connections().len(), lb.admitted(), lb.stateless()), (60, 400, 340));
        // Known connections continue, however fast.
        lb.advance(Duration::from_millis(999));
        assert_eq!(backends(&lb.feed_spread(&flows)), expected);
        assert_eq!((lb.connections().len(), lb.stateless()), (60, 680));
        lb.advance(Duration::from_millis(1));
        assert_eq!(backends(&lb.feed_spread(&flows)), expected);
        assert_eq!((lb.connections().len(), lb.stateless()), (120, 680 + 280));
    });
    assert_dropped(&report, &[]);
}

#[test]
fn a_limit_of_0_remembers_nothing() {
    in_both(&dns("new_connections_per_second_max = 0", ""), 2, |lb| {
        lb.feed(&(0..50).map(query).collect::<Vec<_>>());
        assert_eq!((lb.connections().len(), lb.stateless()), (0, 50));
    });
}

#[test]
fn what_is_not_remembered_spends_no_turn() {
    let config = dns("new_connections_per_second_max = 2", "scheduler = \"round-robin\"");
    in_both(&config, 1, |lb| {
        let mut turns = Vec::new();
        for second in 0..4 {
            let first = second * 10;
            turns.extend(backends(&lb.feed(&[query(first), query(first + 1)])));
            lb.feed(&(first + 2..first + 9).map(query).collect::<Vec<_>>());
            lb.advance(Duration::from_secs(1));
        }
        assert_eq!(turns, [FOUR, FOUR].concat());
        assert_eq!(lb.stateless(), 28);
    });
}

#[test]
fn a_syn_flood_costs_state_not_service() {
    let config = preamble("connections_max = 100") + &web("", &FOUR);
    let (_, [report, _]) = in_both(&config, 2, |lb| {
        establish(lb, 0..80);
        let acks: Vec<_> = (0..80).map(|client| segment(client, ACK)).collect();
        let before = backends(&lb.feed(&acks));
        // From now on new connections go elsewhere: the existing ones must not be forgotten.
        change(lb, "connections_max = 100", "");
        let flood: Vec<_> = (10_000..12_000).map(|client| segment(client, SYN)).collect();
        assert_eq!(lb.feed(&flood).len(), 2000);
        assert_eq!(backends(&lb.feed(&acks)), before);
        // New connections of other clients get through.
        lb.feed(&syns(100..110));
        let there_count = remembered(lb, 100..110).len();
        assert!(there_count > 5, "{there_count}, though one may take another's place");
    });
    assert_dropped(&report, &[]);
}
