//! Fixed memory, and what becomes of flows that find none.

use crate::deployed::left::backends;
use crate::deployed::{Running, assert_dropped, in_all, in_both, preamble, service};
use crate::{client_of, segment, syns, web};
use hotloop::packet::build::udp;
use hotloop::packet::tcp::flags::{ACK, SYN};
use std::collections::HashSet;
use std::time::Duration;

const FOUR: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];

fn query(client: u16) -> Vec<u8> {
    udp().from(client_of(client)).to("203.0.113.10:53").build()
}

fn dns(balancer: &str, keys: &str) -> String {
    preamble(balancer) + &service("dns", "203.0.113.10 udp 53", keys, &FOUR)
}

/// Which of these clients' TCP connections are remembered.
fn remembered(lb: &mut Running<'_>, clients: std::ops::Range<u16>) -> Vec<u16> {
    clients.filter(|client| lb.state(&client_of(*client), crate::WEB).is_some()).collect()
}

#[test]
fn a_full_table_evicts_connections_in_opening_only() {
    let config = preamble("connections_max = 10") + &web("", &FOUR);
    let (_, report) = in_both(&config, 1, |lb| {
        // Six established, four opening.
        lb.feed(&syns(0..10));
        lb.feed(&(0..6).map(|client| segment(client, ACK)).collect::<Vec<_>>());
        assert_eq!(remembered(lb, 0..10).len(), 10);
        // Opening ones go for others that open.
        lb.feed(&syns(100..200));
        assert_eq!(remembered(lb, 0..6), [0, 1, 2, 3, 4, 5]);
        assert_eq!((lb.connections().len(), lb.stateless()), (10, 0));
        // Until all are established.
        let opening: Vec<_> = remembered(lb, 6..200);
        lb.feed(&opening.iter().map(|client| segment(*client, ACK)).collect::<Vec<_>>());
        let kept = remembered(lb, 0..200);
        lb.feed(&syns(200..300));
        assert_eq!(lb.stateless(), 100);
        assert_eq!(remembered(lb, 0..300), kept);
    });
    assert_dropped(&report[0], &[]);
}

#[test]
fn what_finds_no_room_is_balanced_by_the_consistent_choice_and_counted_as_stateless() {
    let flows: Vec<_> = (0..100).map(query).collect();
    // As many balancers would that have room.
    let (expected, _) = in_all(&dns("", ""), |lb| backends(&lb.feed_spread(&flows)));
    for scheduler in ["maglev", "round-robin", "least-connections"] {
        let keys = format!("scheduler = \"{scheduler}\"");
        let (_, [report, _]) = in_both(&dns("connections_max = 10", &keys), 1, |lb| {
            // Other flows take all the room.
            lb.feed(&(500..510).map(query).collect::<Vec<_>>());
            assert_eq!(lb.stateless(), 0);
            for round in 1..4 {
                assert_eq!(backends(&lb.feed(&flows)), expected);
                assert_eq!((lb.admitted(), lb.stateless()), (10 + round * 100, round * 100));
            }
            assert_eq!(lb.connections().len(), 10);
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
        assert_eq!((lb.connections().len(), lb.stateless()), (10, 20));
        lb.feed(&(0..10).map(query).collect::<Vec<_>>());
        assert_eq!((lb.connections().len(), lb.stateless()), (20, 20));
    });
}

#[test]
fn connections_whose_time_is_up_make_room() {
    in_both(&dns("connections_max = 10\ntimeouts_s = { udp = 20 }", ""), 1, |lb| {
        lb.feed(&(0..10).map(query).collect::<Vec<_>>());
        lb.advance(Duration::from_secs(15));
        // Half of them go on.
        lb.feed(&(0..5).map(query).collect::<Vec<_>>());
        lb.advance(Duration::from_millis(5_040));
        lb.feed(&(100..105).map(query).collect::<Vec<_>>());
        assert_eq!(lb.stateless(), 0);
        lb.feed(&(200..201).map(query).collect::<Vec<_>>());
        assert_eq!(lb.stateless(), 1);
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
        // What is known goes on, however fast.
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
        lb.feed(&syns(0..80));
        let acks: Vec<_> = (0..80).map(|client| segment(client, ACK)).collect();
        let before = backends(&lb.feed(&acks));
        // The flood is balanced, and new connections of others find their way through it.
        let flood: Vec<_> = (10_000..12_000).map(|client| segment(client, SYN)).collect();
        assert_eq!(lb.feed(&flood).len(), 2000);
        lb.configure(
            &(preamble("connections_max = 100")
                + &web("", &["10.0.0.9*9", FOUR[0], FOUR[1], FOUR[2], FOUR[3]])),
        );
        assert_eq!(backends(&lb.feed(&acks)), before);
    });
    assert_dropped(&report, &[]);
}
