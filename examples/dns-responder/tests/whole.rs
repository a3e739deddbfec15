//! Half a million changed frames: all accounted for, and each answer is one that a client can read.

use crate::answers::{V4, V6, ZONE, query, received, responder};
use hotloop::packet::build::{arp_request, echo_request, tcp};
use hotloop::packet::ipv4::Ipv4View;
use hotloop::packet::udp::UdpView;
use hotloop::prelude::*;
use hotloop::testing::{Rng, mutated};

const FRAME_COUNT: usize = 500_000;

/// Queries and other packets for the responder. Those without a checksum are read however they were changed.
fn templates() -> Vec<Vec<u8>> {
    let to_v4 =
        |message: &[u8]| udp().from("10.0.0.7:5000").to(format!("{V4}:53")).payload(message);
    let mut frames = Vec::new();
    for kind in [1, 16, 28, 255] {
        for name in ["www.example.com", "b.deep.example.com", "nowhere.example.com", "example.org"]
        {
            let mut unchecked = to_v4(&query(name, kind)).build();
            unchecked[40..42].fill(0);
            frames.push(unchecked);
        }
    }
    let message = query("www.example.com", 1);
    frames.extend([
        to_v4(&message).build(),
        to_v4(&message).vlan(7).build(),
        to_v4(&message).ipv4_options(&[7, 7, 4, 0, 0, 0, 0, 0]).build(),
        to_v4(&message).tunnelled("192.0.2.9", V4).build(),
        udp().from("[2001:db8::7]:5000").to(format!("[{V6}]:53")).payload(&message).build(),
        echo_request(1, 2).from("10.0.0.7").to(V4).build(),
        arp_request([10, 0, 0, 7].into(), [192, 0, 2, 53].into()),
        tcp().to(format!("{V4}:53")).build(),
    ]);
    frames
}

#[test]
fn changed_frames_are_accounted_for_and_answers_are_whole() {
    let mut classify = bench(Classify::outermost());
    let mut responder = bench(responder(ZONE));
    let (templates, mut rng) = (templates(), Rng::seeded(1));
    let (mut sent, mut dropped, mut answers) = (0, 0, 0);
    for _ in 0..FRAME_COUNT / BURST_CAPACITY {
        let mut frame = || {
            let frame = templates[rng.index(templates.len())].clone();
            received(&mutated(&mut rng, frame))
        };
        let frames: Vec<_> = (0..BURST_CAPACITY).map(|_| frame()).collect();
        let out = responder.feed_items(classify.feed_items(frames).into_packets());
        sent += out.packets().len();
        dropped += out.dropped_sum() as usize;
        let received = out.packets().len() + out.dropped_sum() as usize;
        assert_eq!(received, BURST_CAPACITY);
        answers += out.packets().iter().filter(|packet| is_whole_answer(packet.data())).count();
    }
    assert_eq!(sent + dropped, FRAME_COUNT / BURST_CAPACITY * BURST_CAPACITY);
    assert!(answers > FRAME_COUNT / 10 && dropped > FRAME_COUNT / 10, "{answers}, {dropped}");
}

/// Whether a frame is an answer over IPv4, which must be right then.
fn is_whole_answer(frame: &[u8]) -> bool {
    let Some(ip) = Ipv4View::of_frame(frame).filter(|ip| ip.protocol() == 17) else { return false };
    assert!(ip.is_checksum_right() && ip.payload().len() <= 8 + 512);
    let message = UdpView::parse(ip.payload()).expect("a whole datagram").payload();
    assert!(message.len() >= 12 && message[2] & 0x80 != 0, "{message:02x?}");
    let (questions, records) = (message[5], u16::from_be_bytes([message[6], message[7]]));
    assert!(questions <= 1 && (records == 0 || questions == 1 && message[3] == 0));
    true
}
