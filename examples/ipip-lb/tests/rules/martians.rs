//! Packets with addresses that no host has.

use super::{PAIRS, Pair, four};
use crate::deployed::{assert_dropped, in_all, preamble, service};
use hotloop::packet::build::{echo_request, tcp, udp};

/// Addresses that no host has, of the pair's clients' family.
fn martians(pair: Pair) -> &'static [&'static str] {
    match pair.is_v4() {
        true => &["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"],
        false => &["::", "::1", "ff02::1", "ff0e::1"],
    }
}

fn end(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:9") } else { format!("{address}:9") }
}

const COUNT: u64 = 2 * 6 + 2 * 4;

#[test]
fn martian_sources_reach_no_backend() {
    let (_, report) = in_all(&four("icmp_echo = \"forward\""), |lb| {
        for pair in PAIRS {
            for martian in martians(pair) {
                lb.none(tcp().from(end(martian)).to(pair.vip(80)));
                lb.none(udp().from(end(martian)).to(pair.vip(80)));
                lb.none(echo_request(1, 1).from(*martian).to(pair.vip));
                // A tunnel to the service, and one to the balancer with a request in it.
                let tunnelled = pair.request(udp());
                lb.none(tunnelled.tunnelled(*martian, pair.vip));
                let request = udp().from(end(martian)).to(pair.vip(80));
                lb.none(request.tunnelled("10.9.9.9", "192.0.2.1"));
            }
        }
        assert_eq!(lb.admitted(), 0);
    });
    assert_dropped(&report, &[("martian_source", 5 * COUNT)]);
}

#[test]
fn martian_destinations_leave_no_tunnel() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            for martian in martians(pair) {
                let reply = udp().from(pair.vip(80)).to(end(martian));
                lb.none(reply.tunnelled("10.0.0.1", "192.0.2.1"));
                let reply = udp().from(pair.vip(80)).to(end(martian));
                lb.none(reply.tunnelled("2001:db8:b::1", "2001:db8::1"));
                // A source that no host has takes precedence.
                let neither = udp().from(end(martian)).to(end(martian));
                lb.none(neither.tunnelled("10.0.0.1", "192.0.2.1"));
            }
            assert!(lb.one(pair.reply(udp()).tunnelled("10.0.0.1", "192.0.2.1")).to_client);
        }
    });
    assert_dropped(&report, &[("martian_destination", 2 * COUNT), ("martian_source", COUNT)]);
}

#[test]
fn a_service_of_a_group_or_of_every_address_takes_none_of_them() {
    let config = preamble("")
        + &service("groups", "224.0.0.0/4 udp any", "", &["10.0.0.1"])
        + &service("all", "0.0.0.0/0 tcp any", "", &["10.0.0.1"]);
    let (_, report) = in_all(&config, |lb| {
        for address in ["224.0.0.9", "239.1.2.3"] {
            lb.none(udp().from("198.51.100.7:9").to(end(address)));
        }
        for address in ["127.0.0.1", "255.255.255.255", "0.0.0.0"] {
            lb.none(tcp().from("198.51.100.7:9").to(end(address)));
        }
        assert_eq!(lb.backend(tcp().from("198.51.100.7:9").to("8.8.8.8:9")), "10.0.0.1");
    });
    assert_dropped(&report, &[("martian_destination", 5)]);
}
