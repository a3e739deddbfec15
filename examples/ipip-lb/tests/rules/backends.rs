//! Backends that come, go, fail, and change their weights: the effect on connections.

use super::{WEB, client_of, segment, syns, web};
use crate::deployed::sent::backends;
use crate::deployed::{Running, assert_dropped, in_all, preamble, service};
use hotloop::packet::build::{tcp, udp, unreachable};
use hotloop::packet::tcp::flags::{ACK, FIN};
use hotloop_balancer::services::Removal;
use std::collections::HashSet;

const SCHEDULERS: [&str; 4] = ["maglev", "round-robin", "least-connections", "source"];
const FOUR: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];

const PROBED: &str = "health = { kind = \"tcp\", port = 80 }";

/// Begins connections of clients 0 to 59, and returns their backends.
fn begin(lb: &mut Running<'_>) -> Vec<String> {
    backends(&lb.feed_spread(&syns(0..60)))
}

/// Continues them, and returns their backends.
fn go_on(lb: &mut Running<'_>) -> Vec<String> {
    backends(&lb.feed_spread(&(0..60).map(|client| segment(client, ACK)).collect::<Vec<_>>()))
}

fn distinct(backends: &[String]) -> HashSet<&str> {
    backends.iter().map(String::as_str).collect()
}

