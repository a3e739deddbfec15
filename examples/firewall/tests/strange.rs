//! Fragments, tunnels, malformed packets, and the link's own messages.

use crate::wall::{RULES, Wall};
use hotloop::packet::build::{arp_request, tcp, udp};
use hotloop::packet::memory::MemPacket;
use hotloop::packet::{ethernet::MacAddress, nd};
use hotloop::prelude::PacketBuf;

const ENDS: [(&str, &str); 2] =
    [("10.0.0.7:5000", "192.0.2.1:53"), ("[2001:db8::7]:5000", "[2001:db8:1::1]:53")];

fn fragments(from: &str, to: &str) -> Vec<Vec<u8>> {
    udp().from(from).to(to).payload([7; 3000]).build_fragments(1280)
}

#[test]
fn later_fragments_follow_the_first() {
    for (client, server) in ENDS {
        let mut wall = Wall::new(RULES);
        let frames = fragments(client, server);
        assert_eq!(frames.len(), 3);
        assert_eq!(wall.inside(frames[1].clone()), "no_first_fragment");
        for index in [0, 2, 1] {
            assert_eq!(wall.inside(frames[index].clone()), "passed");
        }
        assert_eq!(wall.inside(frames[1].clone()), "no_first_fragment", "it is complete");
        let answers = fragments(server, client);
        assert_eq!(
            answers.iter().map(|it| wall.outside(it.clone())).filter(|it| *it == "passed").count(),
            3
        );
        let strange = fragments(server, &client.replace('7', "8"));
        assert_eq!(wall.outside(strange[0].clone()), "no_rule");
        assert_eq!(wall.outside(strange[1].clone()), "no_first_fragment");
    }
}

#[test]
fn fragments_are_waited_for_half_a_minute_and_from_one_side() {
    for (client, server) in ENDS {
        let mut wall = Wall::new(RULES);
        let frames = fragments(client, server);
        assert_eq!(wall.inside(frames[0].clone()), "passed");
        assert_eq!(wall.outside(frames[1].clone()), "no_first_fragment");
        wall.wait(31);
        assert_eq!(wall.inside(frames[1].clone()), "no_first_fragment");
    }
}

#[test]
fn tiny_and_overlapping_fragments_are_dropped() {
    for (client, server) in ENDS {
        let mut wall = Wall::new(RULES);
        let frames = fragments(client, server);
        assert_eq!(wall.inside(frames[0].clone()), "passed");
        assert_eq!(wall.inside(frames[1].clone()), "passed");
        assert_eq!(wall.inside(frames[0].clone()), "bad_fragment");
        assert_eq!(wall.inside(frames[1].clone()), "bad_fragment");
        assert_eq!(wall.inside(frames[2].clone()), "passed");

        let tiny = tcp().from(client).to(server.replace(":53", ":80")).payload([1; 100]);
        let headers = if client.starts_with('[') { 48 } else { 20 };
        let frames = tiny.build_fragments(headers + 8);
        assert_eq!(wall.inside(frames[0].clone()), "malformed", "by its TCP header");
        assert_ne!(wall.inside(frames[1].clone()), "passed");
    }
}

#[test]
fn no_fragment_comes_twice_with_other_contents() {
    for (client, server) in ENDS {
        let mut wall = Wall::new(RULES);
        let frames = fragments(client, server);
        let shifted = udp().from(client).to(server).payload([9; 3000]).build_fragments(1000);
        assert_eq!(wall.inside(frames[0].clone()), "passed");
        assert_eq!(wall.inside(frames[2].clone()), "passed", "before the second");
        for frame in &shifted {
            assert_eq!(wall.inside(frame.clone()), "bad_fragment");
        }
        assert_eq!(wall.inside(frames[1].clone()), "passed");
    }
}

#[test]
fn a_tunnel_is_no_way_round_the_rules() {
    for (client, server) in ENDS {
        let mut wall = Wall::new(RULES);
        assert_eq!(wall.inside(udp().from(client).to(server)), "passed");
        let answer = || udp().from(server).to(client);
        assert_eq!(wall.outside(answer().tunnelled("203.0.113.66", "10.0.0.7")), "no_rule");
        assert_eq!(wall.outside(answer().tunnelled("2001:db8:6::6", "2001:db8::7")), "no_rule");
        assert_eq!(wall.outside(answer()), "passed");
        let query = || udp().from(client).to(server);
        assert_eq!(wall.inside(query().tunnelled("10.0.0.7", "203.0.113.66")), "no_rule");
    }
}

#[test]
fn messages_of_the_link_pass_both_ways() {
    let mut solicitation = MemPacket::new(&[]);
    let sender = ("fe80::1".parse().unwrap(), MacAddress::new([2, 0, 0, 0, 0, 1]));
    nd::solicit(&mut solicitation, sender, "fe80::2".parse().unwrap()).unwrap();
    let solicitation = solicitation.data().to_vec();
    let arp = arp_request("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let mut wall = Wall::new("");
    for frame in [&solicitation, &arp] {
        assert_eq!(wall.inside(frame.clone()), "passed");
        assert_eq!(wall.outside(frame.clone()), "passed");
    }
    let mut forwarded = solicitation;
    forwarded[14 + 7] = 254;
    assert_eq!(wall.outside(forwarded), "no_rule");
}

#[test]
fn malformed_and_foreign_frames_are_dropped() {
    let mut wall = Wall::new(RULES);
    let frame = udp().to("192.0.2.1:53").payload([1; 40]).build();
    assert_eq!(wall.inside(frame[..40].to_vec()), "truncated");
    let mut other = frame.clone();
    other[14] = 0x44;
    assert_eq!(wall.inside(other), "malformed", "by the length of its header");
    let mut other = frame;
    other[12..14].copy_from_slice(&[0x88, 0xcc]);
    assert_eq!(wall.inside(other), "not_ip");
    assert_eq!(wall.inside(vec![0; 3]), "malformed");
}
