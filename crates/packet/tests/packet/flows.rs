//! All packets of a flow meet: both directions, fragments, tunnelled replies, errors about any of
//! them.

use crate::frames::{ENDS, TUNNELS};
use hotloop_packet::{
    build::{
        PacketBuilder, echo_reply, echo_request, tcp, time_exceeded, too_big, udp, unreachable,
    },
    classify::{Depth, Kind, Layout, classify},
    flow_key::FlowKey,
    ip::Fragment,
    seed::Seed,
};

const SEED: Seed = Seed::new(42);

fn shard(frame: &[u8]) -> u32 {
    classify(frame, Depth::Innermost, &SEED).shard()
}

fn key(frame: &[u8]) -> FlowKey {
    classify(frame, Depth::Innermost, &SEED).key(frame).expect("an IP packet")
}

/// A request, its reply, and the key of the request.
fn request_and_reply(from: &str, to: &str) -> (PacketBuilder, PacketBuilder, FlowKey) {
    let key = FlowKey::new(from.parse().unwrap(), to.parse().unwrap(), 6).unwrap();
    (tcp().from(from).to(to), tcp().from(to).to(from), key)
}

/// Whether the frame is known to be of this flow, its ports included.
fn is_of(frame: &[u8], expected: &FlowKey) -> bool {
    let layout = classify(frame, Depth::Innermost, &SEED);
    layout.key(frame) == Some(*expected)
        && layout.hash() == SEED.hash(expected)
        && layout.shard() == SEED.shard(expected) & 0xffff_0000
}

#[test]
fn both_directions_meet() {
    for (from, to) in ENDS {
        let (request, reply, key) = request_and_reply(from, to);
        let (request, reply) = (request.build(), reply.build());
        assert!(is_of(&request, &key));
        assert!(is_of(&reply, &key.reversed()));
        let layouts = [&request, &reply].map(|frame| classify(frame, Depth::Innermost, &SEED));
        assert_eq!(layouts[0].hash(), layouts[1].hash());
        assert_eq!(shard(&request), shard(&reply));
    }
}

#[test]
fn the_tunnelled_reply_meets_its_request() {
    for (from, to) in ENDS {
        let (request, reply, key) = request_and_reply(from, to);
        for (backend, balancer) in TUNNELS {
            let tunnelled = reply.clone().vlan(3).tunnelled(backend, balancer).build();
            let layout = classify(&tunnelled, Depth::Innermost, &SEED);
            assert!(layout.is_tunnel());
            assert!(is_of(&tunnelled, &key.reversed()));
            assert_eq!(
                layout.hash(),
                classify(&request.clone().build(), Depth::Innermost, &SEED).hash()
            );
            assert_eq!(shard(&tunnelled), shard(&request.clone().build()));
        }
    }
}

#[test]
fn only_one_tunnel_is_unwrapped() {
    let (from, to) = ENDS[0];
    let frame = tcp().from(from).to(to).tunnelled("10.1.0.1", "10.1.0.2").tunnelled("::1", "::2");
    let frame = frame.build();
    let key = key(&frame);
    assert_eq!((key.source(), key.protocol()), ("10.1.0.1".parse().unwrap(), 4));
    assert_eq!((key.source_port(), key.destination_port()), (0, 0));
}

#[test]
fn errors_meet_the_flow_that_they_are_about() {
    for (from, to) in ENDS {
        let (request, reply, key) = request_and_reply(from, to);
        let (request, reply) = (request.payload([1; 64]).build(), reply.build());
        for (about, expected) in [(&request, key), (&reply, key.reversed())] {
            let l4_offset = classify(about, Depth::Innermost, &SEED).l4_offset(about).unwrap();
            let shortest_bytes = l4_offset - 14 + 8;
            for error in [unreachable(about), time_exceeded(about), too_big(about, 1280)] {
                let shortest = error.clone().quote_bytes(shortest_bytes);
                for error in [error, shortest] {
                    let plain = error.clone().build();
                    assert!(classify(&plain, Depth::Innermost, &SEED).is_icmp_error());
                    assert!(is_of(&plain, &expected));
                    // The same error, which the backend sends through its tunnel.
                    for (backend, balancer) in TUNNELS {
                        let tunnelled = error.clone().tunnelled(backend, balancer).build();
                        let layout = classify(&tunnelled, Depth::Innermost, &SEED);
                        assert!(layout.is_icmp_error() && layout.is_tunnel());
                        assert!(is_of(&tunnelled, &expected));
                    }
                }
            }
        }
    }
}

