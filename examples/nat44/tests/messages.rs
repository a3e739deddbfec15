//! ICMP errors through the NAT, and its own answers. Expected frames are built from scratch, so
//! every checksum in them is recomputed, including those of quoted packets.

use crate::lab::{
    FIRST, GATEWAY_MAC, HOST, HOST_MAC, LAN_MAC, Lab, SERVER, WAN_MAC, at_gateway, at_host,
};
use hotloop::packet::answer::{self, IcmpError};
#[allow(dead_code, reason = "the tests of connections use it all")]
use hotloop::packet::build::{
    PacketBuilder, arp_request, echo_request, protocol, redirect, source_quench, tcp,
    time_exceeded, too_big, udp, unreachable,
};
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::packet::{ip, memory::MemPacket};
use hotloop::prelude::*;
use nat44::nat::{NatDrop, Side};

/// Builds the errors about a packet.
type Errors = [fn(&[u8]) -> PacketBuilder; 3];
const ERRORS: Errors =
    [|about| time_exceeded(about), |about| unreachable(about), |about| too_big(about, 1400)];

/// A packet from the host, and the same packet in the WAN.
fn requests() -> [[PacketBuilder; 2]; 3] {
    [
        [tcp().from(HOST).to(SERVER), tcp().from(FIRST).to(SERVER)],
        [HOST, FIRST].map(|end| udp().from(end).to(SERVER).payload([7; 600])),
        [("10.0.0.7", 7), ("203.0.113.1", 1025)]
            .map(|(end, id)| echo_request(id, 1).from(end).to("192.0.2.1").payload(b"odd")),
    ]
}

#[test]
fn an_error_from_the_wan_reaches_the_host_and_quotes_what_the_host_sent() {
    for [request, seen] in requests() {
        let mut lab = Lab::new();
        lab.host_sends(request.clone());
        for error in ERRORS {
            // From a router on the way, which saw a TTL of 3.
            let from_router = |about: &PacketBuilder| {
                error(&about.clone().ttl(3).build()).from("198.51.100.9").ttl(64)
            };
            assert_eq!(lab.gateway_sends(from_router(&seen)), at_host(from_router(&request)));
        }
    }
}

#[test]
fn an_error_from_the_lan_reaches_the_server_and_quotes_what_the_server_sent() {
    for begin in [tcp, udp] {
        let mut lab = Lab::new();
        lab.host_sends(begin().from(HOST).to(SERVER));
        let reply = |end| begin().from(SERVER).to(end).payload(b"odd").build();
        for error in ERRORS {
            // From the host, and from a router in front of it: both get the NAT's address.
            for from in ["10.0.0.7", "10.0.0.253"] {
                let sent = lab.host_sends(error(&reply(HOST)).from(from));
                assert_eq!(sent, at_gateway(error(&reply(FIRST)).from("203.0.113.1")));
            }
        }
    }
}

#[test]
fn an_error_about_no_connection_is_dropped_and_opens_none() {
    let mut lab = Lab::new();
    let theirs = udp().from(FIRST).to(SERVER).build();
    assert_eq!(lab.dropped(Side::Wan, time_exceeded(&theirs)), NatDrop::NoConnection);
    let ours = udp().from(SERVER).to(HOST).build();
    let error = unreachable(&ours).from("10.0.0.7");
    assert_eq!(lab.dropped(Side::Lan, error), NatDrop::NoConnection);
    let gre = protocol(47).from("203.0.113.1").to("192.0.2.1").payload([0; 8]).build();
    assert_eq!(lab.dropped(Side::Wan, time_exceeded(&gre)), NatDrop::NoConnection);
    assert_eq!(lab.connections(), 0);
}

/// Of the messages that quote a packet, these are no business of a host on the other side.
#[test]
fn redirects_and_source_quenches_do_not_pass() {
    let mut lab = Lab::new();
    lab.host_sends(udp().from(HOST).to(SERVER));
    let [ours, theirs] =
        [(SERVER, HOST), (FIRST, SERVER)].map(|(from, to)| udp().from(from).to(to).build());
    for (side, about) in [(Side::Lan, ours), (Side::Wan, theirs)] {
        let by = if side == Side::Lan { "10.0.0.7" } else { "192.0.2.1" };
        for error in [redirect(&about, [10, 0, 0, 66].into()), source_quench(&about)] {
            assert_eq!(lab.dropped(side, error.from(by)), NatDrop::Unsupported);
        }
    }
}

#[test]
fn an_error_keeps_no_connection() {
    let mut lab = Lab::new();
    lab.host_sends(udp().from(HOST).to(SERVER));
    let about = udp().from(FIRST).to(SERVER).build();
    for _ in 0..2 {
        lab.wait(std::time::Duration::from_secs(140));
        lab.gateway_sends(time_exceeded(&about));
    }
    lab.wait(std::time::Duration::from_secs(30));
    assert_eq!(lab.connections(), 0);
}

