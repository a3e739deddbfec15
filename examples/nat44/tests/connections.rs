//! Connections through the NAT: out, back, and their end.

use crate::lab::{
    FIRST, HOST, HOST_MAC, LAN_MAC, Lab, OTHER_HOST, SECOND, SERVER, at_gateway, at_host,
};
use hotloop::packet::build::{PacketBuilder, echo_reply, echo_request, tcp, udp};
use hotloop::packet::memory::MemPacket;
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop::prelude::*;
use nat44::nat::{NatDrop, Side};
use std::collections::BTreeSet;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A TCP segment of the host to the server.
fn out(flags: u8) -> PacketBuilder {
    tcp().from(HOST).to(SERVER).tcp_flags(flags)
}

/// A TCP segment of the server to the first connection.
fn back(flags: u8) -> PacketBuilder {
    tcp().from(SERVER).to(FIRST).tcp_flags(flags)
}

#[test]
fn tcp_and_udp_go_out_and_come_back() {
    for begin in [tcp, udp] {
        let mut lab = Lab::new();
        for payload in [&b"hello"[..], b"", b"odd"] {
            let sent = lab.host_sends(begin().from(HOST).to(SERVER).payload(payload));
            assert_eq!(sent, at_gateway(begin().from(FIRST).to(SERVER).payload(payload)));
            let reply = lab.gateway_sends(begin().from(SERVER).to(FIRST).payload(payload));
            assert_eq!(reply, at_host(begin().from(SERVER).to(HOST).payload(payload)));
        }
        assert_eq!(lab.connections(), 1);
        let sent = lab.host_sends(begin().from(OTHER_HOST).to(SERVER));
        assert_eq!(sent, at_gateway(begin().from(SECOND).to(SERVER)));
        assert_eq!(lab.connections(), 2);
    }
}

#[test]
fn a_packet_is_of_the_connection_that_an_earlier_one_of_its_burst_opened() {
    let mut lab = Lab::new();
    let packets = [out(SYN), out(ACK), out(SYN).from(OTHER_HOST), out(ACK)];
    let sent = lab.feed(Side::Lan, packets.map(|packet| packet.macs(HOST_MAC, LAN_MAC).build()));
    let ends = [FIRST, FIRST, SECOND, FIRST].into_iter().zip([SYN, ACK, SYN, ACK]);
    for (sent, (end, flags)) in sent.packets().iter().zip(ends) {
        let expected = tcp().from(end).to(SERVER).tcp_flags(flags);
        assert_eq!((sent.route, sent.packet.data().to_vec()), at_gateway(expected));
    }
    assert_eq!((sent.packets().len(), lab.connections()), (4, 2));
}

#[test]
fn two_hosts_that_ping_with_one_identifier_get_their_own_replies() {
    let mut lab = Lab::new();
    for (host, identifier) in [("10.0.0.7", 1025), ("10.0.0.8", 1089)] {
        let sent = lab.host_sends(echo_request(7, 1).from(host).to("192.0.2.1").payload(b"ping"));
        let expected = echo_request(identifier, 1).from("203.0.113.1").to("192.0.2.1");
        assert_eq!(sent, at_gateway(expected.payload(b"ping")));
    }
    for (host, identifier) in [("10.0.0.8", 1089), ("10.0.0.7", 1025)] {
        let reply = echo_reply(identifier, 1).from("192.0.2.1").to("203.0.113.1");
        let expected = echo_reply(7, 1).from("192.0.2.1").to(host);
        assert_eq!(lab.gateway_sends(reply), at_host(expected));
    }
}

#[test]
fn a_host_that_moves_is_found_at_its_new_station() {
    let mut lab = Lab::new();
    lab.host_sends(udp().from(HOST).to(SERVER));
    let elsewhere = hotloop::packet::ethernet::MacAddress::new([2, 0, 0, 0, 1, 8]);
    lab.feed(Side::Lan, [udp().from(HOST).to(SERVER).macs(elsewhere, crate::lab::LAN_MAC).build()]);
    let (_, frame) = lab.gateway_sends(udp().from(SERVER).to(FIRST));
    let view = ethernet::EthernetView::parse(&frame).unwrap();
    assert_eq!((view.source(), view.destination()), (crate::lab::LAN_MAC, elsewhere));
}

#[test]
fn what_belongs_to_no_connection_is_dropped() {
    let mut lab = Lab::new();
    lab.host_sends(out(SYN));
    for packet in [
        tcp().from(SERVER).to(SECOND).tcp_flags(SYN | ACK),
        udp().from(SERVER).to(FIRST),
        tcp().from("192.0.2.2:80").to(FIRST).tcp_flags(ACK),
        tcp().from(SERVER).to("203.0.113.1:22"),
        echo_reply(1024, 1).from("192.0.2.1").to("203.0.113.1"),
    ] {
        assert_eq!(lab.dropped(Side::Wan, packet), NatDrop::NoConnection);
    }
    // Only a SYN opens a TCP connection.
    for flags in [ACK, FIN, RST, SYN | ACK] {
        let packet = tcp().from("10.0.0.7:6000").to(SERVER).tcp_flags(flags);
        assert_eq!(lab.dropped(Side::Lan, packet), NatDrop::NoConnection, "{flags:#x}");
    }
    assert_eq!(lab.connections(), 1);
}

