//! The treatment of each kind of packet, on plain memory.

use crate::bench::{CLIENT_MAC, Lb, NEXT_HOP_MAC, OWN_MAC, lb, reply, tunnel_of};
use hotloop::flow::STEP_NS;
use hotloop::packet::PacketBuf;
use hotloop::packet::build::{
    arp_request, echo_request, protocol, tcp, time_exceeded, too_big, udp, unreachable,
};
use hotloop::packet::ipip;
use hotloop::packet::memory::MemPacket;
use hotloop_balancer::balance::BalanceDrop;
use std::time::Duration;

/// The configuration's idle timeout of UDP.
const UDP_IDLE_NS: u64 = 60_000_000_000;

/// The four services of the configuration and a client for each.
const PAIRS: [(&str, &str); 4] = [
    ("198.51.100.7:4000", "203.0.113.10:80"),        // v4 in v4
    ("198.51.100.7:4000", "203.0.113.11:80"),        // v4 in v6
    ("[2001:db8:c::7]:4000", "[2001:db8:f::10]:80"), // v6 in v6
    ("[2001:db8:c::7]:4000", "[2001:db8:f::11]:80"), // v6 in v4
];

#[test]
fn packets_to_a_service_leave_wrapped_in_all_four_combinations() {
    let mut lb = lb();
    for (client, vip) in PAIRS {
        let frame = tcp().from(client).to(vip).ttl(9).payload([7; 100]).build();
        let mut packet = lb.one(&frame);
        assert_eq!(&packet.data()[..6], NEXT_HOP_MAC, "{vip}");
        assert_eq!(&packet.data()[6..12], OWN_MAC, "{vip}");
        let tunnel = ipip::decapsulate(&mut packet).unwrap();
        let expected = match tunnel.source.is_ipv4() {
            true => ("192.0.2.1", "10.0.0."),
            false => ("2001:db8::1", "2001:db8:b::"),
        };
        assert_eq!(tunnel.source.to_string(), expected.0, "{vip}");
        assert!(tunnel.destination.to_string().starts_with(expected.1), "{vip}");
        // The packet that was sent, except the addresses of the link and the TTL.
        let inner = tcp().from(client).to(vip).ttl(8).payload([7; 100]).build();
        assert_eq!(packet.data()[12..], inner[12..], "{vip}");
    }
}

#[test]
fn a_flow_has_one_backend_and_one_connection() {
    let mut lb = lb();
    let flow = |port: u16| udp().from(format!("198.51.100.7:{port}")).to("203.0.113.10:53");
    // Several packets of each new flow in one burst.
    let frames: Vec<_> = (0..300_u16).map(|it| flow(1 + it % 30).build()).collect();
    let out = lb.feed(&frames);
    assert_eq!(out.packets().len(), 300);
    assert_eq!(lb.admitted(), 30);
    let backends: Vec<_> =
        out.packets().iter().map(|it| tunnel_of(&it.packet).destination).collect();
    for (index, backend) in backends.iter().enumerate() {
        assert_eq!(*backend, backends[index % 30]);
    }
    let first = backends.iter().filter(|it| it.to_string() == "10.0.0.1").count();
    assert!((50..250).contains(&first), "{first} of 300 went to one of two backends");
}

#[test]
fn a_reply_is_unwrapped_and_sent_to_its_client() {
    let mut lb = lb();
    for (client, vip) in PAIRS {
        let sent = lb.one(&tcp().from(client).to(vip).build());
        let packet = lb.one(&reply(&sent, client, vip));
        assert_eq!(&packet.data()[..6], CLIENT_MAC, "{vip}");
        assert_eq!(packet.data()[12..], tcp().from(vip).to(client).ttl(63).build()[12..], "{vip}");
    }
    assert_eq!((lb.to_clients(), lb.replies_known()), (4, 4));
}