#[test]
fn an_error_keeps_no_connection_and_ends_none() {
    for begin in [tcp, udp] {
        let mut lab = Lab::new();
        lab.host_sends(begin().from(HOST).to(SERVER));
        let about = begin().from(FIRST).to(SERVER).build();
        for error in ERRORS {
            lab.gateway_sends(error(&about));
        }
        assert_eq!(lab.connections(), 1);
        let reply = || begin().from(SERVER).tcp_flags(SYN | ACK);
        assert_eq!(lab.gateway_sends(reply().to(FIRST)), at_host(reply().to(HOST)));
    }
}

#[test]
fn an_error_with_a_wrong_checksum_is_dropped() {
    let mut lab = Lab::new();
    lab.host_sends(udp().from(HOST).to(SERVER));
    let about = udp().from(FIRST).to(SERVER).build();
    let mut frame = unreachable(&about).macs(GATEWAY_MAC, WAN_MAC).build();
    assert_eq!(lab.feed(Side::Wan, [frame.clone()]).packets().len(), 1);
    // The code.
    frame[14 + 20 + 1] ^= 1;
    assert_eq!(crate::lab::reason(&lab.feed(Side::Wan, [frame])), NatDrop::Malformed);
}

#[test]
fn an_error_that_quotes_options_reaches_the_host() {
    let mut lab = Lab::new();
    let packet = |end| udp().from(end).to(SERVER).ipv4_options(&[7, 7, 4, 0, 0, 0, 0, 0]);
    lab.host_sends(packet(HOST));
    let error = |end| unreachable(&packet(end).build()).from("198.51.100.9");
    assert_eq!(lab.gateway_sends(error(FIRST)), at_host(error(HOST)));
}

#[test]
fn time_exceeded_is_limited_to_a_rate() {
    let mut lab = Lab::new();
    let late = udp().from(HOST).to(SERVER).ttl(1).macs(HOST_MAC, LAN_MAC).build();
    for _ in 0..2 {
        let out = lab.feed(Side::Lan, vec![late.clone(); 1500]);
        assert_eq!((out.packets().len(), out.dropped(NatDrop::TtlExpired)), (1000, 500));
        lab.jump(std::time::Duration::from_secs(1));
    }
}

#[test]
fn a_packet_that_took_too_many_hops_is_answered_and_opens_no_connection() {
    let mut lab = Lab::new();
    for ttl in [0, 1] {
        for packet in [udp(), tcp(), echo_request(7, 1)] {
            let late = packet.from(HOST).to(SERVER).ttl(ttl);
            let sent = lab.host_sends(late.clone());
            assert_eq!(sent, (Side::Lan, answered(late, HOST_MAC, LAN_MAC, "10.0.0.254")));
        }
    }
    assert_eq!(lab.connections(), 0);

    lab.host_sends(udp().from(HOST).to(SERVER));
    let late = udp().from(SERVER).to(FIRST).ttl(1);
    let sent = lab.gateway_sends(late.clone());
    assert_eq!(sent, (Side::Wan, answered(late, GATEWAY_MAC, WAN_MAC, "203.0.113.1")));
    // There are no errors about errors.
    let about = udp().from(FIRST).to(SERVER).build();
    assert_eq!(lab.dropped(Side::Wan, unreachable(&about).ttl(1)), NatDrop::TtlExpired);
}

/// The time-exceeded message about a packet, in a frame back to its sender.
fn answered(
    late: PacketBuilder,
    to: ethernet::MacAddress,
    by: ethernet::MacAddress,
    from: &str,
) -> Vec<u8> {
    let mut packet = MemPacket::new(&late.macs(to, by).build());
    let from: std::net::Ipv4Addr = from.parse().unwrap();
    answer::icmp_error(&mut packet, from, IcmpError::TimeExceeded).unwrap();
    ethernet::set_addresses(&mut packet, by, to);
    packet.data().to_vec()
}

#[test]
fn arp_requests_for_the_address_of_the_port_are_answered() {
    let mut lab = Lab::new();
    let own = [(Side::Lan, [10, 0, 0, 254], LAN_MAC), (Side::Wan, [203, 0, 113, 1], WAN_MAC)];
    for (side, address, mac) in own {
        let request = arp_request([10, 0, 0, 7].into(), address.into());
        let out = lab.feed(side, [request.clone()]);
        let reply = hotloop::packet::arp::ArpMessage::of_frame(&request).unwrap().reply(mac);
        let [Routed { packet, route }] = out.packets() else { panic!("no answer") };
        assert_eq!((*route, &packet.data()[14..]), (side, &reply.to_bytes()[..]));
        assert_eq!(packet.data()[..12], [request[6..12].to_vec(), mac.bytes().to_vec()].concat());
    }
    let others =
        [(Side::Lan, [203, 0, 113, 1]), (Side::Wan, [10, 0, 0, 254]), (Side::Lan, [10, 0, 0, 7])];
    for (side, address) in others {
        let out = lab.feed(side, [arp_request([10, 0, 0, 7].into(), address.into())]);
        assert_eq!(crate::lab::reason(&out), NatDrop::NotIpv4);
    }
}