#[test]
fn a_quote_without_ports_still_shards() {
    for (from, to) in ENDS {
        let about = udp().from(from).to(to).build();
        let l4_offset = classify(&about, Depth::Innermost, &SEED).l4_offset(&about).unwrap();
        let error = unreachable(&about).quote_bytes(l4_offset - 14 + 7).build();
        let layout = classify(&error, Depth::Innermost, &SEED);
        assert!(layout.is_icmp_error());
        assert_eq!((layout.l4_offset(&error), key(&error).source_port()), (None, 0));
        assert_eq!((key(&error).source(), key(&error).protocol()), (key(&about).source(), 17));
        assert_eq!(shard(&error), shard(&about));
    }
}

#[test]
fn fragments_meet_their_flow() {
    for (from, to) in ENDS {
        let whole = udp().from(from).to(to).payload([7; 600]);
        let expected = shard(&whole.clone().build());
        for (number, frame) in whole.clone().build_fragments(256).iter().enumerate() {
            let layout = classify(frame, Depth::Innermost, &SEED);
            let key = key(frame);
            assert_eq!(layout.shard(), expected);
            if number == 0 {
                assert_eq!(layout.fragment(), Fragment::First);
                assert_eq!((key.source_port(), key.destination_port()), (1000, 80));
            } else {
                assert_eq!((layout.fragment(), layout.l4_offset(frame)), (Fragment::Later, None));
                assert_eq!((key.source_port(), key.destination_port()), (0, 0));
            }
            assert_eq!(key.protocol(), 17);
            // An error about a fragment, and a fragment in a tunnel.
            let error = time_exceeded(frame).build();
            assert_eq!(shard(&error), expected);
            assert_eq!(classify(&error, Depth::Innermost, &SEED).fragment(), layout.fragment());
            assert!(is_of(&error, &key));
        }
        for frame in whole.tunnelled("10.9.0.7", "192.0.2.1").build_fragments(256) {
            assert!(classify(&frame, Depth::Innermost, &SEED).is_tunnel());
            assert_eq!(shard(&frame), expected);
        }
    }
}

#[test]
fn fragments_of_a_tunnel_meet_each_other() {
    let inner = udp().payload([7; 600]).build();
    let tunnel = hotloop_packet::build::protocol(4).from("10.9.0.7").to("192.0.2.1");
    let fragments = tunnel.payload(&inner[14..]).build_fragments(256);
    assert!(fragments.len() > 2);
    let expected = FlowKey::new("10.9.0.7:0".parse().unwrap(), "192.0.2.1:0".parse().unwrap(), 4);
    for frame in fragments {
        assert!(!classify(&frame, Depth::Innermost, &SEED).is_tunnel());
        assert_eq!(Some(key(&frame)), expected);
    }
}

#[test]
fn fragments_of_an_error_meet_each_other() {
    let error = unreachable(&udp().payload([7; 500]).build()).from("10.8.0.1");
    let fragments = error.build_fragments(256);
    assert!(fragments.len() > 2);
    let shards: Vec<_> = fragments.iter().map(|frame| shard(frame)).collect();
    assert!(shards.iter().all(|shard| *shard == shards[0]));
    assert!(
        fragments.iter().all(|frame| !classify(frame, Depth::Innermost, &SEED).is_icmp_error())
    );
}

#[test]
fn echoes_have_their_identifier_as_ports() {
    for (from, to) in ENDS {
        let request = echo_request(0x1234, 1).from(from).to(to).build();
        let reply = echo_reply(0x1234, 1).from(to).to(from).build();
        let other = echo_request(0x1235, 1).from(from).to(to).build();
        assert_eq!(key(&request).source_port(), 0x1234);
        assert_eq!(key(&request).destination_port(), 0x1234);
        assert_eq!(key(&reply), key(&request).reversed());
        assert_ne!(key(&other), key(&request));
        assert_eq!(key(&unreachable(&request).build()), key(&request));
    }
}

#[test]
fn what_is_no_flow_has_none() {
    let arp = hotloop_packet::build::arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let layout = classify(&arp, Depth::Innermost, &SEED);
    assert_eq!((layout.kind(), layout.is_ip()), (Kind::Arp, false));
    assert_eq!((layout.key(&arp), layout.hash(), layout.shard()), (None, 0, 0));
    let layout = classify(&[0; 60], Depth::Innermost, &SEED);
    assert_eq!((layout.kind(), layout.key(&[0; 60])), (Kind::Other, None));
    assert_eq!(Layout::default().kind(), Kind::Other);
}
