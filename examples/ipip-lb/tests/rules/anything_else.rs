//! Packets that are not the balancer's.

use super::{PAIRS, V4_IN_V4, V6_IN_V6, four};
use crate::deployed::{assert_dropped, in_all};
use hotloop::packet::build::{arp_request, echo_reply, echo_request, protocol, tcp, udp};

#[test]
fn arp_and_what_is_no_ip_is_punted() {
    let (_, report) = in_all(&four(""), |lb| {
        lb.none(arp_request([203, 0, 113, 1].into(), [203, 0, 113, 10].into()));
        // LLDP, PPPoE, MPLS, and frames with their length instead of a type.
        for ethertype in [[0x88, 0xCC], [0x88, 0x64], [0x88, 0x47], [0, 38]] {
            lb.none([&[2, 0, 0, 0, 9, 9, 2, 0, 0, 0, 1, 1][..], &ethertype, &[0; 46]].concat());
        }
    });
    assert_dropped(&report, &[("punt", 5)]);
}

#[test]
fn unknown_addresses_are_punted() {
    let (_, report) = in_all(&four(""), |lb| {
        for frame in [
            tcp().from("198.51.100.7:1").to("203.0.113.9:80"),
            udp().from("198.51.100.7:1").to("192.0.2.1:80"),
            udp().from("[2001:db8:c::7]:1").to("[2001:db8::1]:80"),
            protocol(47).from("198.51.100.7").to("8.8.8.8").payload([1; 40]),
            echo_request(1, 1).from("198.51.100.7").to("192.0.2.1"),
            echo_reply(1, 1).from("2001:db8:c::7").to("2001:db8:f::99"),
            // From a service, but in no tunnel.
            udp().from("203.0.113.10:53").to("198.51.100.7:1"),
        ] {
            lb.none(frame);
        }
    });
    assert_dropped(&report, &[("punt", 7)]);
}

#[test]
fn foreign_tunnels_are_punted() {
    let (_, report) = in_all(&four(""), |lb| {
        let inside = || V4_IN_V4.request(udp());
        lb.none(inside().tunnelled("10.0.0.1", "198.51.100.200"));
        lb.none(inside().tunnelled("2001:db8:b::1", "2001:db8:77::1"));
        // An own address, but neither protocol 4 nor 41.
        lb.none(protocol(47).from("10.0.0.1").to("192.0.2.1").payload([0; 64]));
    });
    assert_dropped(&report, &[("punt", 3)]);
}

#[test]
fn what_neighbours_say_to_each_other_is_punted_even_to_a_vip() {
    let (_, report) = in_all(&four("icmp_echo = \"forward\""), |lb| {
        for kind in (130..=137).chain([143]) {
            let mut message = vec![kind, 0, 0, 0];
            message.extend([0; 20]);
            let packet = || protocol(58).from(V6_IN_V6.client).payload(&message).ttl(255);
            lb.none(packet().to(V6_IN_V6.vip));
            lb.none(packet().to("ff02::1"));
        }
        // Other ICMPv6 goes to the service's backend.
        let other = protocol(58).from(V6_IN_V6.client).to(V6_IN_V6.vip);
        let sent = lb.one(other.payload([144, 0, 0, 0, 0, 1, 0, 0]));
        assert_eq!(sent.backend(), V6_IN_V6.backend);
    });
    assert_dropped(&report, &[("punt", 18)]);
}

#[test]
fn what_contradicts_itself_is_dropped_as_malformed() {
    let (_, report) = in_all(&four(""), |lb| {
        let v4 = || V4_IN_V4.syn().build();
        let v6 = || V6_IN_V6.syn().build();
        let changed = |mut frame: Vec<u8>, offset: usize, byte: u8| {
            frame[offset] = byte;
            frame
        };
        for frame in [
            vec![],
            vec![0; 13],
            v4()[..14 + 19].to_vec(),
            v6()[..14 + 39].to_vec(),
            changed(v4(), 14, 0x65),
            changed(v4(), 14, 0x44),
            changed(v4(), 14, 0x4F),
            changed(v4(), 17, 19),
            changed(v4(), 17, 25),
            changed(v6(), 14, 0x40),
            changed(v6(), 19, 5),
        ] {
            lb.none(frame);
        }
    });
    assert_dropped(&report, &[("malformed", 11)]);
}

#[test]
fn a_frame_that_ends_within_its_packet_is_dropped_as_truncated() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            let header_bytes = if pair.is_v4() { 20 } else { 40 };
            let frame = pair.request(udp()).payload([7; 1400]).build();
            for bytes in [header_bytes, header_bytes + 5, header_bytes + 1000] {
                lb.none(frame[..14 + bytes].to_vec());
            }
            let tunnel = pair.reply(udp()).payload([7; 1400]).vlan(7);
            let frame = tunnel.tunnelled(pair.backend, pair.source).build();
            lb.none(frame[..frame.len() - 1].to_vec());
        }
    });
    assert_dropped(&report, &[("truncated", 4 * 4)]);
}