#[test]
fn tunnels_are_taken_from_backends_and_peers_alone() {
    let mut lb = lb();
    let inner = || udp().from("203.0.113.10:53").to("198.51.100.7:4000");
    let to_own = |source: &str| inner().tunnelled(source, "192.0.2.1").build();
    assert_eq!(lb.dropped(&to_own("10.0.0.9"), BalanceDrop::UnknownTunnelSource), 1);
    assert_eq!(lb.dropped(&to_own("10.9.8.7"), BalanceDrop::UnknownTunnelSource), 1);
    lb.one(&to_own("10.0.0.1"));
    lb.one(&to_own("10.9.9.9"));
    assert_eq!(lb.to_clients(), 2);
    // A packet to another address than the balancer's, and a fragment of a tunnel packet.
    let elsewhere = inner().tunnelled("10.0.0.1", "192.0.2.2").build();
    assert_eq!(lb.dropped(&elsewhere, BalanceDrop::Punt), 1);
    for fragment in
        protocol(4).from("10.0.0.1").to("192.0.2.1").payload([0x45; 2000]).build_fragments(1500)
    {
        assert_eq!(lb.dropped(&fragment, BalanceDrop::TunnelFragment), 1);
    }
    let mut corrupt = to_own("10.0.0.1");
    corrupt[14 + 10] ^= 1;
    assert_eq!(lb.dropped(&corrupt, BalanceDrop::BadChecksum), 1);
}

#[test]
fn a_tunnelled_request_is_balanced() {
    let mut lb = lb();
    let request = udp().from("198.51.100.7:4000").to("203.0.113.10:53");
    let straight = tunnel_of(&lb.one(&request.clone().build()));
    let tunnelled = lb.one(&request.tunnelled("10.9.9.9", "192.0.2.1").build());
    assert_eq!(tunnel_of(&tunnelled), straight);
    assert_eq!(lb.admitted(), 1);
}

#[test]
fn a_hop_is_counted_in_either_direction() {
    let mut lb = lb();
    for (client, vip) in PAIRS {
        for ttl in [0, 1] {
            let request = tcp().from(client).to(vip).ttl(ttl).build();
            let out = lb.feed(&[request]);
            assert_eq!(out.dropped(BalanceDrop::TtlExpired), 1, "{vip} {ttl}");
            assert_eq!(out.created(), 1, "{vip} {ttl}");
            let reply = tcp().from(vip).to(client).ttl(ttl).tunnelled("10.0.0.1", "192.0.2.1");
            assert_eq!(lb.dropped(&reply.build(), BalanceDrop::TtlExpired), 1, "{vip} {ttl}");
        }
    }
}

#[test]
fn errors_go_to_the_backend_of_the_connection_they_are_about() {
    let mut lb = lb();
    for (client, vip) in PAIRS {
        let request = lb.one(&tcp().from(client).to(vip).build());
        // The backend's answer met a router, which reports to the answer's sender: the VIP.
        let answer = tcp().from(vip).to(client).payload([0; 1400]).build();
        for error in [too_big(&answer, 1400), time_exceeded(&answer), unreachable(&answer)] {
            let error = lb.one(&error.build());
            assert_eq!(tunnel_of(&error), tunnel_of(&request), "{vip}");
        }
    }
    assert_eq!(lb.admitted(), 4);
    // For an unknown connection: to the target of its packets, without being remembered.
    let answer = udp().from("203.0.113.10:53").to("198.51.100.9:77").build();
    let error = lb.one(&unreachable(&answer).build());
    assert_eq!(lb.admitted(), 4);
    let request = lb.one(&udp().from("198.51.100.9:77").to("203.0.113.10:53").build());
    assert_eq!(tunnel_of(&error), tunnel_of(&request));
    // About packets that no service sent, or sent to another client.
    let stray = unreachable(&udp().from("192.0.2.1:53").to("198.51.100.9:77").build());
    assert_eq!(lb.dropped(&stray.build(), BalanceDrop::Punt), 1);
    let diverted = unreachable(&answer).to("203.0.113.11").build();
    assert_eq!(lb.dropped(&diverted, BalanceDrop::NoService), 1);
}

