//! Mutated frames: each is sent or dropped.

use crate::wall::{RULES, firewall, rules_of};
use hotloop::packet::build::{arp_request, echo_request, protocol, tcp, time_exceeded, udp};
use hotloop::packet::memory::MemPacket;
use hotloop::prelude::*;
use hotloop::testing::{Rng, mutated};
use std::sync::Arc;

/// Frames of all kinds.
fn corpus() -> Vec<Vec<u8>> {
    let query = udp().to("192.0.2.1:53").payload([1; 40]);
    let query6 = udp().from("[2001:db8::7]:5000").to("[2001:db8:1::1]:53").payload([1; 40]);
    let mut frames = vec![
        tcp().build(),
        tcp().from("[2001:db8::7]:5000").to("[2001:db8:1::1]:80").build(),
        tcp().from("192.0.2.1:9").to("10.0.0.5:22").vlan(7).build(),
        tcp().from("192.0.2.1:9").to("10.0.0.5:23").build(),
        udp().from("192.0.2.1:9").to("10.0.0.5:161").build(),
        query.clone().build(),
        query6.clone().extension(0, &[0; 6]).build(),
        query.clone().tunnelled("10.0.0.1", "192.0.2.1").build(),
        echo_request(7, 1).build(),
        echo_request(7, 1).from("2001:db8::7").to("2001:db8:1::1").build(),
        time_exceeded(&query.clone().build()).build(),
        time_exceeded(&query6.clone().build()).build(),
        arp_request("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()),
        protocol(47).payload([0; 20]).build(),
    ];
    frames.extend(query.payload([2; 3000]).build_fragments(1000));
    frames.extend(query6.payload([2; 3000]).build_fragments(1280));
    frames
}

#[test]
fn mutated_frames_are_accounted_for() {
    let (_, subscribers) = publish(Arc::new(rules_of(RULES)));
    let firewall = firewall(&Core::new(0, 1), 10_000, &subscribers);
    let (mut wall, mut classify) = (bench_burst(firewall), bench(Classify::outermost().seeded(0)));
    let (mut rng, corpus) = (Rng::seeded(1), corpus());
    let (mut received, mut created, mut sent, mut dropped) = (0, 0, 0, 0);
    for _ in 0..5_000 {
        let packets: Vec<MemPacket> = (0..100)
            .map(|_| {
                let frame = corpus[rng.index(corpus.len())].clone();
                let port = PortId::new(rng.index(2) as u16);
                MemPacket::new(&mutated(&mut rng, frame)).with_ingress(port)
            })
            .collect();
        let out = wall.feed_items(classify.feed_items(packets).into_packets());
        received += out.received();
        created += out.created();
        sent += out.packets().len() as u64;
        dropped += out.dropped_sum();
    }
    assert_eq!((received, received + created), (500_000, sent + dropped));
    assert!(
        sent - created > 50_000 && created > 0 && dropped > 50_000,
        "{sent} {created} {dropped}"
    );
}