#[test]
fn a_connection_ends_after_the_time_of_its_kind() {
    for (minutes, packets) in [
        (5, vec![(Side::Lan, udp().from(HOST).to(SERVER))]),
        (1, vec![(Side::Lan, echo_request(7, 1).from("10.0.0.7").to("192.0.2.1"))]),
        (4, vec![(Side::Lan, out(SYN))]),
        (4, vec![(Side::Lan, out(SYN)), (Side::Lan, out(SYN))]),
        (124, vec![(Side::Lan, out(SYN)), (Side::Wan, back(SYN | ACK))]),
        (124, vec![(Side::Lan, out(SYN)), (Side::Wan, back(SYN | ACK)), (Side::Lan, out(ACK))]),
        (4, vec![(Side::Lan, out(SYN)), (Side::Wan, back(SYN | ACK)), (Side::Wan, back(FIN))]),
        (4, vec![(Side::Lan, out(SYN)), (Side::Wan, back(SYN | ACK)), (Side::Lan, out(RST))]),
    ] {
        let mut lab = Lab::new();
        for (side, packet) in packets {
            match side {
                Side::Lan => lab.host_sends(packet),
                _ => lab.gateway_sends(packet),
            };
        }
        lab.wait(minutes * MINUTE - Duration::from_secs(1));
        assert_eq!(lab.connections(), 1, "{minutes} minutes");
        lab.wait(Duration::from_secs(2));
        assert_eq!(lab.connections(), 0, "{minutes} minutes");
    }
}

#[test]
fn a_packet_of_either_side_keeps_a_connection() {
    let mut lab = Lab::new();
    lab.host_sends(udp().from(HOST).to(SERVER));
    for _ in 0..3 {
        lab.wait(4 * MINUTE);
        lab.gateway_sends(udp().from(SERVER).to(FIRST));
        lab.wait(4 * MINUTE);
        lab.host_sends(udp().from(HOST).to(SERVER));
    }
    assert_eq!(lab.connections(), 1);
}

#[test]
fn ports_that_are_used_up_are_had_again_after_their_time() {
    // One core of 127 has every 127th block.
    let mut lab = Lab::on(&Core::new(5, 127));
    let packets = |count: u16| (0..count).map(|n| udp().from(format!("10.0.0.7:{}", 2000 + n)));
    let frames = |count| packets(count).map(|packet| packet.to(SERVER).macs(HOST_MAC, LAN_MAC));
    let out = lab.feed(Side::Lan, frames(600).map(|frame| frame.build()));
    let leads_here = |port: u16| port / 64 % 127 == 5;
    let port_count = (1024..=65_535).filter(|port| leads_here(*port)).count();
    assert_eq!(out.packets().len(), port_count);
    assert_eq!(out.dropped(NatDrop::NoPort), 600 - port_count as u64);
    let ports: BTreeSet<_> = out.packets().iter().map(source_port).collect();
    assert_eq!(ports.len(), port_count);
    assert!(ports.iter().all(|port| leads_here(*port)));

    lab.wait(6 * MINUTE);
    assert_eq!(lab.connections(), 0);
    lab.jump(2 * MINUTE);
    let out = lab.feed(Side::Lan, frames(600).map(|frame| frame.build()));
    assert_eq!(out.packets().len(), port_count);
}

/// The source port of a packet that leaves.
fn source_port(packet: &Routed<MemPacket, Side>) -> u16 {
    FlowKey::of(packet.packet.data(), packet.packet.len_bytes(), Depth::Outermost)
        .unwrap()
        .source_port()
}

#[test]
fn a_connection_that_expired_and_is_opened_again_gives_its_old_port_back() {
    let mut lab = Lab::new();
    for _ in 0..2000 {
        // The host has two connections by one port. One is opened again.
        for server in [SERVER, SERVER, "192.0.2.2:80"] {
            let sent = lab.host_sends(udp().from(HOST).to(server));
            assert_eq!(sent, at_gateway(udp().from(FIRST).to(server)));
        }
        // Without a turn of the core, the expired connections are still in their places.
        lab.jump(6 * MINUTE);
    }
    let late = udp().from(SERVER).to(FIRST);
    assert_eq!(lab.dropped(Side::Wan, late), NatDrop::NoConnection);
    lab.wait(Duration::ZERO);
    assert_eq!(lab.connections(), 0);
    // The port is free: after two minutes, another host gets its block.
    lab.wait(2 * MINUTE);
    for port in 1..=1008 {
        let host = format!("10.1.{}.{}:5000", port / 200, 1 + port % 200);
        let sent = lab.host_sends(udp().from(host).to(SERVER));
        // The next port in turn of the first block, which is the last one that is given.
        let end = if port < 1008 { 1024 + 64 * port } else { 1026 };
        let end = format!("203.0.113.1:{end}");
        assert_eq!(sent, at_gateway(udp().from(end).to(SERVER)));
    }
    let one_more = udp().from(HOST).to(SERVER);
    assert_eq!(lab.dropped(Side::Lan, one_more), NatDrop::NoPort);
}
