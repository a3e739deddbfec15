//! Ports that lead to a neighbour: the balancer requests its Ethernet address.

use crate::deployed::{
    BACKENDS, BACKENDS_MAC, CLIENTS, OWN_MAC, Running, in_both, preamble, service,
};
use hotloop::packet::PacketBuf;
use hotloop::packet::arp::{self, ArpMessage, Neighbour};
use hotloop::packet::build::tcp;
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::nd::{self, NdMessage};
use std::time::Duration;

/// The router towards the backends, by its address there.
fn config(next_hop: &str, own: &str) -> String {
    let neighbour = format!("next_hop = \"{next_hop}\"\naddress = \"{own}\"");
    let ports = preamble("").replace("next_hop_mac = \"02:00:00:00:02:01\"", &neighbour);
    format!("{ports}{}", service("web", "203.0.113.10 tcp 80", "", &["10.0.0.1"]))
}

fn syn(number: u16) -> Vec<u8> {
    tcp().from(format!("198.51.100.7:{number}")).to("203.0.113.10:80").build()
}

/// Sends a SYN, answers questions for the router as `answer` does, and checks that the packets
/// which waited leave for it in order.
fn ask_and_answer(running: &mut Running<'_>, answer: impl Fn(&mut MemPacket)) -> Vec<Vec<u8>> {
    let asked = running.feed(&[syn(1), syn(2)]);
    assert_eq!(asked.len(), 1, "one request: {asked:02x?}");
    assert!(!asked[0].to_client);
    let mut reply = MemPacket::new(&asked[0].frame);
    answer(&mut reply);
    let mut sent = running.feed_at(crate::deployed::BACKENDS, 0, &[reply.data().to_vec()]);
    sent.extend(running.feed(&[syn(3)]));
    sent.iter().for_each(|sent| assert_eq!(sent.backend(), "10.0.0.1"));
    sent.into_iter().map(|sent| sent.frame).collect()
}

fn assert_sent_to_the_router(frames: &[Vec<u8>]) {
    let macs = [BACKENDS_MAC, OWN_MAC].concat();
    assert_eq!(frames.len(), 3);
    frames.iter().for_each(|frame| assert_eq!(frame[..12], macs));
}

#[test]
fn the_first_packets_wait_until_arp_is_answered() {
    let (frames, reports) = in_both(&config("10.0.2.1", "10.0.2.2"), 1, |running| {
        ask_and_answer(running, |reply| {
            let message = *ArpMessage::of_frame(reply.data()).unwrap();
            assert_eq!(message.target().address.to_string(), "10.0.2.1");
            assert_eq!(message.sender().address.to_string(), "10.0.2.2");
            assert_eq!(message.sender().mac, MacAddress::new(OWN_MAC));
            assert!(arp::reply(reply, MacAddress::new(BACKENDS_MAC)));
        })
    });
    assert_sent_to_the_router(&frames);
    // Three SYNs and the request left; the ARP reply is not for the balancer.
    let [report, _] = reports;
    assert_eq!((report.sent, report.created, report.dropped["punt"]), (4, 1, 1));
}

#[test]
fn the_next_hop_may_have_an_ipv6_address() {
    let (frames, _) = in_both(&config("2001:db8:2::1", "2001:db8:2::2"), 2, |running| {
        ask_and_answer(running, |reply| {
            let message = NdMessage::of_frame(reply.data()).unwrap();
            assert_eq!(message.target().to_string(), "2001:db8:2::1");
            assert_eq!(nd::advertise(reply, MacAddress::new(BACKENDS_MAC)), Ok(true));
        })
    });
    assert_sent_to_the_router(&frames);
}

#[test]
fn packets_to_a_router_that_is_away_are_dropped_after_three_seconds() {
    let (request_count, reports) = in_both(&config("10.0.2.1", "10.0.2.2"), 1, |running| {
        let mut sent = running.feed(&[syn(1)]);
        for _ in 0..35 {
            sent.extend(running.advance(Duration::from_millis(100)));
        }
        sent.len()
    });
    assert_eq!((request_count, reports[0].dropped["unresolved"]), (3, 1));
    let gauges = reports[0].stages.iter().find(|stage| stage.name == "neighbours").unwrap();
    assert_eq!((gauges.gauges["requests"], gauges.gauges["waiting"]), (3, 0));
}

