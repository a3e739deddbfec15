//! Malformed frames, all accounted for: ten thousand over a wire, and many more in memory.

use crate::lab::{FIRST, GATEWAY_MAC, HOST, HOST_MAC, LAN_MAC, Lab, OTHER_HOST, SERVER, WAN_MAC};
use hotloop::packet::build::{echo_reply, echo_request, protocol, tcp, too_big, udp, unreachable};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop::prelude::*;
use hotloop::testing::{Rng, mutated};
use nat44::nat::Side;
use std::process::Command;

/// Number of frames in memory, unless `HOTLOOP_FRAMES` is set.
const FRAME_COUNT: usize = 500_000;

#[test]
fn malformed_frames_are_accounted_for_to_the_packet() {
    hotloop_tests::besiege(|device, control| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nat44"));
        command.args(["--lan", device, "--wan", "net_ring_wan", "--report", "json", "--control"]);
        command.arg(control).args(["--lan-address", "10.0.0.254", "--wan-address", "203.0.113.1"]);
        command.args(["--next-hop-mac", "02:00:00:00:00:01"]);
        command
    });
}

/// Packets of all kinds from one side.
fn templates(side: Side) -> Vec<Vec<u8>> {
    let is_lan = side == Side::Lan;
    let (from, to) = if is_lan { (HOST, SERVER) } else { (SERVER, FIRST) };
    let macs = if is_lan { (HOST_MAC, LAN_MAC) } else { (GATEWAY_MAC, WAN_MAC) };
    let host = if is_lan { "10.0.0.7" } else { "192.0.2.1" };
    let peer = if is_lan { "192.0.2.1" } else { "203.0.113.1" };
    let about = udp().from(to).to(from).payload([1; 40]).build();
    let flags = [SYN, SYN | ACK, ACK, FIN | ACK, RST];
    let mut packets: Vec<_> =
        flags.iter().map(|flags| tcp().from(from).to(to).tcp_flags(*flags)).collect();
    packets.extend([
        udp().from(from).to(to).payload([2; 90]),
        udp().from(from).to(to).vlan(7),
        udp().from(from).to(to).ipv4_options(&[7, 7, 4, 0, 0, 0, 0, 0]),
        udp().from(OTHER_HOST).to(FIRST),
        udp().from(from).to(to).tunnelled("192.0.2.9", peer),
        echo_request(7, 1).from(host).to(peer),
        echo_reply(1025, 1).from(host).to(peer),
        unreachable(&about).from(host).to(peer),
        too_big(&about, 1400).from(host).to(peer),
        protocol(132).from(host).to(peer),
    ]);
    let mut frames: Vec<_> =
        packets.into_iter().map(|packet| packet.macs(macs.0, macs.1).build()).collect();
    let long = udp().from(from).to(to).identification(7).payload([3; 300]);
    frames.extend(long.macs(macs.0, macs.1).build_fragments(120));
    frames
}

#[test]
fn mutated_frames_are_accounted_for_to_the_packet() {
    let wanted = std::env::var("HOTLOOP_FRAMES").ok();
    let wanted = wanted.map_or(FRAME_COUNT, |number| number.parse().expect("a number of frames"));
    let (mut rng, mut lab) = (Rng::seeded(1), Lab::open());
    let sides = [Side::Lan, Side::Wan].map(|side| (side, templates(side)));
    let (mut received, mut sent, mut dropped) = (0, [0; 3], 0);
    let mut looped = Vec::new();
    for burst in 0..wanted.div_ceil(BURST_CAPACITY) {
        let (side, whole) = &sides[burst % 2];
        let mut frame = || {
            let frame = whole[rng.index(whole.len())].clone();
            mutated(&mut rng, frame)
        };
        let frames: Vec<_> = (0..BURST_CAPACITY).map(|_| frame()).collect();
        // The bench checks the arithmetic of each burst, too.
        for (side, frames) in [(*side, frames), (Side::Hairpin, std::mem::take(&mut looped))] {
            let out = lab.feed(side, frames);
            received += out.received();
            dropped += out.dropped_sum();
            for Routed { packet, route } in out.packets() {
                sent[*route as usize] += 1;
                if *route == Side::Hairpin {
                    looped.push(packet.data().to_vec());
                }
            }
        }
    }
    assert_eq!(received, sent.iter().sum::<u64>() + dropped);
    assert!(received >= wanted as u64 && dropped > 0 && sent.iter().all(|count| *count > 0));
}
