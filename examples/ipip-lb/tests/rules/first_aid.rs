//! Blocked prefixes, and limits on new connections.

use super::{PAIRS, V6_IN_V6, WEB, four, web};
use crate::deployed::{Running, Sent, assert_dropped, in_all, preamble, service};
use hotloop::packet::build::{echo_request, tcp, udp};
use hotloop::packet::prefix::{Prefix, PrefixSet};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use std::sync::Arc;
use std::time::Duration;

fn block(lb: &mut Running<'_>, prefixes: &[&str]) {
    let blocks: PrefixSet = prefixes.iter().map(|it| it.parse::<Prefix>().unwrap()).collect();
    lb.overrides.blocked = (!prefixes.is_empty()).then(|| Arc::new(blocks));
    lb.reload();
}

#[test]
fn what_comes_from_a_blocked_prefix_reaches_no_backend() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            let others =
                pair.syn().from(if pair.is_v4() { "198.51.101.1:1" } else { "[2001:db8:d::1]:1" });
            // A known connection, and a new one.
            lb.one(pair.syn());
            block(lb, &["198.51.100.0/24", "2001:db8:c::/48"]);
            lb.none(pair.request(tcp()).tcp_flags(ACK));
            lb.none(pair.syn().from(pair.client(4001)));
            lb.none(pair.request(udp()));
            let fragments = pair.request(udp()).payload([7; 3000]).build_fragments(1400);
            assert_eq!((fragments.len(), lb.feed(&fragments)), (3, vec![]));
            // Also through a tunnel that ends here.
            let (peer, own) = ("10.9.9.1", "192.0.2.1");
            lb.none(pair.syn().tunnelled(peer, own));
            lb.one(others);
            block(lb, &[]);
            lb.one(pair.request(tcp()).tcp_flags(ACK));
            lb.one(pair.syn().from(pair.client(4001)));
        }
    });
    assert_dropped(&report, &[("blocked", 4 * 7)]);
}

#[test]
fn what_is_not_for_a_service_is_never_blocked() {
    let (_, report) = in_all(&four(""), |lb| {
        block(lb, &["0.0.0.0/0", "::/0"]);
        lb.none(udp().from("198.51.100.7:1").to("192.0.2.1:22"));
        lb.none(udp().from("[2001:db8:c::7]:1").to("[2001:db8::1]:22"));
        for pair in PAIRS {
            // An answer on its way to a client comes from a backend.
            let source = if pair.is_in_v4() { "192.0.2.1" } else { "2001:db8::1" };
            assert!(lb.one(pair.reply(udp()).tunnelled(pair.backend, source)).to_client);
        }
        lb.none(echo_request(7, 1).from("198.51.100.7").to("203.0.113.10"));
    });
    assert_dropped(&report, &[("punt", 2), ("blocked", 1)]);
}

const FIVE_A_SECOND: &str = "source_new_connections_per_second_max = 5";

/// A balancer with one service that has these limits.
fn limited(limits: &str, keys: &str) -> String {
    format!("[limits]\n{limits}\n{}{}", preamble(""), web(keys, &["10.0.0.1", "10.0.0.2"]))
}

/// SYNs from one host, each for another connection.
fn syns_from(host: &str, ports: std::ops::Range<u16>) -> Vec<Vec<u8>> {
    let syn = |port| tcp().from(format!("{host}:{port}")).to(WEB).tcp_flags(SYN).build();
    ports.map(syn).collect()
}

fn from_hosts(sent: &[Sent], prefix: [u8; 3]) -> usize {
    sent.iter().filter(|it| it.inner()[12..15] == prefix).count()
}

/// Three seconds of an attack from ten hosts, each with a thousand SYNs a second, while ninety
/// others open a connection each second: every one of these gets through, and their open
/// connections continue.
#[test]
fn honest_clients_get_through_while_attackers_are_limited() {
    let limits = format!("{FIVE_A_SECOND}\nservice_new_connections_per_second_max = 200");
    let (attack, report) = in_all(&limited(&limits, ""), |lb| {
        let (mut attack, mut honest) = (0, 0);
        for second in 0..3_u16 {
            for tenth in 0..10_u16 {
                let mut frames = Vec::new();
                for host in 1..=10 {
                    let from = 1000 + (second * 10 + tenth) * 100;
                    frames.extend(syns_from(&format!("192.0.8.{host}"), from..from + 100));
                }
                for host in 0..9 {
                    let host = format!("198.51.100.{}", 1 + tenth * 9 + host);
                    frames.extend(syns_from(&host, second..second + 1));
                    let open = tcp().from(format!("{host}:{second}")).to(WEB).tcp_flags(ACK);
                    frames.push(open.build());
                }
                let sent = lb.feed_spread(&frames);
                attack += from_hosts(&sent, [192, 0, 8]);
                honest += from_hosts(&sent, [198, 51, 100]);
                lb.advance(Duration::from_millis(100));
            }
        }
        assert_eq!(honest, 3 * 90 * 2, "each SYN and each ACK");
        // Five at once, and five a second.
        assert!((10 * 15..=10 * 20).contains(&attack), "{attack}");
        assert_eq!(lb.admitted(), (270 + attack) as u64);
        attack
    });
    let limited = 3 * 10 * 1000 - attack as u64;
    assert_dropped(&report, &[("source_limit", limited)]);
    assert_eq!(report.received, 3 * 10 * (1000 + 9 * 2));
}

