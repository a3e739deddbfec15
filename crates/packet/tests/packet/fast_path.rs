//! The fast path into the tunnel writes what any other packet gets.

use hotloop_packet::{
    PacketBuf,
    build::{protocol, tcp, udp, unreachable},
    classify::{Layout, classify_packet},
    ethernet,
    ipip::Tunnel,
    ipv4::Ipv4View,
    memory::MemPacket,
    seed::Seed,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

const SEED: Seed = Seed::new(42);
const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn is_fast(frame: &[u8]) -> bool {
    let packet = MemPacket::new(frame);
    let layout = classify_packet(&packet, &SEED);
    assert_eq!(layout.fast_key_v4(frame).is_some(), layout.is_fast_v4());
    layout.is_fast_v4()
}

fn tunnel(prefix_bits: u8) -> Tunnel {
    let source: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    Tunnel::spread((source, prefix_bits), Ipv4Addr::new(10, 0, 0, 7)).unwrap()
}

#[test]
fn fast_packets_are_whole_tcp_and_udp_packets_without_anything_else() {
    assert!(is_fast(&tcp().build()) && is_fast(&udp().payload([1; 40]).padded().build()));
    let fragments = udp().payload([0; 2000]).build_fragments(1000);
    for other in [
        tcp().vlan(7).build(),
        tcp().ipv4_options(&[1; 4]).build(),
        tcp().to("[2001:db8::1]:80").build(),
        tcp().tunnelled("10.0.0.1", "10.0.0.2").build(),
        unreachable(&tcp().build()).build(),
        protocol(47).payload([0; 40]).build(),
        tcp().build()[..40].to_vec(),
        fragments[0].clone(),
        fragments[1].clone(),
        Vec::new(),
    ] {
        assert!(!is_fast(&other), "{other:02x?}");
    }
}

#[test]
fn what_needs_a_closer_look_stays_as_it_was() {
    let v6 =
        Tunnel::new("2001:db8::1".parse::<IpAddr>().unwrap(), "::7".parse::<IpAddr>().unwrap());
    let large = tcp().payload([0; 1000]).build();
    for (tunnel, frame, headroom) in [
        (v6.unwrap(), tcp().build(), 64),
        (tunnel(32), tcp().ttl(1).build(), 64),
        (tunnel(32), tcp().ttl(0).build(), 64),
        (tunnel(32), tcp().build(), 19),
        (tunnel(32), large, 64),
    ] {
        let mut packet = MemPacket::with_room(&frame, headroom, 0);
        assert_eq!(tunnel.wrap_fast(&mut packet, &ADDRESSES, 1, 2, 1059), None);
        assert_eq!(packet.data(), frame);
    }
    let fitting = tcp().payload([0; 999]).build();
    let mut packet = MemPacket::new(&fitting);
    assert_eq!(tunnel(32).wrap_fast(&mut packet, &ADDRESSES, 1, 2, 1059), Some(true));
    assert_eq!(packet.len_bytes(), 14 + 1059);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn both_ways_write_the_same(
        ttl in 2u8..,
        tos: u8,
        inner_identification: u16,
        dont_fragment: bool,
        padded: bool,
        payload in prop::collection::vec(any::<u8>(), 0..100),
        prefix_bits in 0u8..=32,
        flow_hash: u32,
        identification: u16,
    ) {
        let mut builder =
            udp().ttl(ttl).tos(tos).identification(inner_identification).payload(payload);
        if dont_fragment {
            builder = builder.dont_fragment();
        }
        if padded {
            builder = builder.padded();
        }
        let frame = builder.build();
        prop_assert!(is_fast(&frame));
        let tunnel = tunnel(prefix_bits);

        let (mut short, mut long) = (MemPacket::new(&frame), MemPacket::new(&frame));
        let is_used = tunnel.wrap_fast(&mut short, &ADDRESSES, flow_hash, identification, 1500);
        prop_assert_eq!(is_used, Some(!dont_fragment));
        tunnel.wrap_flow(&mut long, flow_hash, identification).unwrap();
        let [to, from] = [0, 6].map(|at| *ADDRESSES[at..].first_chunk::<6>().unwrap());
        ethernet::set_addresses(&mut long, from.into(), to.into());
        prop_assert_eq!(short.data(), long.data());
        let outer = Ipv4View::parse(&short.data()[14..]).unwrap();
        prop_assert!(outer.is_checksum_right());
        prop_assert_eq!(IpAddr::from(outer.source()), tunnel.source(flow_hash));
    }

    /// Called with anything else, it makes a wrong packet and never panics.
    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        layout: [u8; 8],
        headroom in 0usize..40,
    ) {
        let layout = Layout::from_metadata(layout);
        let _ = (layout.fast_key_v4(&bytes), layout.key(&bytes), layout.l4_offset(&bytes));
        let mut packet = MemPacket::with_room(&bytes, headroom, 0);
        let wrapped = tunnel(24).wrap_fast(&mut packet, &ADDRESSES, 1, 2, u16::MAX);
        if wrapped.is_none() {
            prop_assert_eq!(packet.data(), bytes);
        }
    }
}
