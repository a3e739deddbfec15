//! Ports that are one VLAN of their device.

use crate::deployed::{
    BACKENDS, CLIENTS, OWN_MAC, Running, assert_dropped, in_both, preamble, service,
};
use hotloop::packet::PacketBuf;
use hotloop::packet::arp::{self, ArpMessage};
use hotloop::packet::build::{PacketBuilder, tcp};
use hotloop::packet::ethernet::{self, ETHERTYPE_VLAN, MacAddress, VlanTag};
use hotloop::packet::memory::MemPacket;

/// The VLANs of the ports towards clients and backends.
const VLANS: [u16; 2] = [42, 7];

/// A balancer whose ports have these keys.
fn config([clients, backends]: [&str; 2]) -> String {
    let ports = preamble("");
    let ports = ports.replace("side = \"client\"", &format!("side = \"client\"\n{clients}"));
    let ports = ports.replace("side = \"backend\"", &format!("side = \"backend\"\n{backends}"));
    format!("{ports}{}", service("web", "203.0.113.10 tcp 80", "", &["10.0.0.1"]))
}

fn tagged() -> String {
    let [clients, backends] = VLANS.map(|vlan| format!("vlan = {vlan}"));
    config([&clients, &backends])
}

fn syn(number: u16) -> PacketBuilder {
    tcp().from(format!("198.51.100.7:{number}")).to("203.0.113.10:80")
}

fn reply(number: u16) -> PacketBuilder {
    let reply = tcp().from("203.0.113.10:80").to(format!("198.51.100.7:{number}"));
    reply.tunnelled("10.0.0.1", "192.0.2.1")
}

/// Removes the required tag from a frame.
fn untagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    assert_eq!(ethernet::vlan(frame), Some(vlan), "{frame:02x?}");
    let mut packet = MemPacket::new(frame);
    ethernet::take_tag(&mut packet).unwrap();
    packet.data().to_vec()
}

/// The packets of a connection that leave in both directions: the port and the frame.
fn connection(
    running: &mut Running<'_>,
    tag: [&dyn Fn(PacketBuilder) -> PacketBuilder; 2],
) -> Vec<(bool, Vec<u8>)> {
    let mut sent = running.feed_at(CLIENTS, 0, &[tag[0](syn(1)).build(), tag[0](syn(2)).build()]);
    sent.extend(running.feed_at(BACKENDS, 0, &[tag[1](reply(1)).build()]));
    sent.into_iter().map(|it| (it.to_client, it.frame)).collect()
}

#[test]
fn frames_of_the_vlans_are_balanced_as_untagged_ones_are_and_leave_with_their_ports_tag() {
    let (plain, _) = in_both(&config(["", ""]), 2, |it| connection(it, [&|it| it, &|it| it]));
    let [clients, backends] = VLANS;
    let tag: [&dyn Fn(PacketBuilder) -> PacketBuilder; 2] =
        [&|it| it.vlan(clients), &|it| it.vlan(backends)];
    let (sent, _) = in_both(&tagged(), 2, |running| connection(running, tag));
    let sent = sent.into_iter().map(|(to_client, frame)| {
        (to_client, untagged(&frame, if to_client { clients } else { backends }))
    });
    assert_eq!(sent.collect::<Vec<_>>(), plain);
    assert_eq!(plain.iter().filter(|(to_client, _)| *to_client).count(), 1);
    assert_eq!(plain.len(), 3);
}

#[test]
fn what_has_no_tag_or_another_is_dropped() {
    let (_, [report, _]) = in_both(&tagged(), 1, |running| {
        let [clients, backends] = VLANS;
        let mut cut = syn(4).vlan(clients).build();
        cut.truncate(17);
        let others = [
            syn(1).build(),
            syn(2).vlan(backends).build(),
            syn(3).qinq(clients, clients).build(),
            syn(3).vlan(0).build(),
            cut,
        ];
        assert_eq!(running.feed_at(CLIENTS, 0, &others), []);
        assert_eq!(running.feed_at(BACKENDS, 0, &[reply(1).vlan(clients).build()]), []);
        // With another tag inside, the frame still belongs to the VLAN.
        let mut within = syn(5).qinq(clients, 9).build();
        within[12..14].copy_from_slice(&ethernet::ETHERTYPE_VLAN.to_be_bytes());
        assert_eq!(running.feed_at(CLIENTS, 0, &[within]).len(), 1);
    });
    assert_dropped(&report, &[("other_vlan", 6)]);
}

#[test]
fn a_port_that_is_no_vlan_takes_and_sends_frames_as_they_are() {
    let (_, [report, _]) = in_both(&config(["vlan = 42", ""]), 1, |running| {
        let [clients, _] = VLANS;
        let sent = running.feed_at(CLIENTS, 0, &[syn(1).vlan(clients).build()]);
        assert_eq!(ethernet::vlan(&sent[0].frame), None);
        for answer in [reply(1), reply(1).vlan(9)] {
            let sent = running.feed_at(BACKENDS, 0, &[answer.build()]);
            assert_eq!(ethernet::vlan(&sent[0].frame), Some(clients));
        }
    });
    assert_dropped(&report, &[]);
}

#[test]
fn neighbours_are_asked_and_answer_within_the_vlan() {
    let next_hop = "next_hop = \"10.0.2.1\"\naddress = \"10.0.2.2\"";
    let config = tagged().replace("next_hop_mac = \"02:00:00:00:02:01\"", next_hop);
    let router = MacAddress::new(crate::deployed::BACKENDS_MAC);
    in_both(&config, 1, |running| {
        let [clients, backends] = VLANS;
        let asked = running.feed_at(CLIENTS, 0, &[syn(1).vlan(clients).build()]);
        assert_eq!(asked.len(), 1, "{asked:02x?}");
        let mut answer = MemPacket::with_room(&untagged(&asked[0].frame, backends), 4, 0);
        assert_eq!(
            ArpMessage::of_frame(answer.data()).unwrap().sender().mac,
            MacAddress::new(OWN_MAC)
        );
        assert!(arp::reply(&mut answer, router));
        // An answer on another VLAN is ignored.
        let other = answer.data().to_vec();
        assert_eq!(running.feed_at(BACKENDS, 0, &[other]), []);
        let tag = VlanTag::new(ETHERTYPE_VLAN, backends);
        ethernet::insert_tag(&mut answer, tag).unwrap();
        let sent = running.feed_at(BACKENDS, 0, &[answer.data().to_vec()]);
        assert_eq!(sent.len(), 1, "the packet that waited");
        assert_eq!(untagged(&sent[0].frame, backends)[..6], router.bytes());
    });
}