#[test]
fn later_fragments_follow_their_first() {
    let mut lb = lb();
    for (client, vip) in PAIRS {
        let frames = udp()
            .from(client)
            .to(vip.replace(":80", ":53"))
            .payload([0; 3000])
            .build_fragments(1400);
        assert_eq!(frames.len(), 3, "{vip}");
        let out = lb.feed(&[frames[2].clone(), frames[0].clone(), frames[1].clone()]);
        let targets: Vec<_> = out.packets().iter().map(|it| tunnel_of(&it.packet)).collect();
        assert!(targets.len() == 3 && targets.iter().all(|it| *it == targets[0]), "{targets:?}");
    }
    // Outside a tunnel, to no service.
    let stray = udp().from("198.51.100.7:9").to("198.51.100.8:9").payload([0; 3000]);
    let out = lb.feed(&stray.build_fragments(1400));
    assert_eq!(out.dropped(BalanceDrop::Punt), 3);
    // The fragments of a reply need no port: they are on their way to a client.
    let reply = udp().from("203.0.113.10:53").to("198.51.100.7:9").payload([0; 3000]);
    let frames = reply.tunnelled("10.0.0.1", "192.0.2.1").build_fragments(1400);
    assert_eq!(lb.feed(&frames).packets().len(), 3);
    // The fragments of a request in a tunnel need one.
    let request = udp().from("198.51.100.7:9").to("203.0.113.10:53").payload([0; 3000]);
    let frames = request.tunnelled("10.0.0.1", "192.0.2.1").build_fragments(1400);
    assert_eq!(lb.feed(&frames).packets().len(), 3);
}

#[test]
fn what_fits_the_mtu_to_the_byte_passes() {
    let mut lb = lb();
    for (index, (client, vip)) in PAIRS.into_iter().enumerate() {
        let inner_header = if vip.starts_with('[') { 40 } else { 20 };
        let outer_header = if matches!(index, 0 | 3) { 20 } else { 40 };
        let room = 1500 - outer_header - inner_header - 20;
        let fitting = tcp().from(client).to(vip).payload(vec![0; room]).build();
        assert_eq!(lb.one(&fitting).len_bytes(), 14 + 1500, "{vip}");
        let exceeding = tcp().from(client).to(vip).payload(vec![0; room + 1]);
        let out = lb.feed(&[exceeding.clone().dont_fragment().build()]);
        assert_eq!((out.dropped(BalanceDrop::TooBig), out.created()), (1, 1), "{vip}");
        if inner_header == 20 {
            let out = lb.feed(&[exceeding.build()]);
            assert_eq!((out.packets().len(), out.created()), (2, 1), "{vip}");
        }
    }
    // Padding is not part of the packet.
    let mut padded = tcp().from("198.51.100.7:1").to("203.0.113.10:80").build();
    padded.resize(1600, 0);
    assert_eq!(lb.one(&padded).len_bytes(), 14 + 20 + 40);
}

#[test]
fn what_is_nobodys_is_dropped_by_name() {
    let mut lb = lb();
    let client = "198.51.100.7:4000";
    for (frame, reason) in [
        (tcp().from(client).to("203.0.113.10:81").build(), BalanceDrop::NoService),
        (tcp().from(client).to("203.0.113.99:80").build(), BalanceDrop::Punt),
        (tcp().from(client).to("192.0.2.1:80").build(), BalanceDrop::Punt),
        (tcp().from(client).to("203.0.113.20:80").build(), BalanceDrop::NoBackend),
        (tcp().from(client).to("203.0.113.21:80").build(), BalanceDrop::NoBackend),
        (arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into()), BalanceDrop::Punt),
        (vec![0xFF; 60], BalanceDrop::Punt),
        (vec![], BalanceDrop::Malformed),
        (tcp().from(client).to("203.0.113.10:80").build()[..40].to_vec(), BalanceDrop::Truncated),
    ] {
        assert_eq!(lb.dropped(&frame, reason), 1, "{reason:?} {frame:02x?}");
    }
    // The inner packet is not ECN-capable, and the outer one met congestion.
    let reply = udp().from("203.0.113.10:53").to(client).tunnelled("10.0.0.1", "192.0.2.1");
    let mut marked = reply.build();
    marked[15] |= 3;
    let sum = hotloop::packet::checksum::update(
        u16::from_be_bytes([marked[24], marked[25]]),
        0x4500,
        0x4503,
    );
    marked[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(lb.dropped(&marked, BalanceDrop::Congestion), 1);
}

#[test]
fn a_service_of_everything_takes_what_has_no_ports() {
    let mut lb = lb();
    let vip = "203.0.113.30";
    for frame in [
        echo_request(7, 1).from("198.51.100.7").to(vip).build(),
        protocol(50).from("198.51.100.7").to(vip).payload([0; 40]).build(),
        udp().from("198.51.100.7:1").to("203.0.113.30:9").build(),
    ] {
        lb.one(&frame);
    }
    // The echo request was answered.
    assert_eq!(lb.admitted(), 2);
    // Another node's tunnel is one of them. It goes by the inner flow.
    let inside = udp().from("198.51.100.7:1").to("198.51.100.9:9");
    lb.one(&inside.tunnelled("198.51.100.7", vip).build());
    assert_eq!(lb.admitted(), 2);
}

