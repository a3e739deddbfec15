//! Connections: their states, timeouts, errors about them, and reloads.

use crate::wall::{RULES, Wall, rules_of};
use firewall::packet::Side;
use firewall::rules::Rules;
use hotloop::packet::build::{
    PacketBuilder, echo_reply, echo_request, redirect, tcp, udp, unreachable,
};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop::packet::{icmp::IcmpView, tcp::TcpView};
use hotloop::prelude::Deployment;
use std::sync::Arc;

const TWO_CORES: Deployment = Deployment::run_to_completion(2);

/// A client and a server of each family.
const PAIRS: [(&str, &str); 2] =
    [("10.0.0.7:5000", "192.0.2.1:80"), ("[2001:db8::7]:5000", "[2001:db8:1::1]:80")];

fn segment(from: &str, to: &str, flags: u8) -> PacketBuilder {
    tcp().from(from).to(to).tcp_flags(flags)
}

fn established(client: &str, server: &str) -> Wall {
    let mut wall = Wall::new(RULES);
    assert_eq!(wall.inside(segment(client, server, SYN)), "passed");
    assert_eq!(wall.outside(segment(server, client, SYN | ACK)), "passed");
    assert_eq!(wall.inside(segment(client, server, ACK)), "passed");
    wall
}

#[test]
fn a_connection_lasts_as_long_as_its_state_says() {
    for (client, server) in PAIRS {
        let reply = || segment(server, client, ACK);
        let mut wall = established(client, server);
        wall.wait(7439);
        assert_eq!(wall.outside(reply()), "passed");
        wall.wait(7441);
        assert_eq!(wall.outside(reply()), "no_rule");

        let mut wall = Wall::new(RULES);
        wall.inside(segment(client, server, SYN));
        wall.wait(239);
        assert_eq!(wall.outside(segment(server, client, SYN | ACK)), "passed");
        wall.wait(241);
        assert_eq!(wall.outside(reply()), "no_rule");
    }
}

#[test]
fn a_connection_that_closes_ends_soon_but_lets_the_last_packets_pass() {
    let (client, server) = PAIRS[0];
    let mut wall = established(client, server);
    assert_eq!(wall.inside(segment(client, server, FIN | ACK)), "passed");
    wall.wait(241);
    assert_eq!(wall.outside(segment(server, client, FIN | ACK)), "passed");
    assert_eq!(wall.inside(segment(client, server, ACK)), "passed");
    assert_eq!(wall.outside(segment(server, client, SYN)), "no_rule");
    wall.wait(241);
    assert_eq!(wall.outside(segment(server, client, ACK)), "no_rule");

    let mut wall = established(client, server);
    assert_eq!(wall.outside(segment(server, client, RST)), "passed");
    assert_eq!(wall.inside(segment(client, server, SYN)), "passed");
    assert_eq!(wall.outside(segment(server, client, SYN | ACK)), "passed");
    wall.wait(241);
    assert_eq!(wall.outside(segment(server, client, ACK)), "no_rule");
}

#[test]
fn only_a_syn_that_a_rule_allows_opens() {
    let (client, server) = PAIRS[0];
    for flags in [ACK, SYN | ACK, FIN | ACK, RST] {
        assert_eq!(Wall::new(RULES).inside(segment(client, server, flags)), "no_connection");
    }
    for flags in [0, SYN | FIN, SYN | RST, FIN, 0x3f] {
        let mut wall = established(client, server);
        assert_eq!(wall.outside(segment(server, client, flags)), "bad_flags");
    }
    let mut wall = Wall::new(RULES);
    assert_eq!(wall.outside(tcp().from("192.0.2.9:9").to("10.0.0.5:22")), "passed");
    assert_eq!(wall.inside(segment("10.0.0.5:22", "192.0.2.9:9", SYN | ACK)), "passed");
    assert_eq!(wall.outside(tcp().from("192.0.2.9:9").to("10.0.0.6:22")), "no_rule");
    assert_eq!(wall.inside(tcp().to("192.0.2.1:25")), "by_rule");
}

