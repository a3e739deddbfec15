//! Ports that lead to a neighbour: the balancer requests its Ethernet address.

mod deployed;

use deployed::{BACKENDS_MAC, OWN_MAC, Running, in_both, preamble, service};
use hotloop::packet::PacketBuf;
use hotloop::packet::arp::{self, ArpMessage};
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

/// Sends a SYN, answers what asks for the router as `answer` does, and checks that the packets which
/// waited leave for it in their order.
fn ask_and_answer(running: &mut Running<'_>, answer: impl Fn(&mut MemPacket)) -> Vec<Vec<u8>> {
    let asked = running.feed(&[syn(1), syn(2)]);
    assert_eq!(asked.len(), 1, "one request: {asked:02x?}");
    assert!(!asked[0].to_client);
    let mut reply = MemPacket::new(&asked[0].frame);
    answer(&mut reply);
    let mut sent = running.feed_at(deployed::BACKENDS, 0, &[reply.data().to_vec()]);
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