#[test]
fn a_full_table_costs_no_packets() {
    let mut lb = Lb::with("connections_max = 65536", "connections_max = 10");
    let flow = |port: u16| udp().from(format!("198.51.100.7:{port}")).to("203.0.113.10:53");
    let frames: Vec<_> = (1..=100).map(|port| flow(port).build()).collect();
    let first = lb.feed(&frames);
    let second = lb.feed(&frames);
    assert_eq!(first.packets().len(), 100);
    assert_eq!(lb.connections(), 10);
    // Each took the place of another with a single datagram.
    assert!(lb.admitted() >= 190 && lb.stateless() == 0, "{}", lb.admitted());
    for (first, second) in first.packets().iter().zip(second.packets()) {
        assert_eq!(tunnel_of(&first.packet), tunnel_of(&second.packet));
    }
}

#[test]
fn each_ip_version_has_its_room_for_connections() {
    let mut lb = Lb::with("connections_max = 65536", "connections_max = 10");
    let v4 = |port: u16| udp().from(format!("198.51.100.7:{port}")).to("203.0.113.10:53");
    let v6 = |port: u16| udp().from(format!("[2001:db8:c::7]:{port}")).to("[2001:db8:f::10]:53");
    let frames: Vec<_> = (1..=8).flat_map(|port| [v4(port).build(), v6(port).build()]).collect();
    assert_eq!(lb.feed(&frames).packets().len(), 16);
    assert_eq!((lb.connections(), lb.stateless()), (16, 0));
    let more: Vec<_> = (9..=12).map(|port| v4(port).build()).collect();
    lb.feed(&more);
    assert_eq!((lb.connections(), lb.stateless()), (18, 0));
}

#[test]
fn silent_connections_are_forgotten_and_busy_ones_kept() {
    let mut lb = Lb::with("connections_max = 65536", "connections_max = 16");
    let flow = |port: u16| udp().from(format!("198.51.100.7:{port}")).to("203.0.113.10:53");
    let frames: Vec<_> = (1..=16).map(|port| flow(port).build()).collect();
    lb.feed(&frames);
    let half = Duration::from_nanos(UDP_IDLE_NS / 2 + STEP_NS);
    lb.advance(half);
    lb.feed(&frames[..4]);
    assert_eq!(lb.connections(), 16);
    lb.advance(half);
    (0..8).for_each(|_| drop(lb.tick()));
    assert_eq!(lb.connections(), 4);
    lb.advance(half);
    (0..8).for_each(|_| drop(lb.tick()));
    assert_eq!(lb.connections(), 0);
}

#[test]
fn a_packet_without_headroom_is_dropped() {
    let mut lb = lb();
    let frame = tcp().from("198.51.100.7:4000").to("203.0.113.10:80").build();
    assert_eq!(lb.feed_packets([MemPacket::with_room(&frame, 20, 0)]).packets().len(), 1);
    let out = lb.feed_packets([MemPacket::with_room(&frame, 19, 0)]);
    assert_eq!(out.dropped(BalanceDrop::NoHeadroom), 1);
}

#[test]
fn a_request_and_its_tunnelled_reply_meet_on_one_worker() {
    let mut workers = [lb(), lb()];
    let owner = |packet: &MemPacket| {
        let shard = crate::bench::classified(packet.clone()).shard();
        ((u64::from(shard) * 2) >> 32) as usize
    };
    let mut owned = [0_u64; 2];
    for host in 0..200 {
        let client = format!("198.51.100.{host}:4000");
        let request = MemPacket::new(&tcp().from(&client).to("203.0.113.10:80").build());
        let worker = owner(&request);
        let sent = workers[worker].one(request.data());
        let reply = MemPacket::new(&reply(&sent, &client, "203.0.113.10:80"));
        assert_eq!(owner(&reply), worker);
        workers[worker].one(reply.data());
        owned[worker] += 1;
    }
    // Each worker's table had the connection of each reply to the worker.
    for (worker, owned) in workers.iter().zip(owned) {
        assert!(owned > 60, "{owned} of 200 flows");
        assert_eq!((worker.connections() as u64, worker.replies_known()), (owned, owned));
    }
}