#[test]
fn datagrams_are_answered_in_time_and_from_the_right_side() {
    for (client, server) in
        [("10.0.0.7:5000", "192.0.2.1:53"), ("[2001:db8::7]:5000", "[2001:db8:1::1]:53")]
    {
        let mut wall = Wall::new(RULES);
        assert_eq!(wall.outside(udp().from(server).to(client)), "no_rule");
        assert_eq!(wall.inside(udp().from(client).to(server)), "passed");
        assert_eq!(wall.outside(udp().from(client).to(server)), "no_rule", "a forged source");
        assert_eq!(wall.inside(udp().from(server).to(client)), "no_rule", "a forged source");
        wall.wait(299);
        assert_eq!(wall.outside(udp().from(server).to(client)), "passed");
        wall.wait(301);
        assert_eq!(wall.outside(udp().from(server).to(client)), "no_rule");
    }
}

#[test]
fn echoes_are_answered_and_nothing_else_comes_of_them() {
    for (client, server) in [("10.0.0.7", "192.0.2.1"), ("2001:db8::7", "2001:db8:1::1")] {
        let mut wall = Wall::new(RULES);
        assert_eq!(wall.outside(echo_reply(7, 1).from(server).to(client)), "no_rule");
        assert_eq!(wall.inside(echo_reply(7, 1).from(client).to(server)), "no_connection");
        assert_eq!(wall.inside(echo_request(7, 1).from(client).to(server)), "passed");
        assert_eq!(wall.outside(echo_reply(7, 1).from(server).to(client)), "passed");
        assert_eq!(wall.outside(echo_reply(8, 1).from(server).to(client)), "no_rule");
        assert_eq!(wall.outside(echo_request(7, 1).from(server).to(client)), "no_rule");
        wall.wait(61);
        assert_eq!(wall.outside(echo_reply(7, 1).from(server).to(client)), "no_rule");
    }
}

#[test]
fn errors_about_connections_pass_to_the_sender_alone() {
    for (client, server) in PAIRS {
        let syn = segment(client, server, SYN).build();
        let mut wall = Wall::new(RULES);
        assert_eq!(wall.outside(unreachable(&syn)), "stray_error");
        wall.inside(syn.clone());
        assert_eq!(wall.outside(unreachable(&syn)), "passed");
        assert_eq!(wall.inside(unreachable(&syn)), "stray_error");
        let other = if client.starts_with('[') { "2001:db8::9" } else { "10.0.0.9" };
        assert_eq!(wall.outside(unreachable(&syn).to(other)), "stray_error");
        wall.wait(200);
        assert_eq!(wall.outside(unreachable(&syn)), "passed");
        wall.wait(41);
        assert_eq!(wall.outside(unreachable(&syn)), "stray_error", "errors keep nothing alive");
    }
}

#[test]
fn what_is_rejected_is_answered() {
    let mut wall = Wall::new(RULES);
    assert_eq!(wall.outside(tcp().from("192.0.2.9:9").to("10.0.0.5:23")), "rejected");
    let (side, frame) = wall.answer.take().unwrap();
    let reset = TcpView::parse(&frame[34..]).unwrap();
    assert_eq!((side, reset.flags(), reset.destination_port()), (Side::Outside, RST | ACK, 9));

    assert_eq!(wall.outside(udp().from("192.0.2.9:9").to("10.0.0.5:161")), "rejected");
    let (side, frame) = wall.answer.take().unwrap();
    let error = IcmpView::parse(&frame[34..]).unwrap();
    assert_eq!((side, error.kind(), error.code()), (Side::Outside, 3, 13));
    assert_eq!(frame[..6], [2, 0, 0, 0, 0, 1], "back to the station that sent it");
}

#[test]
fn a_reload_changes_rules_and_keeps_connections_and_counts() {
    let (client, server) = PAIRS[0];
    let mut wall = established(client, server);
    wall.publisher.publish(Arc::new(rules_of("")));
    wall.tick();
    assert!(wall.publisher.collect());
    assert_eq!(wall.outside(segment(server, client, ACK)), "passed");
    assert_eq!(wall.inside(segment("10.0.0.8:1", server, SYN)), "no_rule");
}