#[test]
fn a_service_gets_no_more_new_connections_than_its_limit_from_whomever() {
    let limits = "service_new_connections_per_second_max = 100";
    let more = service("more", "203.0.113.10 tcp 81", "", &["10.0.0.3"]);
    for (keys, limit) in [("", 100), ("new_connections_per_second_max = 30", 30)] {
        let (_, report) = in_all(&(limited(limits, keys) + &more), |lb| {
            let frames: Vec<_> =
                (1..=250).flat_map(|host| syns_from(&format!("10.7.0.{host}"), 1..3)).collect();
            assert_eq!(lb.feed_spread(&frames).len(), limit);
            // The other services of the same address have their own limits.
            lb.one(tcp().from("10.7.1.1:1").to("203.0.113.10:81"));
            lb.advance(Duration::from_millis(510));
            assert_eq!(lb.feed_spread(&frames[250..]).len(), limit * 51 / 100);
            // A reload refills no bucket.
            lb.reload();
            lb.none(frames[499].clone());
        });
        let dropped = 500 - limit as u64 + 250 - limit as u64 * 51 / 100 + 1;
        assert_dropped(&report, &[("service_limit", dropped)]);
    }
}

#[test]
fn what_a_source_has_too_many_of_takes_nothing_from_the_services_limit() {
    let limits = format!("{FIVE_A_SECOND}\nservice_new_connections_per_second_max = 15");
    let (_, report) = in_all(&limited(&limits, ""), |lb| {
        assert_eq!(lb.feed_spread(&syns_from("10.7.0.1", 1..500)).len(), 5);
        let others: Vec<_> =
            (1..=12).flat_map(|host| syns_from(&format!("10.7.1.{host}"), 1..2)).collect();
        assert_eq!(lb.feed_spread(&others).len(), 10);
    });
    assert_dropped(&report, &[("source_limit", 494), ("service_limit", 2)]);
}

#[test]
fn limits_count_what_begins_a_connection_and_nothing_else() {
    let (_, report) = in_all(&limited("source_new_connections_per_second_max = 2", ""), |lb| {
        let send = |flags| tcp().from("10.7.0.1:1").to(WEB).tcp_flags(flags);
        lb.one(send(SYN));
        // The same connection, however often its SYN is sent; then it is open, closes, and another
        // begins.
        for flags in [SYN, SYN, ACK, ACK, SYN, RST, SYN, SYN] {
            lb.one(send(flags));
        }
        lb.one(send(RST));
        lb.none(send(SYN));
        // Connections in progress, such as another balancer's, are let through.
        for port in 2..50 {
            lb.one(tcp().from(format!("10.7.0.1:{port}")).to(WEB).tcp_flags(ACK));
            lb.one(tcp().from(format!("10.7.0.1:{port}")).to(WEB).tcp_flags(FIN | ACK));
        }
    });
    assert_dropped(&report, &[("source_limit", 1)]);
}

#[test]
fn other_protocols_begin_with_their_first_packet() {
    let config = format!("[limits]\n{FIVE_A_SECOND}\n{}", four(""));
    let (_, report) = in_all(&config, |lb| {
        for pair in PAIRS.into_iter().take(3).skip(1) {
            let count = |lb: &mut Running<'_>| {
                let datagram = |port| pair.request(udp()).from(pair.client(port)).build();
                lb.feed_spread(&(1..=20).map(datagram).collect::<Vec<_>>()).len()
            };
            assert_eq!(count(lb), 5);
            // Those five flows continue.
            assert_eq!(count(lb), 5);
        }
    });
    assert_dropped(&report, &[("source_limit", 60)]);
}

#[test]
fn the_hosts_of_a_prefix_share_its_limit() {
    let limits = format!("{FIVE_A_SECOND}\nsource_prefix_v4 = 24\nsource_prefix_v6 = 56");
    let six = service("six", "2001:db8:f::10 tcp 80", "", &["2001:db8:b::1"]);
    let (_, report) = in_all(&(limited(&limits, "") + &six), |lb| {
        let hosts =
            |net: &str| (1..=50).flat_map(|it| syns_from(&format!("{net}.{it}"), 1..2)).collect();
        let (one, other): (Vec<_>, Vec<_>) = (hosts("10.7.0"), hosts("10.7.1"));
        assert_eq!((lb.feed_spread(&one).len(), lb.feed_spread(&other).len()), (5, 5));
        let hosts = |net: &str| -> Vec<_> {
            let host = |it| format!("[2001:db8:c:{}::1]:1", net.replace("NN", &format!("{it}")));
            let syn = |it| tcp().from(host(it)).to(V6_IN_V6.vip(80)).build();
            (10..50).map(syn).collect()
        };
        let (one, other) = (hosts("NN"), hosts("NN00"));
        assert_eq!((lb.feed_spread(&one).len(), lb.feed_spread(&other).len()), (5, 40));
    });
    assert_dropped(&report, &[("source_limit", 45 * 2 + 35)]);
}