/// A station that has nothing to do with the router.
const EVIL: MacAddress = MacAddress::new([2, 0, 0, 0, 0xde, 0xad]);

/// An ARP claim that the router's address is at this station.
fn claim(operation: u16, target: &str, to: MacAddress) -> Vec<u8> {
    let sender = Neighbour { mac: EVIL, address: "10.0.2.1".parse().unwrap() };
    let target = Neighbour { mac: to, address: target.parse().unwrap() };
    let message = ArpMessage::new(operation, sender, target).to_bytes();
    [&to.bytes()[..], &EVIL.bytes(), &[0x08, 0x06], &message].concat()
}

/// A claim by neighbour discovery, with the override flag.
fn advertisement(to: MacAddress) -> Vec<u8> {
    let ends = ("2001:db8:2::2".parse().unwrap(), MacAddress::new(OWN_MAC));
    let mut packet = MemPacket::new(&[]);
    nd::solicit(&mut packet, ends, "2001:db8:2::1".parse().unwrap()).unwrap();
    assert_eq!(nd::advertise(&mut packet, EVIL), Ok(true));
    packet.data_mut()[..6].copy_from_slice(&to.bytes());
    packet.data().to_vec()
}

/// Receives each frame on both ports, and then a client's packet, which must leave for the router.
fn assert_not_redirected(running: &mut Running<'_>, forged: &[Vec<u8>]) {
    for port in [CLIENTS, BACKENDS] {
        for frame in forged {
            let mut sent = running.feed_at(port, 0, std::slice::from_ref(frame));
            sent.extend(running.feed(&[syn(4)]));
            let (packets, questions): (Vec<_>, Vec<_>) =
                sent.into_iter().partition(|it| it.frame[12..14] == [0x08, 0x00]);
            assert_eq!(packets.len(), 1);
            let forged = format!("{frame:02x?} by port {port}");
            assert_eq!(packets[0].frame[..6], BACKENDS_MAC, "{forged}");
            // The router itself is asked.
            assert!(questions.iter().all(|it| it.frame[..6] == BACKENDS_MAC), "{forged}");
        }
    }
}

#[test]
fn no_forged_arp_redirects_packets_to_backends() {
    let (own, all) = (MacAddress::new(OWN_MAC), MacAddress::BROADCAST);
    let forged = [
        claim(2, "10.0.2.2", own),
        claim(1, "10.0.2.1", all),
        claim(1, "10.0.2.2", all),
        claim(2, "10.0.2.2", MacAddress::new([2, 0, 0, 0, 0x77, 0x77])),
        claim(9, "10.0.2.2", own),
    ];
    let (_, [report, _]) = in_both(&config("10.0.2.1", "10.0.2.2"), 1, |running| {
        ask_and_answer(running, |reply| assert!(arp::reply(reply, BACKENDS_MAC.into())));
        assert_not_redirected(running, &forged);
    });
    let learn = &report.stages.iter().find(|stage| stage.name == "Learn").unwrap().gauges;
    let counts = ["learned", "changed", "doubted", "refused"].map(|name| learn[name]);
    assert_eq!(counts, [1, 0, 1, 4]);
}

#[test]
fn no_forged_advertisement_redirects_packets_to_backends() {
    let own = MacAddress::new(OWN_MAC);
    let forged = [advertisement(own), advertisement(MacAddress::new([2, 0, 0, 0, 0x77, 0x77]))];
    in_both(&config("2001:db8:2::1", "2001:db8:2::2"), 1, |running| {
        ask_and_answer(running, |reply| {
            assert_eq!(nd::advertise(reply, BACKENDS_MAC.into()), Ok(true));
        });
        assert_not_redirected(running, &forged);
    });
}
