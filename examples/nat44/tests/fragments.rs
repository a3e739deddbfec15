//! Fragments of datagrams through the NAT.

use crate::lab::{
    FIRST, GATEWAY_MAC, HOST, HOST_MAC, LAN_MAC, Lab, SERVER, WAN_MAC, at_host, reason,
};
use hotloop::packet::build::{PacketBuilder, echo_reply, echo_request, tcp, udp, unreachable};
use nat44::nat::{NatDrop, Side};
use std::time::Duration;

fn datagram(from: &str, to: &str) -> PacketBuilder {
    udp().from(from).to(to).identification(9).payload([7; 100])
}

/// The frames of a packet after one hop to the gateway or the host.
fn expected(side: Side, packet: PacketBuilder) -> Vec<(Side, Vec<u8>)> {
    let macs = if side == Side::Lan { (LAN_MAC, HOST_MAC) } else { (WAN_MAC, GATEWAY_MAC) };
    let frames = packet.ttl(63).macs(macs.0, macs.1).build_fragments(60);
    frames.into_iter().map(|frame| (side, frame)).collect()
}

#[test]
fn fragments_in_order_pass_both_ways() {
    let mut lab = Lab::new();
    let sent = lab.fragments(Side::Lan, datagram(HOST, SERVER), 60);
    assert_eq!((sent.len(), sent), (3, expected(Side::Wan, datagram(FIRST, SERVER))));
    let sent = lab.fragments(Side::Wan, datagram(SERVER, FIRST), 60);
    assert_eq!(sent, expected(Side::Lan, datagram(SERVER, HOST)));

    let segment = |from, to| tcp().from(from).to(to).payload([3; 90]);
    let sent = lab.fragments(Side::Lan, segment(HOST, SERVER), 60);
    assert_eq!(sent, expected(Side::Wan, segment(FIRST.replace("1024", "1026").as_str(), SERVER)));
}

#[test]
fn echoes_in_fragments_pass_both_ways() {
    let mut lab = Lab::new();
    let request = |id, from| echo_request(id, 1).from(from).to("192.0.2.1").payload([1; 80]);
    let sent = lab.fragments(Side::Lan, request(8, "10.0.0.7"), 60);
    assert_eq!(sent, expected(Side::Wan, request(1024, "203.0.113.1")));
    let reply = |id, to| echo_reply(id, 1).from("192.0.2.1").to(to).payload([1; 80]);
    let sent = lab.fragments(Side::Wan, reply(1024, "203.0.113.1"), 60);
    assert_eq!(sent, expected(Side::Lan, reply(8, "10.0.0.7")));
}

#[test]
fn a_fragment_before_the_first_one_is_dropped() {
    let mut lab = Lab::new();
    let mut fragments = datagram(HOST, SERVER).macs(HOST_MAC, LAN_MAC).build_fragments(60);
    fragments.rotate_left(1);
    for (index, fragment) in fragments.into_iter().enumerate() {
        let out = lab.feed(Side::Lan, [fragment]);
        if index < 2 {
            assert_eq!(reason(&out), NatDrop::Fragment);
        } else {
            assert_eq!(out.packets().len(), 1);
        }
    }
}

#[test]
fn a_fragment_of_another_datagram_or_long_after_the_first_one_is_dropped() {
    let later =
        |packet: PacketBuilder| packet.macs(HOST_MAC, LAN_MAC).build_fragments(60).swap_remove(1);
    let mut lab = Lab::new();
    lab.fragments(Side::Lan, datagram(HOST, SERVER), 60);
    let other = later(datagram(HOST, SERVER).identification(10));
    assert_eq!(reason(&lab.feed(Side::Lan, [other])), NatDrop::Fragment);
    assert_eq!(lab.feed(Side::Lan, [later(datagram(HOST, SERVER))]).packets().len(), 1);
    lab.jump(Duration::from_millis(15_040));
    let late = later(datagram(HOST, SERVER));
    assert_eq!(reason(&lab.feed(Side::Lan, [late])), NatDrop::Fragment);
}

#[test]
fn a_later_fragment_opens_no_connection() {
    let mut lab = Lab::new();
    lab.fragments(Side::Lan, datagram(HOST, SERVER), 60);
    lab.jump(Duration::from_secs(301));
    // The datagram is known again, by a first fragment that is for another station.
    let [first, second, _] = datagram(HOST, SERVER).build_fragments(60).try_into().unwrap();
    assert_eq!(reason(&lab.feed(Side::Lan, [first])), NatDrop::OtherStation);
    let mut second = second;
    second[..6].copy_from_slice(&LAN_MAC.bytes());
    assert_eq!(reason(&lab.feed(Side::Lan, [second])), NatDrop::NoConnection);
}

#[test]
fn many_datagrams_in_fragments_hinder_no_whole_packet() {
    let mut lab = Lab::new();
    lab.host_sends(udp().from(HOST).to(SERVER));
    for identification in 0..5000 {
        let flood = datagram("198.51.100.9:1", FIRST).identification(identification);
        let frames = flood.macs(GATEWAY_MAC, WAN_MAC).build_fragments(60);
        lab.feed(Side::Wan, frames);
    }
    let sent = lab.gateway_sends(udp().from(SERVER).to(FIRST));
    assert_eq!(sent, at_host(udp().from(SERVER).to(HOST)));
    let sent = lab.fragments(Side::Wan, datagram(SERVER, FIRST), 60);
    assert_eq!(sent, expected(Side::Lan, datagram(SERVER, HOST)));
}

#[test]
fn an_error_about_a_first_fragment_reaches_the_host() {
    let mut lab = Lab::new();
    lab.fragments(Side::Lan, datagram(HOST, SERVER), 60);
    let error = |end| {
        let about = datagram(end, SERVER).build_fragments(60).swap_remove(0);
        unreachable(&about).from("198.51.100.9")
    };
    assert_eq!(lab.gateway_sends(error(FIRST)), at_host(error(HOST)));
}

#[test]
fn a_fragment_that_would_overwrite_the_header_of_tcp_is_dropped() {
    let mut lab = Lab::new();
    let segment = || tcp().from(HOST).to(SERVER).identification(9).payload([3; 90]);
    assert_eq!(lab.fragments(Side::Lan, segment(), 60).len(), 3);
    let second = segment().macs(HOST_MAC, LAN_MAC).build_fragments(28).swap_remove(1);
    assert_eq!(reason(&lab.feed(Side::Lan, [second])), NatDrop::Fragment);
}
