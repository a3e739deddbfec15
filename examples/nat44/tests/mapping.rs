//! Mappings of ports, and the packets that they let in.

use crate::lab::{FIRST, HOST, Lab, OTHER_HOST, SECOND, SERVER, at_gateway, at_host, settings};
use hotloop::packet::build::{echo_reply, echo_request, tcp, udp};
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::prelude::*;
use nat44::nat::{NatDrop, Settings, Side};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Other servers: another port of the server, and another host.
const OTHERS: [&str; 2] = ["192.0.2.1:81", "192.0.2.2:80"];

fn limited(ports_per_host: u16) -> Lab {
    Lab::with(&Core::new(0, 1), Settings { ports_per_host, ..settings() })
}

#[test]
fn a_port_of_a_host_has_one_mapping_for_all_destinations() {
    for begin in [tcp, udp] {
        let mut lab = Lab::new();
        for server in [SERVER, OTHERS[0], OTHERS[1]] {
            let sent = lab.host_sends(begin().from(HOST).to(server));
            assert_eq!(sent, at_gateway(begin().from(FIRST).to(server)));
        }
        for server in [OTHERS[1], SERVER, OTHERS[0]] {
            let reply = begin().from(server).to(FIRST).tcp_flags(SYN | ACK);
            let expected = begin().from(server).to(HOST).tcp_flags(SYN | ACK);
            assert_eq!(lab.gateway_sends(reply), at_host(expected));
        }
        assert_eq!(lab.connections(), 3);
    }
}

#[test]
fn an_identifier_of_a_host_has_one_mapping_for_all_destinations() {
    let mut lab = Lab::new();
    for server in ["192.0.2.1", "192.0.2.2"] {
        let sent = lab.host_sends(echo_request(8, 1).from("10.0.0.7").to(server));
        assert_eq!(sent, at_gateway(echo_request(1024, 1).from("203.0.113.1").to(server)));
        let reply = lab.gateway_sends(echo_reply(1024, 1).from(server).to("203.0.113.1"));
        assert_eq!(reply, at_host(echo_reply(8, 1).from(server).to("10.0.0.7")));
    }
}

#[test]
fn protocols_have_mappings_of_their_own() {
    let mut lab = Lab::new();
    lab.host_sends(tcp().from(HOST).to(SERVER));
    let sent = lab.host_sends(udp().from(HOST).to(SERVER));
    assert_eq!(sent, at_gateway(udp().from("203.0.113.1:1026").to(SERVER)));
    assert_eq!(lab.dropped(Side::Wan, udp().from(SERVER).to(FIRST)), NatDrop::NoConnection);
}

#[test]
fn a_mapping_ends_with_its_last_connection() {
    let mut lab = Lab::new();
    for server in OTHERS {
        lab.host_sends(udp().from(HOST).to(server));
        lab.wait(4 * MINUTE);
    }
    // The first connection has ended.
    lab.wait(2 * MINUTE);
    assert_eq!(lab.connections(), 0);
    let sent = lab.host_sends(udp().from(OTHER_HOST).to(SERVER));
    assert_eq!(sent, at_gateway(udp().from(SECOND).to(SERVER)));
}

#[test]
fn filtering_is_by_address_and_port() {
    for begin in [tcp, udp] {
        let mut lab = Lab::new();
        lab.host_sends(begin().from(HOST).to(SERVER));
        for other in OTHERS {
            let packet = begin().from(other).to(FIRST);
            assert_eq!(lab.dropped(Side::Wan, packet), NatDrop::NoConnection);
        }
    }
}