#[test]
fn pings_to_the_nat_are_answered() {
    let mut lab = Lab::new();
    for to in ["10.0.0.254", "203.0.113.1"] {
        let ping = echo_request(7, 3).from("10.0.0.7").to(to).ttl(1).payload(b"ping");
        let reply =
            hotloop::packet::build::echo_reply(7, 3).from(to).to("10.0.0.7").payload(b"ping");
        assert_eq!(lab.host_sends(ping), (Side::Lan, reply.macs(LAN_MAC, HOST_MAC).build()));
    }
    let ping = echo_request(1024, 3).from("192.0.2.1").to("203.0.113.1");
    let reply = hotloop::packet::build::echo_reply(1024, 3).from("203.0.113.1").to("192.0.2.1");
    assert_eq!(lab.gateway_sends(ping), (Side::Wan, reply.macs(WAN_MAC, GATEWAY_MAC).build()));
    assert_eq!(lab.connections(), 0);
}

#[test]
fn what_cannot_pass_is_dropped_for_its_reason() {
    let mut lab = Lab::new();
    let fragments = udp().from(HOST).to(SERVER).payload([7; 100]).macs(HOST_MAC, LAN_MAC);
    for fragment in fragments.build_fragments(60).split_off(1) {
        assert_eq!(crate::lab::reason(&lab.feed(Side::Lan, [fragment])), NatDrop::Fragment);
    }
    let quoted = udp().from("192.0.2.9:1").to(HOST).build();
    for (side, packet, expected) in [
        (Side::Lan, udp().from("[2001:db8::1]:1").to("[2001:db8::2]:2"), NatDrop::NotIpv4),
        (Side::Lan, protocol(47).from("10.0.0.7").payload([0; 8]), NatDrop::Unsupported),
        (Side::Lan, protocol(ip::protocol::ICMP).payload([13; 20]), NatDrop::Unsupported),
        (Side::Lan, udp().tunnelled("10.0.0.7", "192.0.2.1"), NatDrop::Unsupported),
        (Side::Lan, udp().from(HOST).to("10.0.0.254:53"), NatDrop::NotRouted),
        (Side::Lan, udp().from(HOST).to("224.0.0.251:5353"), NatDrop::NotRouted),
        (Side::Lan, udp().from("0.0.0.0:68").to("255.255.255.255:67"), NatDrop::NotRouted),
        (Side::Lan, udp().from("0.0.0.0:68").to(SERVER), NatDrop::NotRouted),
        (Side::Lan, udp().from("203.0.113.1:1024").to(SERVER), NatDrop::NotRouted),
        (Side::Wan, udp().from(SERVER).to("203.0.113.2:1024"), NatDrop::NotRouted),
        (Side::Wan, udp().from(SERVER).to(HOST), NatDrop::NotRouted),
        (Side::Lan, unreachable(&quoted).from("10.0.0.7"), NatDrop::NoConnection),
    ] {
        assert_eq!(lab.dropped(side, packet.clone()), expected, "{packet:?}");
    }
    let elsewhere = udp().from(HOST).to(SERVER).macs(HOST_MAC, GATEWAY_MAC).build();
    assert_eq!(crate::lab::reason(&lab.feed(Side::Lan, [elsewhere])), NatDrop::OtherStation);
    assert_eq!(lab.connections(), 0);
}

#[test]
fn a_frame_that_is_cut_anywhere_is_dropped() {
    let about = udp().from(FIRST).to(SERVER).build();
    for (side, packet) in [
        (Side::Lan, tcp().from(HOST).to(SERVER)),
        (Side::Lan, udp().from(HOST).to(SERVER).vlan(7)),
        (Side::Lan, echo_request(1, 1).from(HOST).to(SERVER)),
        (Side::Wan, time_exceeded(&about)),
    ] {
        let mut lab = Lab::new();
        let (source, destination) =
            if side == Side::Lan { (HOST_MAC, LAN_MAC) } else { (GATEWAY_MAC, WAN_MAC) };
        let frame = packet.macs(source, destination).build();
        for length in 0..frame.len() {
            let reason = crate::lab::reason(&lab.feed(side, [frame[..length].to_vec()]));
            assert!(
                matches!(reason, NatDrop::Malformed | NatDrop::Truncated | NatDrop::NotIpv4),
                "{length}: {reason:?}"
            );
        }
        assert_eq!(lab.connections(), 0);
    }
}