#[test]
fn rules_count_what_they_decide_and_keep_counts_by_name() {
    let rules = Rules::parse(RULES, TWO_CORES, &Rules::default()).unwrap();
    rules.rules[0].packets.add(0, 1);
    rules.rules[1].packets.add(0, 1);
    rules.rules[1].packets.add(1, 1);
    let renamed = RULES.replace("name = \"web\"", "name = \"www\"");
    let after = Rules::parse(&renamed, TWO_CORES, &rules).unwrap();
    after.rules[1].packets.add(0, 1);
    assert_eq!([0, 1].map(|rule| after.rules[rule].packets.count()), [0, 3]);
}

#[test]
fn a_flood_of_syns_ends_only_half_open_connections() {
    let (client, server) = PAIRS[0];
    let mut wall = Wall::with_room(RULES, 20);
    let handshake = |wall: &mut Wall, client: &str| {
        assert_eq!(wall.inside(segment(client, server, SYN)), "passed");
        assert_eq!(wall.outside(segment(server, client, SYN | ACK)), "passed");
    };
    handshake(&mut wall, client);
    assert_eq!(wall.inside(segment(client, server, ACK)), "passed");
    for port in 1..200 {
        handshake(&mut wall, &format!("10.0.0.8:{port}"));
    }
    assert_eq!(wall.outside(segment(server, client, ACK)), "passed");
    let query = |port| udp().from(format!("10.0.0.9:{port}")).to("192.0.2.1:53");
    let fates: Vec<_> = (1..50).map(|port| wall.inside(query(port))).collect();
    assert!(fates.contains(&"passed") && fates.contains(&"table_full"), "{fates:?}");
}

#[test]
fn a_redirect_is_dropped() {
    let (client, server) = PAIRS[0];
    let mut wall = Wall::new(RULES);
    wall.inside(segment(client, server, SYN));
    let redirect = redirect(&segment(client, server, SYN).build(), "192.0.2.66".parse().unwrap());
    assert_eq!(wall.outside(redirect), "stray_error");
}

#[test]
fn a_flood_is_answered_a_hundred_times_at_once() {
    let mut wall = Wall::new(RULES);
    let answered = (0..200).filter(|port| {
        wall.outside(tcp().from(format!("192.0.2.9:{}", 1000 + port)).to("10.0.0.5:23"));
        wall.answer.take().is_some()
    });
    assert_eq!(answered.count(), 100);
}

#[test]
fn a_wrong_file_is_refused() {
    let rule = |more: &str| {
        format!("[[rule]]\nname = \"a\"\nfrom = \"inside\"\naction = \"allow\"\n{more}")
    };
    let error = |text: &str| Rules::parse(text, TWO_CORES, &Rules::default()).unwrap_err();
    assert!(Rules::parse(&rule(""), TWO_CORES, &Rules::default()).is_ok());
    assert!(error(&rule("destination-ports = [\"53\"]")).contains("set protocol"));
    assert!(error(&rule("protocol = \"tpc\"")).contains("unknown variant"));
    assert!(error(&rule("source = [\"10.0.0.1/8\"]")).contains("write 10.0.0.0/8"));
    assert!(error(&rule("sauce = []")).contains("unknown field"));
    assert!(error(&(rule("") + &rule(""))).contains("two rules"));
}

#[test]
fn pings_of_both_sides_may_have_one_identifier() {
    let rule = |side: &str| {
        format!("[[rule]]\nname = \"{side}\"\nfrom = \"{side}\"\naction = \"allow\"\n")
    };
    let mut wall = Wall::new(&(rule("inside") + &rule("outside")));
    let (client, server) = ("10.0.0.7", "192.0.2.1");
    assert_eq!(wall.inside(echo_request(7, 1).from(client).to(server)), "passed");
    assert_eq!(wall.inside(echo_reply(7, 1).from(client).to(server)), "no_connection");
    assert_eq!(wall.outside(echo_request(7, 1).from(server).to(client)), "passed");
    assert_eq!(wall.inside(echo_reply(7, 1).from(client).to(server)), "passed");
    assert_eq!(wall.outside(echo_reply(7, 1).from(server).to(client)), "passed");
}