#[test]
fn with_endpoint_independent_filtering_all_may_open_connections_to_a_mapped_port() {
    for begin in [tcp, udp] {
        let mut lab = Lab::open();
        let early = begin().from(SERVER).to(FIRST);
        assert_eq!(lab.dropped(Side::Wan, early), NatDrop::NoConnection, "it is not mapped");
        lab.host_sends(begin().from(HOST).to(SERVER));
        for other in OTHERS {
            let sent = lab.gateway_sends(begin().from(other).to(FIRST));
            assert_eq!(sent, at_host(begin().from(other).to(HOST)));
            let reply = begin().from(HOST).to(other).tcp_flags(SYN | ACK);
            let expected = begin().from(FIRST).to(other).tcp_flags(SYN | ACK);
            assert_eq!(lab.host_sends(reply), at_gateway(expected));
        }
        assert_eq!(lab.connections(), 3);
    }
    // A segment without a SYN opens nothing.
    let mut lab = Lab::open();
    lab.host_sends(tcp().from(HOST).to(SERVER));
    let segment = tcp().from(OTHERS[0]).to(FIRST).tcp_flags(ACK);
    assert_eq!(lab.dropped(Side::Wan, segment), NatDrop::NoConnection);
}

#[test]
fn ports_keep_their_range_and_parity() {
    let mut lab = Lab::new();
    for (inside, outside) in
        [(5000, 1024), (5001, 1025), (5003, 1027), (7000, 1028), (500, 2), (123, 3), (1023, 5)]
    {
        let sent = lab.host_sends(udp().from(format!("10.0.0.7:{inside}")).to(SERVER));
        let end = format!("203.0.113.1:{outside}");
        assert_eq!(sent, at_gateway(udp().from(end).to(SERVER)), "{inside}");
    }
}

#[test]
fn a_host_gets_ports_in_blocks_up_to_its_limit() {
    let mut lab = limited(100);
    for number in 0..130 {
        let packet = || udp().from(format!("10.0.0.7:{}", 5000 + number)).to(SERVER);
        if number < 128 {
            let end = format!("203.0.113.1:{}", 1024 + number);
            assert_eq!(lab.host_sends(packet()), at_gateway(udp().from(end).to(SERVER)));
        } else {
            assert_eq!(lab.dropped(Side::Lan, packet()), NatDrop::HostLimit);
        }
    }
    // Others still get theirs.
    let sent = lab.host_sends(udp().from(OTHER_HOST).to(SERVER));
    assert_eq!(sent, at_gateway(udp().from("203.0.113.1:1152").to(SERVER)));
}

#[test]
fn a_host_without_ports_of_a_parity_gets_others() {
    let mut lab = limited(64);
    let ports = (0..64).map(|number| {
        let (_, frame) = lab.host_sends(udp().from(format!("10.0.0.7:{}", 5000 + 2 * number)));
        FlowKey::of(&frame, frame.len(), Depth::Outermost).unwrap().source_port()
    });
    let mut ports: Vec<_> = ports.collect();
    assert!(ports[..32].iter().all(|port| port % 2 == 0));
    ports.sort_unstable();
    assert_eq!(ports, Vec::from_iter(1024..1088));
}

#[test]
fn a_port_has_a_limit_of_connections() {
    let mut lab = Lab::new();
    let to = |number: u32| udp().from(HOST).to(format!("192.0.2.1:{}", 1 + number));
    for number in 0..4096 {
        lab.host_sends(to(number));
    }
    assert_eq!(lab.dropped(Side::Lan, to(4096)), NatDrop::HostLimit);
    lab.host_sends(to(7));
    assert_eq!(lab.connections(), 4096);
    // The connections that were refused don't keep the mapping.
    lab.wait(6 * MINUTE);
    assert_eq!(lab.connections(), 0);
    lab.host_sends(to(4096));
    assert_eq!(lab.connections(), 1);
}

#[test]
fn a_block_is_given_to_another_host_two_minutes_after_it_was_free() {
    // One core of 1008 has one block of ports from 1024 on.
    for (minutes, is_free) in [(1, false), (2, true)] {
        let mut lab = Lab::on(&Core::new(20, 1008));
        lab.host_sends(udp().from(HOST).to(SERVER));
        lab.wait(6 * MINUTE);
        assert_eq!(lab.connections(), 0);
        lab.wait(minutes * MINUTE);
        let packet = udp().from(OTHER_HOST).to(SERVER);
        if is_free {
            let expected = udp().from("203.0.113.1:1282").to(SERVER);
            // The port that was free for longest.
            assert_eq!(lab.host_sends(packet), at_gateway(expected));
        } else {
            assert_eq!(lab.dropped(Side::Lan, packet), NatDrop::NoPort);
        }
    }
}