/// In all deployments and with all schedulers, with two backends. The chosen backends may differ.
fn with_all_schedulers(keys: &str, dropped: &[(&str, u64)], script: impl Fn(&mut Running<'_>)) {
    for scheduler in SCHEDULERS {
        let keys = format!("scheduler = \"{scheduler}\"\n{keys}");
        let config = preamble("") + &web(&keys, &FOUR[..2]);
        let (_, report) = in_all(&config, &script);
        assert_dropped(&report, dropped);
    }
}

#[test]
fn a_connection_keeps_its_backend_while_that_exists_whatever_else_changes() {
    with_all_schedulers("", &[], |lb| {
        let before = begin(lb);
        assert_eq!(distinct(&before).len(), 2);
        for keys in ["scheduler = \"maglev\"", "scheduler = \"round-robin\""] {
            for now in
                [&FOUR[..], &["10.0.0.2*9", "10.0.0.1"], &["10.0.0.3*99", "10.0.0.1", "10.0.0.2"]]
            {
                lb.configure(&(preamble("maglev_slots = 13") + &web(keys, now)));
                assert_eq!(go_on(lb), before);
            }
        }
        // Even while another service takes precedence over its own.
        let narrower = service("narrower", "203.0.113.10 tcp 80", "", &["10.0.0.9"]);
        let wide = service("web", "203.0.113.10 tcp any", "", &FOUR);
        lb.configure(&(preamble("") + &wide + &narrower));
        assert_eq!(go_on(lb), before);
        assert_eq!(lb.backend(segment(999, ACK)), "10.0.0.9");
    });
}

#[test]
fn weight_0_gives_no_new_connections_and_leaves_those_that_are() {
    with_all_schedulers("", &[], |lb| {
        let before = begin(lb);
        lb.weigh("web", "10.0.0.1", 0);
        assert_eq!(go_on(lb), before);
        assert_eq!(distinct(&backends(&lb.feed(&syns(100..160)))), ["10.0.0.2"].into());
        // Not even for connections from another balancer.
        let acks: Vec<_> = (200..260).map(|client| segment(client, ACK)).collect();
        assert_eq!(distinct(&backends(&lb.feed(&acks))), ["10.0.0.2"].into());
        lb.weigh("web", "10.0.0.1", 1);
        assert!(distinct(&backends(&lb.feed(&syns(300..360)))).contains("10.0.0.1"));
        assert_eq!(go_on(lb), before);
    });
}

#[test]
fn a_backend_that_is_down_gets_no_new_connections_and_keeps_those_it_has() {
    with_all_schedulers(PROBED, &[], |lb| {
        let before = begin(lb);
        lb.set_health("web", "10.0.0.2", false);
        assert_eq!(go_on(lb), before);
        assert_eq!(distinct(&backends(&lb.feed(&syns(100..160)))), ["10.0.0.1"].into());
        lb.set_health("web", "10.0.0.2", true);
        assert!(distinct(&backends(&lb.feed(&syns(200..260)))).contains("10.0.0.2"));
    });
}

#[test]
fn when_all_are_down_all_of_them_get_new_connections_by_default() {
    with_all_schedulers(PROBED, &[], |lb| {
        lb.set_health("web", "10.0.0.1", false);
        lb.set_health("web", "10.0.0.2", false);
        assert_eq!(distinct(&begin(lb)).len(), 2);
        // Except to backends with weight 0.
        lb.weigh("web", "10.0.0.2", 0);
        assert_eq!(distinct(&backends(&lb.feed(&syns(100..160)))), ["10.0.0.1"].into());
    });
}

#[test]
fn when_all_are_down_new_connections_are_dropped_where_all_down_says_so() {
    let keys = format!("all_down = \"drop\"\n{PROBED}");
    with_all_schedulers(&keys, &[("no_backend", 20)], |lb| {
        let before = begin(lb);
        lb.set_health("web", "10.0.0.1", false);
        assert_eq!(distinct(&backends(&lb.feed(&syns(100..160)))), ["10.0.0.2"].into());
        lb.set_health("web", "10.0.0.2", false);
        assert_eq!(go_on(lb), before);
        assert_eq!(lb.feed(&syns(200..220)), []);
        lb.set_health("web", "10.0.0.1", true);
        assert_eq!(distinct(&backends(&lb.feed(&syns(200..220)))), ["10.0.0.1"].into());
    });
}

#[test]
fn the_connections_of_a_backend_that_is_removed_go_to_others_and_stay_there() {
    with_all_schedulers("", &[], |lb| {
        let before = begin(lb);
        lb.configure(&(preamble("") + &web("", &["10.0.0.2", "10.0.0.3", "10.0.0.4"])));
        let after = go_on(lb);
        for (before, after) in before.iter().zip(&after) {
            assert!(after != "10.0.0.1" && (before == "10.0.0.1" || before == after));
        }
        // When it comes back it is another backend for these connections.
        lb.configure(&(preamble("") + &web("", &FOUR)));
        assert_eq!(go_on(lb), after);
        assert_eq!(lb.connections().len(), 60);
    });
}

#[test]
fn a_backend_taken_out_by_hand_is_like_one_that_was_removed() {
    with_all_schedulers("", &[], |lb| {
        let before = begin(lb);
        lb.remove("web", "10.0.0.1", Removal::Rebalance);
        assert!(before.iter().any(|it| it == "10.0.0.1"));
        assert_eq!(distinct(&go_on(lb)), ["10.0.0.2"].into());
        assert_eq!(distinct(&backends(&lb.feed(&syns(100..160)))), ["10.0.0.2"].into());
    });
}

#[test]
fn connections_that_are_flushed_are_dropped_until_a_syn_comes() {
    let config = preamble("") + &web("", &FOUR[..2]);
    let (_, report) = in_all(&config, |lb| {
        let before = begin(lb);
        go_on(lb);
        lb.remove("web", "10.0.0.1", Removal::Flush);
        let flushed = (0_u16..).zip(&before).filter(|(_, backend)| *backend == "10.0.0.1");
        let flushed: Vec<_> = flushed.map(|(client, _)| client).take(10).collect();
        for client in &flushed {
            lb.none(segment(*client, ACK));
            lb.none(segment(*client, FIN | ACK));
            let answer = tcp().from(WEB).to(client_of(*client)).build();
            lb.none(unreachable(&answer));
            assert_eq!(lb.backend(segment(*client, 2)), "10.0.0.2");
            assert_eq!(lb.backend(segment(*client, ACK)), "10.0.0.2");
        }
        // The other connections continue.
        let other = (0..).zip(&before).find(|(_, backend)| *backend == "10.0.0.2").unwrap().0;
        assert_eq!(lb.backend(segment(other, ACK)), "10.0.0.2");
    });
    assert_dropped(&report, &[("flushed", 30)]);
}

#[test]
fn connections_of_a_service_that_is_removed_are_dropped_by_what_the_rules_say_now() {
    let config = preamble("") + &service("all", "203.0.113.10 any any", "", &["10.0.0.1"]);
    let (_, report) = in_all(&config, |lb| {
        assert_eq!(lb.backend(segment(1, 2)), "10.0.0.1");
        lb.configure(&(preamble("") + &service("dns", "203.0.113.10 udp 53", "", &["10.0.0.1"])));
        lb.none(segment(1, ACK));
        lb.configure(&(preamble("") + &service("dns", "203.0.113.11 udp 53", "", &["10.0.0.1"])));
        lb.none(segment(1, ACK));
        // A service that comes instead takes them over.
        lb.configure(&(preamble("") + &service("new", "203.0.113.10 any any", "", &["10.0.0.2"])));
        assert_eq!(lb.backend(segment(1, ACK)), "10.0.0.2");
    });
    assert_dropped(&report, &[("no_service", 1), ("punt", 1)]);
}

#[test]
fn a_reload_counts_for_what_holds_for_all_services_too() {
    let service = || service("all", "203.0.113.10 any any", "", &["10.0.0.1"]);
    let (_, report) = in_all(&(preamble("") + &service()), |lb| {
        use hotloop::packet::build::echo_request;
        use std::time::Duration;
        let echo = || echo_request(1, 1).from("198.51.100.7").to("203.0.113.10");
        let query = || udp().from(client_of(1)).to("203.0.113.10:53");
        assert!(lb.one(echo()).to_client);
        lb.one(query());
        let changed = "icmp_echo = \"forward\"\nmtu = 600\ntimeouts_s = { udp = 5 }\n\
                       decapsulate = [\"192.0.2.9\"]\nsource_v4 = \"192.0.2.9\"";
        lb.configure(&(preamble(changed) + &service()));
        assert_eq!(lb.backend(echo()), "10.0.0.1");
        assert_eq!(lb.one(query()).unwrapped().0.source.to_string(), "192.0.2.9");
        assert_eq!(lb.feed(&[query().payload([0; 800]).build()]).len(), 2);
        lb.none(
            udp().from("203.0.113.10:53").to("198.51.100.7:1").tunnelled("10.0.0.1", "192.0.2.1"),
        );
        lb.advance(Duration::from_millis(5_040));
        assert!(lb.connection(17, &client_of(1), "203.0.113.10:53").is_none());
    });
    assert_dropped(&report, &[("icmp_echo", 1), ("punt", 1)]);
}
