//! Packets from one host of the LAN to another's port of the WAN address.

use crate::lab::{
    FIRST, HOST, HOST_MAC, LAN_MAC, Lab, OTHER_HOST, SECOND, SERVER, WAN_MAC, at_host,
};
use hotloop::packet::build::{tcp, time_exceeded, too_big, udp, unreachable};
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::prelude::*;
use nat44::nat::{NatDrop, Side};

/// A NAT that lets all packets in, with a mapping for each of two hosts.
fn mapped(begin: fn() -> hotloop::packet::build::PacketBuilder) -> Lab {
    let mut lab = Lab::open();
    for host in [HOST, OTHER_HOST] {
        lab.host_sends(begin().from(host).to(SERVER));
    }
    lab
}

#[test]
fn hosts_reach_each_other_by_their_wan_ports() {
    for begin in [tcp, udp] {
        let mut lab = mapped(begin);
        // Both see each other's WAN address, and one hop.
        for (from, to, flags) in [
            ((HOST, FIRST), (OTHER_HOST, SECOND), SYN),
            ((OTHER_HOST, SECOND), (HOST, FIRST), SYN | ACK),
        ] {
            let packet = |from, to| begin().from(from).to(to).tcp_flags(flags).payload(b"odd");
            assert_eq!(lab.host_hairpins(packet(from.0, to.1)), at_host(packet(from.1, to.0)));
        }
        // The connections with the server, and one of each host with the other.
        assert_eq!(lab.connections(), 4);
    }
}

#[test]
fn filtering_applies_to_hosts_of_the_lan() {
    let mut lab = Lab::new();
    for host in [HOST, OTHER_HOST] {
        lab.host_sends(udp().from(host).to(SERVER));
    }
    let hairpin = |lab: &mut Lab, from: &str, to: &str| {
        let (side, frame) = lab.host_sends(udp().from(from).to(to));
        assert_eq!(side, Side::Hairpin);
        lab.feed(side, [frame])
    };
    assert_eq!(hairpin(&mut lab, HOST, SECOND).dropped(NatDrop::NoConnection), 1);
    // The first packet has opened the way back.
    assert_eq!(hairpin(&mut lab, OTHER_HOST, FIRST).packets().len(), 1);
    assert_eq!(hairpin(&mut lab, HOST, SECOND).packets().len(), 1);
}

#[test]
fn a_hairpinned_packet_leaves_by_the_loop_with_both_hops_still_to_count() {
    let mut lab = mapped(udp);
    let sent = lab.host_sends(udp().from(HOST).to(SECOND));
    let expected = udp().from(FIRST).to(SECOND).macs(WAN_MAC, WAN_MAC).build();
    assert_eq!(sent, (Side::Hairpin, expected));
    let (side, frame) = lab.host_sends(udp().from(HOST).to("203.0.113.1:53"));
    assert_eq!(crate::lab::reason(&lab.feed(side, [frame])), NatDrop::NoConnection);
    let late = udp().from(HOST).to(SECOND).ttl(1).macs(HOST_MAC, LAN_MAC).build();
    assert_eq!(lab.feed(Side::Lan, [late]).packets()[0].route, Side::Lan);
}

#[test]
fn an_error_about_a_hairpinned_packet_reaches_its_sender() {
    for begin in [tcp, udp] {
        let mut lab = mapped(begin);
        let packet = |from, to| begin().from(from).to(to).payload(b"odd").build();
        lab.host_hairpins(begin().from(HOST).to(SECOND));
        for error in [time_exceeded, unreachable, |about: &[u8]| too_big(about, 1400)] {
            // The other host got a packet from the first host's port of the WAN address.
            let sent = error(&packet(FIRST, OTHER_HOST)).from("10.0.0.8").to("203.0.113.1");
            let expected = error(&packet(HOST, SECOND)).from("203.0.113.1").to("10.0.0.7");
            assert_eq!(lab.host_hairpins(sent), at_host(expected));
        }
    }
}

#[test]
fn fragments_are_hairpinned() {
    let mut lab = mapped(udp);
    let packet = |from, to| udp().from(from).to(to).identification(9).payload([7; 100]);
    let looped = lab.fragments(Side::Lan, packet(HOST, SECOND), 60);
    let (mut sides, frames): (Vec<_>, Vec<_>) = looped.into_iter().unzip();
    sides.dedup();
    assert_eq!(sides, [Side::Hairpin]);
    let out = lab.feed(Side::Hairpin, frames);
    let expected = packet(FIRST, OTHER_HOST).ttl(63).macs(LAN_MAC, HOST_MAC).build_fragments(60);
    let sent: Vec<_> = out.packets().iter().map(|sent| sent.packet.data().to_vec()).collect();
    assert_eq!(sent, expected);
}
